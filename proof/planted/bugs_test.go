// Package planted has the planted bugs: mistakes of other libraries, and possible ones of this
// library. The proofs of each must notice it.
//
//	go test ./proof/planted -planted all -v              every bug, and its finder
//	go test ./proof/planted -planted 'drift|token' -v    some of them
package planted

import (
	"testing"

	"github.com/quorumlock/quorumlock/proof/mutation"
)

// wire and core are the proofs by the simulations. One of the invariants must fail first, any if
// there are none.
func wire(seeds int, invariants ...string) mutation.Proof {
	return mutation.Seeds("proof/simulation", seeds, invariants...)
}

func core(seeds int, invariants ...string) mutation.Proof {
	return mutation.Seeds("proof/coresim", seeds, invariants...)
}

func bug(name, in, old, instead string, by ...mutation.Proof) mutation.Bug {
	return mutation.Bug{Name: name, In: in, Old: old, New: instead, By: by}
}

var tests = mutation.Tests

var bugs = []mutation.Bug{
	// Validity.
	bug("no allowance for drift", ". Drift.Validity", "subtract(left, d.share(ttl))", "left", wire(2000, "backed by a quorum"), core(20000, "backed by a quorum")),
	bug("validity starts after the replies", "internal/core Machine.hold", "m.start = m.asked", "m.start = now", wire(400, "backed by a quorum"), core(4000, "backed by a quorum")),
	bug("a handoff's validity starts when the waiter hears of it", "internal/core Machine.hold", "m.ttl = m.cfg.HandTTL", "m.start, m.ttl = now, m.cfg.HandTTL", wire(400, "backed by a quorum"), core(4000, "backed by a quorum")),
	bug("a late renewal resurrects a lost hold", "internal/core Machine.checkDeadline", "m.Remaining(now) > 0", "m.Remaining(now) > -m.cfg.TTL", core(4000, "a machine does not spin")),
	bug("only a failed renewal reveals a loss", "internal/core Machine.Wake", "earlier(m.Until()-m.suspended, m.renew)", "m.renew", wire(400, "loss is told by the deadline"), core(4000, "loss is told by the deadline")),
	bug("elapsed time comes from the wall clock alone", "internal/client clocks.read", "mono := now.Sub(c.base)", "mono := now.Round(0).Sub(c.base.Round(0))", wire(4000, "loss is told by the deadline", "nothing is left behind")),
	bug("Lock returns a hold that has ended meanwhile", "internal/client session.begin", "err == nil && c.isAlive(now)", "err == nil", tests("internal/client", "TestLockReturnsNoLease")),
	bug("a Park is judged without the last suspend", "internal/core Do.Frees", "d == Leave", "d == Leave || d == Park", tests("internal/client", "TestADetachThatASuspendOutlastsFails")),
	bug("a suspend counts for a client's first hold alone", "internal/client Client.addHolder", "c.held == 1", "false", tests("internal/client", "TestALossAfterASuspension")),

	// Votes.
	bug("one vote fewer than a majority", "redlock Client.formOf", "core.Majority(set.Quorum, len(c.nodes))", "core.Majority(max(set.Quorum-1, 1), len(c.nodes))", wire(400, "backed by a quorum")),
	bug("votes for different slots are counted together", "internal/core Machine.count", "t.result(hasGranted, mayGrant)", "t.result(hasWon, mayGrant)", wire(2000, "nothing is left behind"), core(4000, "the next waiter is told")),
	bug("one member of a MultiLock is enough", "internal/core Every", "newGroup(len(members), len(members), 1)", "newGroup(len(members), 1, 1)", wire(400, "backed by a quorum", "mutual exclusion"), core(4000, "mutual exclusion")),
	bug("a restored key counts in the same renewal", "internal/core Machine.renewed", "vote := No", "vote := Yes", wire(400, "backed by a quorum"), core(4000, "backed by a quorum")),
	bug("the highest token is taken without a raise", "internal/core Machine.agree", "m.tallies().holds(saidYes)", "m.tallies().holds(maySayYes)", wire(800, "tokens rise"), core(20000, "tokens rise")),
	bug("a raise of an earlier attempt is a vote", "internal/core Machine.raised", "call.Attempt != m.attempt", "false", tests("internal/core", "TestARaiseOfAnEarlier")),
	bug("the permits are counted at each node", "internal/core Machine.majoritySlot", "ok && slot != best", "ok && slot != best && best < 0", wire(2000, "backed by a quorum"), core(4000, "backed by a quorum")),
	bug("nobody notices that one address leads to two servers", "internal/transport servers.judge", "server != witness", "false", wire(400, "a quorum has what is done")),

	// Releases.
	bug("what is granted late is kept", "internal/core Machine.fail", "case c.mayHold(): do = ReleaseAndLeave", "case c.Standing == Granted: do = ReleaseAndLeave", wire(400, "nothing is left behind", "somebody is granted in so many round trips"), core(4000, "nothing is left behind")),
	bug("one confirmation of a release is enough", "internal/core Machine.Retry", "c.unsure", "false", core(8000, "somebody acquires")),
	bug("a release that failed is not sent again", "internal/core Do.IsRelease", "d == Release", "false", core(8000, "nothing is left behind")),
	bug("a waiter's later attempt is recalled", "internal/wire Call.IsFirst", "strings.HasSuffix(c.args[0].text, \".1\")", "c.count > 0", wire(9000, "nothing is left behind")),
	bug("an attempt for two locks is recalled by the release of one", "internal/transport unsent.recall", "slices.EqualFunc(a.cmds, t.cmds, sameKey)", "slices.EqualFunc(a.cmds[:1], t.cmds[:1], sameKey)", tests("node", "TestAnUnsentAttempt")),
	bug("Unlock of an inner lease releases the lock", "internal/client session.endLease", "len(c.hold.leases) == 0", "true", wire(400, "loss is told by the deadline")),
	bug("a release does not check the owner", "scripts/release.lua", "  if not held then\n    left = -1", "  if redis.call('del', KEYS[1]) == 0 then\n    left = -1", wire(400, "nobody else's hold is touched")),

	// Detached holds.
	bug("two processes have one owner for a hold", "internal/wire Caller.script", "return Attach(name, owner, c.Former, k.Token, cell, int(k.Of))", "return Renew(name, c.Former, t.TTL).At(cell)", core(4000, "nothing fails while nothing is wrong")),
	bug("an Attach needs no quorum", "internal/core Machine.countAttach", "t := m.tallies()", "c := *m.cfg; c.Tree = Majority(1, len(m.Cells)); m.cfg = &c; m.changed++; t := m.tallies()", wire(1500, "backed by a quorum"), core(4000, "backed by a quorum")),
	bug("an Attach that fails keeps what it has got", "internal/core Machine.undoAttach", "c.mayHold()", "c == nil", core(8000, "nothing is left behind")),

	// Fencing tokens.
	bug("a semaphore has the number of slots of whoever asks", "scripts/slot_acquire.lua", "return redis.error_reply(string.format('OTHERPERMITS %.0f %.0f', k, number))", "", tests("scripts", "TestASemaphoreInUseHasOneNumberOfSlots")),
	bug("the token does not rise", "scripts/acquire.lua", "token = last >= oldest and last + 1", "token = last >= oldest and last", wire(400, "tokens are unique")),
	bug("a handoff has the token of the last hold", "scripts/handoff.lua", "redis.pcall('incrby', KEYS[4], 1)", "tonumber(redis.pcall('get', KEYS[4]))", wire(400, "tokens are unique")),
	bug("a hint from the past is believed", "scripts/acquire.lua", "asked <= math.max(last, oldest - 1)", "asked <= last", wire(4000, "tokens rise")),
	bug("a hint from the future is believed", "scripts/acquire.lua", " or asked > now + 60000000 then", " then", tests("redlock/internal/tests/token", "TestTokensFollowNoClientsClock")),
	bug("a counter ends too early", "scripts/acquire.lua", "'240000'", "'110000'", tests("redlock/internal/tests/token", "TestTokensRiseFromAClientAheadToOneBehind")),
	bug("a counter in use ends too early", "scripts/acquire.lua", "if left ~= -1 and left < keep then", "if left == -2 then", tests("redlock/internal/tests/token", "TestTokensRiseFromAClientAheadToOneBehind")),

	// The queues.
	bug("a newcomer jumps the queue", "scripts/acquire.lua", "former or ARGV[4] == 'keep' or", "true or", wire(400, "in ticket order")),
	bug("the holder stays in the queue", "internal/core Machine.hold", "m.leaveQueue(i)", "_ = i", wire(1200, "nothing is left behind"), core(4000, "nothing is left behind", "nothing fails while nothing is wrong")),
	bug("a handoff to a waiter that has left stays", "scripts/leaving.lua", "    if isSuccessor(held[i], waiter, attemptOf(last)) and", "    if false and", wire(2000, "nothing is left behind", "somebody is granted in so many round trips")),
	bug("a handoff is believed without proof", "internal/engine Message.Event", "m.handoff.ProvenBy(secret)", "true", core(4000, "backed by a quorum")),
	bug("a MultiLock is not told that its turn may have come", "internal/core Machine.summon", "c.summon()", "if c.summon(); len(m.Cells) > 7 { c.called = false }", wire(400, "somebody is granted in so many round trips"), core(8000, "somebody is granted in so many round trips")),

	// Servers and connections.
	bug("a server grants right after it starts", "scripts/guard.lua", "if age < quarantine then", "if false then", wire(4000, "mutual exclusion")),
	bug("a quarantine is measured by the server's clock", "scripts/guard.lua", "age = math.max(age, claim)", "age = math.max(age, claim, tonumber(string.match(server, 'uptime_in_seconds:(%-?%d+)')) * 1000)", wire(8000, "mutual exclusion")),
	bug("a promotion is not noticed", "scripts/guard.lua", "or same and string.match", "or string.match", wire(6000, "mutual exclusion")),
	bug("a pipeline whose replies were lost is sent again", "internal/transport lane.takeLost", "lost[last].unsent", "true", wire(400, "nothing takes effect twice")),
	bug("the replies of a pipeline are mixed up", "internal/transport lane.receive", "f.calls[f.taken]", "f.calls[f.alone-1-f.taken]", wire(400, "nothing is left behind")),

	// Overload.
	bug("first attempts go before all other calls", "internal/transport unsent.queued", "func(yield func(*request) bool) { for t := range u.begun.all() { if !yield(t) { return } } u.fresh.all()(yield) }",
		"func(yield func(*request) bool) { for t := range u.fresh.all() { if !yield(t) { return } }; u.begun.all()(yield) }", tests("node", "TestAttemptsGoLast")),
	bug("the limit of a call begins when it is queued", "internal/transport lane.expire", "later(since, l.meter.heard)", "since", tests("node", "TestCallsOverLanes")),
	bug("a handshake has one limit in all", "internal/transport guard.Read", "g.heard()", "", tests("node", "TestASlowServerIsConnectedTo")),
	bug("an answer through a client of the caller's does not count for the calls that wait", "internal/transport pool.leave", "other.heard()", "_ = other", tests("redlock/internal/tests/crowd", "TestABurstIsServedAtTheRateOfTheNodes")),
	bug("many calls through a client of the caller's go in one part", "internal/transport Node.inParts", "calls[:min(part, len(calls))]", "calls", tests("redlock/internal/tests/crowd", "TestTheRateIsBackAfterAStall")),
	bug("a slow server loses its connections", "internal/transport lane.patience", "min(longer, maxPatience)", "0", tests("node", "TestASlowServerKeepsItsConnections")),
	bug("an attempt that is not sent keeps its place", "internal/engine Limit.Return", "l.flight--", "", core(4000, "a place returns")),
	bug("an attempt that is answered keeps its place", "internal/engine Limit.Landed", "l.flight--", "", core(400, "a place returns")),
	bug("a limit never grows", "internal/engine Limit.Landed", "min(max(want, l.most/2, leastLimit), 2*l.most, mostLimit)", "min(max(want, l.most/2, leastLimit), l.most)",
		tests("proof/coresim", "TestOverloadCostsTimeAlone/distant_nodes")),

	// Replaced nodes.
	bug("a client leaves a server that still answers", "redlock follower.leave", "transport.Of(f.old).Answers(ctx)", "false", tests("redlock", "TestAFileThatCannot")),
	bug("a client joins while others use the old server", "redlock follower.alike", "theirs != ours && theirs != f.ahead", "false", tests("redlock", "TestAReplacementWaits")),
	bug("a client joins before old votes have expired", "redlock follower.join", "err != nil || now.Sub(f.since) < options.Quarantine(&c.set)", "err != nil", tests("redlock", "TestAReplacementWaits")),
	bug("two clients one replacement apart wait for each other", "redlock follower.note", "f.ahead = f.client.listWith(i, n.String())", "", tests("redlock", "TestClientsOneReplacementApart")),

	// Readers, slots, latches, Redisson, elections.
	bug("a reader jumps a waiting writer", "scripts/share.lua", "  if blocked or not open then", "  if not open then", wire(400, "in ticket order")),
	bug("the release of one reader frees the lock", "scripts/release.lua", "    redis.call('hdel', KEYS[1], ARGV[1])\n    share", "    redis.call('del', KEYS[1])\n    share", wire(400, "nobody else's hold is touched")),
	bug("a dead holder keeps its slot", "scripts/slots.lua", "  for i = 1, #over do\n    if not give", "  for i = 1, 0 do\n    if not give", wire(2000, "somebody acquires")),
	bug("one node less than a quorum agrees on a latch", "internal/engine Look.agreed", "same >= k.latch.Need", "same >= max(k.latch.Need-1, 1)", wire(8000, "no latch is forgotten"), core(4000, "a latch is one set that grows", "a quorum has what is done")),
	bug("an id that is sent again counts again", "scripts/latch.lua", "redis.call('zadd', KEYS[2], 'nx', count + 1, ARGV[i])", "redis.call('zadd', KEYS[2], 'nx', count + 1, what == 'restore' and ARGV[i] or ARGV[i] .. string.match(ARGV[4], '^[^.]+'))", wire(400, "a quorum has what is done")),
	bug("Redisson's hold counts for nothing", "scripts/holds.lua", "    else\n      table.insert(held, all[i])\n", "    elseif string.find(all[i], '~', 1, true) then\n      table.insert(held, all[i])\n", wire(2000, "nobody else's hold is touched")),
	bug("a member that Java has again counts as free", "internal/engine Redisson.Handed", "taken = append(taken, i)", "_ = i", tests("proof/redisson", "TestJavaAndGoShareAMultiLock/every_node")),
	bug("a leader of a minority is sure", "election Election.best", "lasting >= need", "lasting >= need-1", tests("election", "TestAMinority")),
}

func TestPlantedBugsAreCaught(t *testing.T) { mutation.AreCaught(t, bugs) }
