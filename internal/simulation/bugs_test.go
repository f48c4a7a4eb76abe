//go:build !race

package simulation

import "github.com/quorumlock/quorumlock/internal/sabotage"

var bug = sabotage.NewBug

// bugs are the planted ones: what other libraries got wrong, and what this one could. Each has five times as many seeds
// as it takes, at least.
var bugs = []sabotage.Bug{
	bug("no allowance for drift", "clockdrift.go", "	left = subtract(left, d.Floor)\n	return subtract(left, d.share(ttl))", "	return left", 400),
	bug("validity starts after the replies", "internal/core/hold.go", "\tm.start, m.ttl = m.asked, m.cfg.TTL\n", "\tm.start, m.ttl = now, m.cfg.TTL\n", 400),
	bug("the highest token is taken without a raise", "internal/core/attempt.go", "\tif m.cfg.Tree.Tally(m.votes) == VoteWon {\n\t\tm.hold(now)\n\t\treturn\n\t}\n\tfor", "\tif m.cfg.Tree.Tally(m.votes) != VoteLost {\n\t\tm.hold(now)\n\t\treturn\n\t}\n\tfor", 800),
	bug("raise does not check the owner", "scripts/raise.lua", "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then\n  return 0\nend\n", "", 6000),
	bug("raise does not check the token", "scripts/raise.lua", "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then\n  return 0\nend\nif tonumber(redis.call('get', KEYS[2]) or 0) ~= tonumber(ARGV[3]) then\n  return 0\nend\n", "", 2000),
	bug("nodes that refused count towards the token", "internal/core/attempt.go", "\t\tcase 0:\n\t\t\tm.votes[i] = No", "\t\tcase 0:\n\t\t\tm.votes[i] = Yes", 8000),
	bug("restored keys count in the same renewal", "internal/core/hold.go", "\tvote := No\n\tif reply.Err == nil {\n\t\tif", "\tvote := No\n\tif reply.Err == nil {\n\t\tvote = Yes\n\t\tif", 400),
	bug("rollback only where granted", "internal/core/release.go", "case c.State == Granted, c.State == Asked, c.State == Unknown, c.pending > 0:", "case c.State == Granted:", 400),
	bug("rollback uses the caller's context", "internal/core/release.go", "\tm.phase, m.successor = Over, false\n", "\tm.phase, m.successor = Over, false\n\tif why == Cancelled {\n\t\treturn\n\t}\n", 400),
	bug("release does not check the owner", "scripts/release.lua", "if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then", "if redis.call('del', KEYS[1]) == 0 then", 400),
	bug("a call whose reply was lost is sent again", "node/alone.go", "NoRetry() bool { return true }", "NoRetry() bool { return false }", 400),
	bug("Extend resurrects a lost hold", "scripts/renew.lua", "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then\n  return 0\nend\n", "redis.call('hset', KEYS[1], ARGV[1], 1)\n", 400),
	bug("a straggler is left alone", "internal/core/attempt.go", "\tc.stray = c.stray || lost\n\tswitch {", "\tc.stray = c.stray || lost\n\tswitch {\n\tcase true:", 400),
	bug("one vote fewer than a majority", "redlock/redlock.go", "core.Majority(set.Quorum, len(c.nodes))", "core.Majority(max(set.Quorum-1, 1), len(c.nodes))", 400),
	bug("a release wakes nobody", "scripts/release.lua", "wake(waiter, now, hands)", "false", 400),
	bug("a waiter that leaves does not pass on its turn", "scripts/leave.lua", "  wake(nil, now)", "", 1000),
	bug("a waiter that yields takes a new ticket", "internal/quorum/call.go", "Ticket: c.caller.Ticket,", "Ticket: c.lock.client.now().UnixMicro(),", 400),
	bug("a dead waiter at the head of the queue is never dropped", "scripts/queue.lua", "deadline(stored[1]) > now then", "deadline(stored[1]) > 0 then", 400),
	bug("elapsed time comes from the wall clock alone", "internal/quorum/client.go", "core.Time{Mono: now.Sub(c.base), Wall:", "core.Time{Mono: now.Round(0).Sub(c.base.Round(0)), Wall:", 4000),
	bug("only a failed renewal reveals a loss", "internal/core/machine.go", "\t\treturn earlier(m.Until()-m.ahead, m.renew)", "\t\treturn m.renew", 400),
	bug("the key has no expiry", "scripts/acquire.lua", "redis.call('pexpire', KEYS[1], ARGV[2])", "", 200),
	bug("the holder stays in the queue", "internal/core/hold.go", "\tfor i := range m.Cells {\n\t\tm.leaveQueue(i)\n\t}\n", "", 1200),
	bug("Unlock of an inner lease releases the lock", "internal/quorum/hold.go", "last := len(c.hold.leases) == 0 && !c.hold.over", "last := !c.hold.over", 400),
	bug("the token does not rise", "scripts/acquire.lua", "token = math.max(last + 1, hint)", "token = math.max(last, hint)", 400),
	bug("a newcomer jumps the queue", "scripts/acquire.lua", "ARGV[4] == 'keep' or", "true or", 400),
	bug("a handoff's validity starts when the waiter hears of it", "internal/core/hold.go", "\t\tm.ttl = m.cfg.HandTTL\n", "\t\tm.start, m.ttl = now, m.cfg.HandTTL\n", 400),
	bug("a handoff to an earlier attempt counts", "internal/core/wait.go", "\tcase attempt == m.attempt:", "\tcase attempt <= m.attempt:", 2000),
	bug("the token does not rise in a handoff", "scripts/queue.lua", "string.format('%.0f', token + 1)", "string.format('%.0f', token)", 400),
	bug("a handoff goes to the second in the queue", "scripts/queue.lua", "not hand(two[1], stored[1], now)", "not hand(two[2] or two[1], two[2] and stored[2] or stored[1], now)", 400),
	bug("a handoff to a waiter that has left stays", "scripts/queue.lua", "    if isSuccessor(held[i], waiter) then", "    if false then", 2000),
	bug("a hold that was handed over is not renewed", "internal/core/hold.go", "\t\tm.renew = now.Mono + min(renewHanded, left/3)\n", "\t\tm.renew = 0\n", 4000),
	bug("one member of a MultiLock is enough", "internal/core/tree.go", "Tree{Need: len(members), Breaks: 1,", "Tree{Need: 1, Breaks: 1,", 400),
	bug("a server grants right after it starts", "scripts/guard.lua", "local left = quarantine - (uptime - 1) * 1000", "local left = -1", 4000),
	bug("a server's uptime is not rounded down", "scripts/guard.lua", "(uptime - 1) * 1000", "uptime * 1000", 12000),
	bug("a promotion is not noticed", "scripts/guard.lua", "if string.find(former, '[^0]') then", "if false then", 6000),
	bug("a hint is believed, however wild", "scripts/acquire.lua", "math.abs(hint - now) > 3600000000 and", "false and", 2000),
	bug("a handoff is believed without proof", "internal/quorum/subscriptions.go", " || !h.ProvenBy(w.caller.Secret)", "", 4000),
	bug("a TryLock gives up in a split vote", "internal/core/wait.go", "m.cfg.Tries && (!m.undecided ||", "m.cfg.Tries && (m.undecided ||", 4000),
}
