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

// wire and core are the proofs by the simulations.
func wire(seeds int) mutation.Proof { return mutation.Seeds("proof/simulation", seeds) }
func core(seeds int) mutation.Proof { return mutation.Seeds("proof/coresim", seeds) }

func bug(name, in, old, instead string, by ...mutation.Proof) mutation.Bug {
	return mutation.Bug{Name: name, In: in, Old: old, New: instead, By: by}
}

var tests = mutation.Tests

var bugs = []mutation.Bug{
	// Validity.
	bug("no allowance for drift", ". Drift.Validity", "subtract(left, d.share(ttl))", "left", wire(2000), core(20000)),
	bug("validity starts after the replies", "internal/core Machine.hold", "m.start = m.asked", "m.start = now", wire(400), core(4000)),
	bug("a handoff's validity starts when the waiter hears of it", "internal/core Machine.hold", "m.ttl = m.cfg.HandTTL", "m.start, m.ttl = now, m.cfg.HandTTL", wire(400), core(4000)),
	bug("a late renewal resurrects a lost hold", "internal/core Machine.checkDeadline", "m.Remaining(now) > 0", "m.Remaining(now) > -m.cfg.TTL", core(4000)),
	bug("only a failed renewal reveals a loss", "internal/core Machine.Wake", "earlier(m.Until()-m.suspended, m.renew)", "m.renew", wire(400), core(4000)),
	bug("elapsed time comes from the wall clock alone", "internal/quorum Client.clocks", "mono := now.Sub(c.base)", "mono := now.Round(0).Sub(c.base.Round(0))", wire(4000)),
	bug("a step of the wall clock counts as a suspend", "internal/quorum Client.clocks", "c.boot == nil", "true", wire(4000)),

	// Votes.
	bug("one vote fewer than a majority", "redlock Client.mutex", "core.Majority(set.Quorum, len(c.nodes))", "core.Majority(max(set.Quorum-1, 1), len(c.nodes))", wire(400)),
	bug("one member of a MultiLock is enough", "internal/core Every", "newGroup(len(members), len(members), 1)", "newGroup(len(members), 1, 1)", wire(400), core(4000)),
	bug("a restored key counts in the same renewal", "internal/core Machine.renewed", "vote := No", "vote := Yes", wire(400), core(4000)),
	bug("the highest token is taken without a raise", "internal/core Machine.agree", "m.tallies().holds(saidYes)", "m.tallies().holds(maySayYes)", wire(800), core(20000)),
	bug("a cell that grants late has no vote on the token", "internal/core Machine.join", "c.vote = m.vote(i)", "c.vote = No", tests("internal/core", "ARaiseThatFailsAtAMinority")),
	bug("the permits are counted at each node", "internal/core Machine.majoritySlot", "ok && slot != best", "ok && slot != best && best < 0", wire(2000)),
	bug("a TryLock gives up in a split vote", "internal/core Machine.isFinal", "!m.tries.undecided", "m.tries.undecided", wire(4000), core(20000)),
	bug("an attempt that a refused connection has decided had no quorum", "internal/core Machine.factsOf", "votes || asked && !c.failed", "votes", core(4000)),
	bug("an address moves on to a new server at once", "internal/transport servers.judge", `s.latest != "" || witness == ""`, "false", tests("internal/transport", "ANewServer")),
	bug("nobody notices that one address leads to two servers", "internal/transport servers.judge", "server != witness", "false", wire(400)),

	// Releases.
	bug("what is granted late is kept", "internal/core Machine.fail", "case c.State == Granted, c.State == Asked, c.State == Unknown, c.unanswered > 0 && c.State != Foreign: do = ReleaseAndLeave", "case c.State == Granted: do = ReleaseAndLeave", wire(400), core(4000)),
	bug("a straggler is left alone", "internal/core Machine.straggled", "c.leftover = c.leftover || lost", "_ = c; return", wire(400), core(4000)),
	bug("one confirmation of a release is enough", "internal/core Machine.Retry", "c.unsure", "false", core(8000)),
	bug("a release that failed is not sent again", "internal/core Do.IsRelease", "d == Release", "false", core(8000)),
	bug("a pending release is given up when its node stays away", "internal/quorum/engine Retries.Done", "outcomes[i] == NotServed", "outcomes[i] == NotServed && r.pause < MaxRetry", core(20000)),
	bug("a waiter's later attempt is recalled", "internal/wire Call.IsFirst", "strings.HasSuffix(c.args[0].text, \".1\")", "c.count > 0", wire(9000)),
	bug("an attempt for two locks is recalled by the release of one", "internal/transport lane.recall", "slices.EqualFunc(a.cmds, t.cmds, sameKey)", "slices.EqualFunc(a.cmds[:1], t.cmds[:1], sameKey)", tests("node", "TestAnUnsentAttempt")),
	bug("Unlock of an inner lease releases the lock", "internal/quorum call.endLease", "len(c.hold.leases) == 0", "true", wire(400)),
	bug("a release does not check the owner", "scripts/release.lua", "  if not held then\n    left = -1", "  if redis.call('del', KEYS[1]) == 0 then\n    left = -1", wire(400)),
	bug("a renewal resurrects a lost hold", "scripts/renew.lua", "if not held then\n  return 0\nend\n", "redis.call('hset', KEYS[1], ARGV[1], 1)\n", wire(400)),
	bug("what a copy of the process has is given back", "internal/core Machine.acquired", "r.Again && !c.restored", "false", tests("internal/quorum", "TestNothingIsGivenBack")),

	// Detached holds.
	bug("a process renews the hold that it has detached", "internal/core Machine.detach", "m.endHold(now, keep, Park)", "m.renewAll(now)", tests("redlock/internal/hold", "TestAHoldGoesOn")),
	bug("two processes have one owner for a hold", "internal/wire Caller.script", "return Attach(name, owner, c.Former, k.Token, cell, int(k.Of))", "return Renew(name, c.Former, t.TTL).At(cell)", core(4000)),
	bug("an attached hold ignores the TTL left at the nodes", "internal/core Machine.attachedTTL", "min(left[len(left)-m.cfg.Tree.Need()], m.cfg.TTL)", "m.cfg.TTL", core(4000)),
	bug("an Attach needs no quorum", "internal/core Machine.countAttach", "t := m.tallies()", "c := *m.cfg; c.Tree = Majority(1, len(m.Cells)); m.cfg = &c; m.changed++; t := m.tallies()", wire(1500), core(4000)),
	bug("an Attach takes over from whoever has the lock", "scripts/transfer.lua", "elseif late or not held or #held > 12 then", "elseif not held and limit and redis.call('exists', KEYS[1]) == 1 then\n  redis.call('del', KEYS[1])\n  held = '1'\nelseif late or not held or #held > 12 then", tests("scripts", "TestPass")),
	bug("an attached hold is passed back when it is unlocked", "internal/core Machine.endHold", "call := Call{Do: Release, Cell: int32(i), Attempt: m.attempt, Successor: m.successor}", "call := Call{Do: Release, Cell: int32(i), Attempt: m.attempt, Successor: m.successor}; if m.cfg.Source != nil { call.Do = Return }", wire(1500), core(8000)),
	bug("a text counts after somebody else has had the lock", "scripts/transfer.lua", "limit and last > limit", "false", tests("scripts", "TestPass")),
	bug("a Detach without a quorum leaves the hold parked", "internal/core Machine.releaseReplied", "m.park && !m.parked", "false", tests("redlock/internal/hold", "TestADetachWithout")),
	bug("a node is judged by the token limit of another cell", "internal/core Machine.attached", "r.Token <= slices.Max(m.cfg.Source.Counts)", "r.Token == 0", tests("redlock/internal/hold", "TestATokenIsLate")),
	bug("a Park without an answer is left alone", "internal/core Machine.releaseReplied", "call.Do == Park && r.Err != nil && !r.Unsent", "false", tests("redlock/internal/hold", "TestALatePark")),
	bug("a copy of a node has a vote of its own", "internal/core Machine.hasGrantedOf", "c.of == of && c.State == Granted", "false", tests("internal/core", "TestOneCell")),
	bug("an Attach that fails keeps what it has got", "internal/core Machine.undoAttach", "c.State == Granted || c.State == Unknown || c.unanswered > 0", "c == nil", core(8000)),

	// Fencing tokens.
	bug("the token does not rise", "scripts/acquire.lua", "token = math.max(last + 1, hint)", "token = math.max(last, hint)", wire(400)),
	bug("the token does not rise in a handoff", "scripts/handoff.lua", "redis.pcall('incrby', KEYS[4], 1)", "redis.pcall('incrby', KEYS[4], 0)", wire(400)),
	bug("a hint is believed, however wild", "scripts/acquire.lua", "math.abs(hint - now) > 3540000000 and", "false and", wire(2000)),

	// The queues.
	bug("a refresh counts as a wait that ran out", "internal/core Machine.tolerance", "doublings := m.expiredWaits", "m.expiredWaits++; doublings := m.expiredWaits", tests("redlock/internal/queue", "TestALongWait")),
	bug("a newcomer jumps the queue", "scripts/acquire.lua", "former or ARGV[4] == 'keep' or", "true or", wire(400)),
	bug("a release wakes nobody", "scripts/release.lua", "serveQueue(waiter, now, hands, led, lends) and", "false and", wire(400)),
	bug("a dead waiter at the head of the queue is never dropped", "scripts/queue.lua", "deadline(stored[1]) > now then", "deadline(stored[1]) > 0 then", wire(400)),
	bug("the holder stays in the queue", "internal/core Machine.hold", "m.leaveQueue(i)", "_ = i", wire(1200), core(4000)),
	bug("a handoff to a waiter that has left stays", "scripts/leaving.lua", "    if isSuccessor(held[i], waiter, attemptOf(last)) and", "    if false and", wire(2000)),
	bug("a handoff is believed without proof", "internal/quorum/engine Message.Event", "m.handoff.ProvenBy(secret)", "true", core(4000)),
	bug("a waiter that yields takes a new ticket", "internal/quorum call.entry", "ticket, unsure := c.ticket, c.unsure", "ticket, unsure := c.lock.client.ownTime(c.lock.client.time()), c.unsure", wire(400)),
	bug("a sure ticket stands behind an unsure one", "internal/quorum/engine TicketOf", "few = turn.prev.sent == 0", "", tests("internal/quorum/engine", "TicketsFollow")),
	bug("a ticket is taken as it is", "scripts/join.lua", "if math.abs(ticket - now * 1000) > 1000000 then", "if false then", wire(400)),
	bug("the local queue does not wait for the ticket of the caller before", "internal/quorum/engine LocalQueue.Admit", "t.sent == 0 && q.Slots <= 1", "false", core(40000)),

	// Servers and connections.
	bug("a server grants right after it starts", "scripts/guard.lua", "local left = quarantine - (uptime - 1) * 1000", "local left = -1", wire(4000)),
	bug("a promotion is not noticed", "scripts/guard.lua", "if string.find(former, '[^0]') then", "if false then", wire(6000)),
	bug("a pipeline whose replies were lost is sent again", "internal/transport lane.lost", "lost, l.underWay = l.underWay, nil", "for _, f := range slices.Backward(l.underWay) { for _, t := range slices.Backward(f.requests) { if !t.answered { l.queue.pushFront(t) } } }; l.underWay = nil", wire(400)),
	bug("the replies of a bundle are mixed up", "internal/transport lane.receiveBundle", "bundle := f.calls[f.alone:]", "bundle := slices.Clone(f.calls[f.alone:]); slices.Reverse(bundle)", wire(400)),
	bug("a bundle that may have run is sent again", "internal/transport lane.receiveBundle", "slices.ContainsFunc(refusals, func(word string) bool { return says(r.Err, word) })", "slices.Contains(refusals, refusals[0])", tests("node", "TestRepliesToABundle")),
	bug("the replies of a pipeline are mixed up", "internal/transport lane.receive", "f.calls[f.taken]", "f.calls[f.alone-1-f.taken]", wire(400)),

	// Readers, slots, latches, Redisson, elections.
	bug("a dead reader is kept alive by a living one", "scripts/holds.lua", "      if tonumber(held[i + 1]) >= now then", "      if true then", wire(8000)),
	bug("a reader jumps a waiting writer", "scripts/share.lua", "  if blocked or not open then", "  if not open then", wire(400)),
	bug("the release of one reader frees the lock", "scripts/release.lua", "    redis.call('hdel', KEYS[1], ARGV[1])\n    share", "    redis.call('del', KEYS[1])\n    share", wire(400)),
	bug("a dead holder keeps its slot", "scripts/slots.lua", "  for i = 1, #over do\n    if not give", "  for i = 1, 0 do\n    if not give", wire(2000)),
	bug("a restore takes a slot that somebody has", "scripts/slot_acquire.lua", "    if who then\n      if gone", "    if who == '' then\n      if gone", wire(8000)),
	bug("shares are handed to every MultiLock", "scripts/handoff.lua", "lends or not gathers(entry)", "true", tests("proof/scriptmodel", "TestModelAgrees")),
	bug("MultiLocks do not say that they wait for other locks", "internal/wire Caller.Script", "e.Several = t.Several", "e.Several = false", tests("proof/slotsim", "TestAShare|TestCallersWhoGiveUp")),
	bug("callers that meet at free slots take any", "internal/core Machine.chooseSlot", "m.oneSlot = m.isElsewhere()", "m.oneSlot = false", tests("proof/slotsim", "TestFreeSlots")),
	bug("a caller that finds its slot taken asks for it again", "internal/core Machine.name", "m.isSlot(cell, slot)", "false", tests("proof/slotsim", "TestFreeSlots")),
	bug("every caller is told the same free slot", "scripts/slot_acquire.lua", "vacant(k, other))", "vacant(k, 0))", tests("scripts", "TestANodeNames")),
	bug("one node less than a quorum agrees on a latch", "internal/quorum latchRound.agreed", "same >= r.latch.need", "same >= max(r.latch.need-1, 1)", wire(8000)),
	bug("an id that is sent again counts again", "scripts/latch.lua", "redis.call('zadd', KEYS[2], 'nx', count + 1, ARGV[i])", "redis.call('zadd', KEYS[2], 'nx', count + 1, what == 'restore' and ARGV[i] or ARGV[i] .. string.match(ARGV[4], '^[^.]+'))", wire(400)),
	bug("Redisson's hold counts for nothing", "scripts/holds.lua", "    else\n      table.insert(held, all[i])\n", "    elseif string.find(all[i], '~', 1, true) then\n      table.insert(held, all[i])\n", wire(2000)),
	bug("waiters do not listen to Redisson", "internal/quorum call.listen", "c.lock.client.peers.some.Load() > 0", "false", tests("proof/redisson", "TestReleaseByRedissonIsNoticed|TestOnlyThoseWhoMeet")),
	bug("a member that Java has again counts as free", "internal/quorum call.markTaken", "taken = append(taken, i)", "_ = i", tests("proof/redisson", "TestJavaAndGoShareAMultiLock/every_node")),
	bug("a leader is told late of the end of its lease", "election newTerm", "lease.Context()", "context.WithoutCancel(ctx)", tests("election", "TestLeadershipEnds|TestHostile")),
	bug("a leader of a minority is sure", "election Election.best", "lasting >= need", "lasting >= need-1", tests("election", "TestAMinority")),
}

func TestPlantedBugsAreCaught(t *testing.T) { mutation.AreCaught(t, bugs) }
