//go:build !race

package simulation

// bugs are the planted ones: what other libraries got wrong, and what this one could. Each has five times as many seeds
// as it takes, at least.
var bugs = []bug{
	{"no allowance for drift", "clockdrift.go", "	left = subtract(left, d.Floor)\n	return subtract(left, d.share(ttl))", "	return left", 400},
	{"validity counts from after the replies", "internal/quorum/attempt.go", "	lease, err := t.begin(ctx, start)", "	start = l.client.now()\n	lease, err := t.begin(ctx, start)", 400},
	{"the highest token, without a raise", "internal/quorum/attempt.go", "	if b.result() == Won {\n		return nil\n	}\n	raise :=", "	if b.result() != Lost {\n		return nil\n	}\n	raise :=", 800},
	{"raise without the check of the owner", "scripts/raise.lua", "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then\n  return 0\nend\n", "", 2000},
	{"raise without the check of the tenure", "scripts/raise.lua", "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then\n  return 0\nend\nif tonumber(redis.call('get', KEYS[2]) or 0) ~= tonumber(ARGV[3]) then\n  return 0\nend\n", "", 2000},
	{"nodes that refused count for the token", "internal/quorum/attempt.go", "			case 0:\n				b.cast(cell, No)", "			case 0:\n				b.cast(cell, Yes)", 8000},
	{"keys that are granted anew count in the same renewal", "internal/quorum/renew.go", "if ok && err == nil && !c.twin &&", "if err == nil && !c.twin &&", 400},
	{"rollback only where granted", "internal/quorum/release.go", "		q := t.answered(p, granted, unknown)\n", "		q := t.answered(p, granted)\n", 400},
	{"rollback on the caller's context", "internal/quorum/attempt.go", "context.WithDeadline(context.WithoutCancel(ctx), start.Add", "context.WithDeadline(ctx, start.Add", 400},
	{"release without the check of the owner", "scripts/release.lua", "if count <= left then", "if count <= left and redis.call('exists', KEYS[1]) == 0 then", 400},
	{"renewal after Unlock", "internal/quorum/tenure.go", "t.phase = over // before the release", "// before the release", 400},
	{"a lost reply is sent again", "node/send.go", "NoRetry() bool { return true }", "NoRetry() bool { return false }", 400},
	{"Extend resurrects what was lost", "scripts/renew.lua", "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then\n  return 0\nend\n", "redis.call('hset', KEYS[1], ARGV[1], 1)\n", 400},
	{"a straggler is left alone", "internal/quorum/attempt.go", "case gone && state.state != refused && state.state != quarantined || t.release != nil:", "case false:", 400},
	{"one vote less than a majority", "redlock/redlock.go", "quorum.Majority(set.Quorum, len(c.nodes))", "quorum.Majority(max(set.Quorum-1, 1), len(c.nodes))", 400},
	{"a release wakes nobody", "scripts/release.lua", "wake(waiter, now, hands)", "false", 400},
	{"a waiter that leaves does not pass its turn on", "scripts/leave.lua", "  wake(nil, clock())", "", 1000},
	{"a yielder takes a new ticket", "internal/quorum/wait.go", "Waiter: w.id, Ticket: w.ticket,", "Waiter: w.id, Ticket: w.lock.client.now().UnixMicro(),", 400},
	{"a dead head is never dropped", "scripts/line.lua", "deadline(stored[1]) > now or", "deadline(stored[1]) > 0 or", 400},
	{"the wall clock alone says what has elapsed", "internal/quorum/watchdog.go", "return max(now.Sub(start), now.Round(0).Sub(start.Round(0)))", "return now.Round(0).Sub(start.Round(0))", 4000},
	{"loss is noticed by a failed renewal only", "internal/quorum/tenure.go", "	t.timer = time.AfterFunc(left, t.checkDeadline)", "	t.timer = time.AfterFunc(left, func() {})", 400},
	{"a lease that is over is given out", "internal/quorum/tenure.go", "	if left <= 0 {\n		return nil, fmt", "	if left <= -time.Hour {\n		return nil, fmt", 2000},
	{"no expiry at the key", "scripts/acquire.lua", "redis.call('pexpire', KEYS[1], ARGV[2])", "", 200},
	{"the holder stays in line", "internal/quorum/attempt.go", "	t.leaveLines(ctx)", "", 1200},
	{"Unlock of an inner lease releases", "internal/quorum/tenure.go", "last := len(t.leases) == 0 && t.phase", "last := t.phase", 400},
	{"the token does not rise", "scripts/acquire.lua", "math.max(token + 1, tonumber(ARGV[4]))", "math.max(token, tonumber(ARGV[4]))", 400},
	{"somebody who tries passes the line", "scripts/acquire.lua", "ARGV[5] == 'keep' or", "not waiter or", 400},
	{"what is handed over counts from when it is told", "internal/quorum/hand.go", "t.begin(ctx, w.since)", "t.begin(ctx, l.client.now())", 400},
	{"what a former attempt was handed counts", "internal/quorum/hand.go", "case attempt == w.attempts:", "case attempt <= w.attempts:", 2000},
	{"an earlier attempt takes back what is held", "internal/quorum/hand.go", "	if w.heirHolds {\n		return \"\"\n	}\n", "", 3000},
	{"the token does not rise when it is handed over", "scripts/line.lua", "string.format('%.0f', token + 1)", "string.format('%.0f', token)", 400},
	{"handed to the second in line", "scripts/line.lua", "not hand(two[1], stored[1], now)", "not hand(two[2] or two[1], two[2] and stored[2] or stored[1], now)", 400},
	{"what was handed to one who has gone stays", "scripts/line.lua", "heir == '*' and isHeir(held[i], waiter)", "false", 2000},
	{"what was handed over is not renewed", "internal/quorum/tenure.go", "now().Add(min(renewHanded, left/3))", "now().Add(left)", 4000},
	{"one member of a MultiLock is enough", "internal/quorum/tree.go", "Tree{Need: len(members), Breaks: 1,", "Tree{Need: 1, Breaks: 1,", 400},
}
