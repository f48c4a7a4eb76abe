//go:build !race

package latchsim

// bugs are the planted ones. Each has five times as many seeds as it takes, at least.
var bugs = []bug{
	{"what one node has counts", "internal/quorum/latch.go", "if len(agree) < l.need {", "if len(agree) < 1 {", 400},
	{"one vote less than a quorum", "internal/quorum/latchround.go", "for need := r.latch.need; len", "for need := max(r.latch.need-1, 1); len", 400},
	{"open is told before it is written back", "internal/quorum/latch.go", "if len(agree) < l.need {", "if len(agree) < l.need && !u.open {", 600},
	{"Count writes nothing back", "internal/quorum/latch.go", "if len(agree) < l.need {", "if len(agree) < l.need && mode != scripts.ReadLatch {", 600},
	{"a call that is sent again counts again", "scripts/latch.lua", "redis.call('zadd', KEYS[2], '0', ARGV[i])", "redis.call('zadd', KEYS[2], '0', what == 'restore' and ARGV[i] or ARGV[i] .. string.match(ARGV[4], '^[^.]+'))", 400},
	{"ids are counted at each node", "internal/quorum/latchunion.go", "u.ids[id] = struct{}{}\n\t}\n}", "u.ids[id+s.Server] = struct{}{}\n\t}\n}", 400},
	{"one node that forgot closes the latch", "internal/quorum/latchunion.go", "u.open || s.Open\n", "s.Open\n", 400},
	{"a latch that opens tells nobody", "scripts/latch.lua", "redis.pcall('publish', ARGV[5], 'open')", "", 400},
}
