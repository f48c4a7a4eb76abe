package coretier

import "github.com/quorumlock/quorumlock/internal/sabotage"

var bug = sabotage.NewBug

// bugs are the planted ones, of the engine and of the scripts that it relies on: what other libraries got wrong, and what
// this one could. Each has several times as many seeds as it takes.
var bugs = []sabotage.Bug{
	bug("no allowance for drift", "clockdrift.go", "	left = subtract(left, d.Floor)\n	return subtract(left, d.share(ttl))", "	return left", 4000),
	bug("validity starts after the replies", "internal/core/hold.go", "	m.start, m.ttl = m.asked, m.cfg.TTL\n", "	m.start, m.ttl = now, m.cfg.TTL\n", 4000),
	bug("a renewal's validity starts after its replies", "internal/core/hold.go", "m.start, m.ttl, m.late = r.start, m.cfg.TTL, false", "m.start, m.ttl, m.late = r.start.Add(m.trip(0)), m.cfg.TTL, false", 8000),
	bug("the highest token is taken without a raise", "internal/core/attempt.go", "	if m.cfg.Tree.Tally(m.votes) == VoteWon {\n		m.hold(now)\n		return\n	}\n	for", "	if m.cfg.Tree.Tally(m.votes) != VoteLost {\n		m.hold(now)\n		return\n	}\n	for", 20000),
	bug("nodes that refused count towards the token", "internal/core/attempt.go", "		case 0:\n			m.votes[i] = No", "		case 0:\n			m.votes[i] = Yes", 40000),
	bug("restored keys count in the same renewal", "internal/core/hold.go", "	vote := No\n	if reply.Err == nil {\n		if", "	vote := No\n	if reply.Err == nil {\n		vote = Yes\n		if", 4000),
	bug("rollback only where granted", "internal/core/release.go", "case c.State == Granted, c.State == Asked, c.State == Unknown, c.pending > 0:", "case c.State == Granted:", 4000),
	bug("a cancelled call releases nothing", "internal/core/release.go", "	m.phase, m.successor = Over, false\n", "	m.phase, m.successor = Over, false\n	if why == Cancelled {\n		return\n	}\n", 4000),
	bug("a straggler is left alone", "internal/core/attempt.go", "	c.stray = c.stray || lost\n	switch {", "	c.stray = c.stray || lost\n	switch {\n	case true:", 8000),
	bug("release skips nodes that have not answered", "internal/core/release.go", "		call := Call{Do: Release, Cell: int32(i), Attempt: m.attempt, Successor: m.successor}\n", "		call := Call{Do: Release, Cell: int32(i), Attempt: m.attempt, Successor: m.successor}\n		if c.State == Unknown || c.State == Asked {\n			m.votes[i] = No\n			continue\n		}\n", 8000),
	bug("a release that failed is not sent again", "internal/core/event.go", "return d == Yield || d == Release || d == ReleaseAndLeave || d == Leave }", "return false }", 8000),
	bug("one vote fewer than a majority", "internal/core/tree.go", "	t := Tree{Need: need,", "	t := Tree{Need: max(need-1, 1),", 4000),
	bug("one member of a MultiLock is enough", "internal/core/tree.go", "Tree{Need: len(members), Breaks: 1,", "Tree{Need: 1, Breaks: 1,", 4000),
	bug("elapsed time comes from the wall clock alone", "internal/core/event.go", "return max(t.Mono-u.Mono, t.Wall-u.Wall)", "return t.Wall - u.Wall", 20000),
	bug("elapsed time comes from the monotonic clock alone", "internal/core/event.go", "return max(t.Mono-u.Mono, t.Wall-u.Wall)", "return t.Mono - u.Mono", 40000),
	bug("only a failed renewal reveals a loss", "internal/core/machine.go", "		return earlier(m.Until()-m.ahead, m.renew)", "		return m.renew", 4000),
	bug("a late renewal resurrects a lost hold", "internal/core/hold.go", "	if m.Remaining(now) > 0 {\n		return\n	}\n	if m.overheld", "	if m.Remaining(now) > -m.cfg.TTL {\n		return\n	}\n	if m.overheld", 4000),
	bug("the holder stays in the queue", "internal/core/hold.go", "	for i := range m.Cells {\n		m.leaveQueue(i)\n	}\n", "", 4000),
	bug("a handoff's validity starts when the waiter hears of it", "internal/core/hold.go", "		m.ttl = m.cfg.HandTTL\n", "		m.start, m.ttl = now, m.cfg.HandTTL\n", 4000),
	bug("a handoff has the whole TTL", "internal/core/hold.go", "		m.ttl = m.cfg.HandTTL\n", "", 8000),
	bug("a handoff to an earlier attempt counts", "internal/core/wait.go", "	case attempt == m.attempt:", "	case attempt <= m.attempt:", 20000),
	bug("the cleanup of an earlier attempt releases what is held", "internal/core/release.go", "	return m.successor && (", "	return false && (", 40000),
	bug("a hold that was handed over is not renewed", "internal/core/hold.go", "		m.renew = now.Mono + min(renewHanded, left/3)\n", "		m.renew = 0\n", 20000),
	bug("two attempts use one owner", "internal/core/attempt.go", "m.phase, m.attempt, m.successor = Asking, m.attempt+1, false", "m.phase, m.attempt, m.successor = Asking, max(m.attempt, 1), false", 4000),
	bug("a TryLock gives up in a split vote", "internal/core/wait.go", "m.cfg.Tries && (!m.undecided ||", "m.cfg.Tries && (m.undecided ||", 20000),
	bug("a waiter never asks again by itself", "internal/core/wait.go", "	m.due = now.Mono + m.pause(now)\n", "	m.due = now.Mono + time.Hour\n", 4000),
	bug("a waiter does not yield what others need", "internal/core/wait.go", "		case Granted:\n			m.yields++\n			m.yield(i)\n", "		case Granted:\n", 4000),
	bug("a loss does not end a pending Extend", "internal/core/hold.go", "	m.fx.Lost = why\n	m.endRounds()\n", "	m.fx.Lost = why\n", 20000),
	bug("a refusal after the release leaves the waiter queued", "internal/core/attempt.go", "if c.bare && (c.Refused || c.Duplicate) || restored {", "if restored {", 20000),
	bug("a late handoff leaves its waiter asleep", "internal/core/wait.go", "		case m.phase == Yielding && m.yields == 0:\n			m.wait(now)\n", "", 100000),
	bug("a renewal lengthens what UnlockAfter keeps", "internal/core/hold.go", "	if m.keep && m.phase >= Releasing && !reply.Unsent", "	if false && m.phase >= Releasing && !reply.Unsent", 40000),
	bug("UnlockAfter stays in the queue", "internal/core/release.go", "case keep > 0 && c.State == Granted:", "case keep > 0 && c.State != Asked:", 40000),
	bug("UnlockAfter releases at once", "internal/core/release.go", "			call.Do, call.For = Keep, keep\n", "			call.For = keep\n", 4000),
	bug("release does not check the owner", "internal/scriptmodel/release.go", "		if n.lock.hdel(owner) {\n", "		if was := n.lock.exists(); was {\n			n.lock.del()\n", 4000),
	bug("the token does not rise", "internal/scriptmodel/acquire.go", "token = max(last+1, hint)", "token = max(last, hint)", 4000),
	bug("a release wakes nobody", "internal/scriptmodel/release.go", "		open = n.wake(waiter, now, hands)\n", "		_ = hands\n", 4000),
	bug("a server grants right after it starts", "internal/scriptmodel/guard.go", "	left = quarantine - (uptime-1)*1000\n", "	left = -1 + 0*quarantine*uptime\n", 20000),
	bug("a handoff is believed without proof", "internal/coretier/process.go", " || !h.ProvenBy(c.caller.Secret)", "", 20000),
}
