package core

import (
	"time"
)

// unlock ends the hold and gives back at every cell. It also ends a hold that was lost: nothing of it may be left. If keep
// is positive, the cells that have granted keep the key for that long instead.
func (m *Machine) unlock(now Time, keep time.Duration) {
	m.endHold(now, keep, Keep)
}

// endHold is unlock. keeper is what the cells are asked for that keep the key.
func (m *Machine) endHold(now Time, keep time.Duration, keeper Do) {
	if m.phase != Holding && m.phase != Losing {
		return
	}
	m.phase, m.keep, m.kept, m.released = Releasing, keep > 0 && keeper == Keep, now.Mono+keep, Unanswered
	m.park = keeper == Park
	m.endRounds()
	contended := m.tallies().some(hasRefused)
	for i := range m.Cells {
		c := &m.Cells[i]
		c.vote, c.gone = Unanswered, false
		if m.awaits(c) || c.State == Foreign {
			c.vote = No
			continue
		}
		call := Call{Do: Release, Cell: int32(i), Attempt: m.attempt, Successor: m.successor}
		switch {
		case keep > 0 && c.State == Granted:
			call.Do, call.For = keeper, keep
		case m.park && c.State == Asked && !contended && m.attempt == 1: // most likely it has granted
			call.Do, call.For, c.bare = keeper, keep, true
		case c.State == Asked && !contended && m.attempt == 1: // most likely it has granted
			c.bare = true
		case c.State != Granted || c.stray:
			call.Do = ReleaseAndLeave
		}
		call.All = call.Do == ReleaseAndLeave
		m.call(call)
		if m.cfg.Source != nil && c.State != Granted { // it may be parked there since
			m.call(Call{Do: Release, Whose: Former, Cell: int32(i), Of: c.of, Attempt: m.attempt})
		}
	}
	m.changed++
}

// restartKeep gives the key that Unlock left for a while its time once more: a renewal may have overtaken the Keep, and
// would leave it for the whole TTL. While it is open whether the lock is kept, that waits. If it is not, only the cells keep the key
// that have said so.
func (m *Machine) restartKeep(now Time, cell int32) {
	again := Call{Do: Keep, Cell: cell, Attempt: m.attempt, Successor: m.successor, For: m.kept - now.Mono}
	switch {
	case again.For <= 0:
		again.Do, again.For = Release, 0
	case m.released == Yes, m.Cells[cell].vote == Yes:
	default:
		m.Cells[cell].renewed = true
		return
	}
	m.call(again)
}

// releaseReplied takes the answer to a release, or to a Keep. That the lock is not kept is decided with the last answer: a Keep that is yet
// to be sent could reach a node that comes back after the holder was told, and leave the key there beyond its TTL.
func (m *Machine) releaseReplied(now Time, call Call, r Reply) {
	if call.Whose != Own {
		return
	}
	c := &m.Cells[call.Cell]
	if c.pending > 0 { // what was sent before it is yet to be answered
		c.overtaken = true
	} else if call.Attempt == m.attempt && call.Successor == m.successor && c.State == Granted && r.Err == nil && !r.OK && !c.overtaken {
		c.overtaken = true
		m.call(m.releaseAgain(call))
	}
	if m.phase != Releasing || call.Attempt != m.attempt || call.Successor != m.successor || c.vote != Unanswered {
		return
	}
	c.vote = No
	if r.Err == nil {
		c.Err = nil
		kept := call.Do == Keep || call.Do == Park
		c.gone = !r.OK && (!kept || c.State == Granted)
		if m.keeps() == kept && (r.OK || !kept) {
			c.vote, c.counted = Yes, r.Token
		}
	}
	t := m.tallies()
	result := t.result(saidYes, maySayYes)
	missing := t.total[maySayYes] > t.total[saidYes]
	m.parked = m.parked || m.park && result == VoteWon && m.Remaining(now) > 0
	// A Detach waits for all nodes: who attaches, and unlocks, before a Park has arrived, would leave it there for its whole time.
	if result == VotePending || m.park && missing || result == VoteLost && (t.undecided > 0 || m.keeps() && missing) {
		return
	}
	m.phase, m.fx.Released = Over, true
	m.released = Vote(result)
	if m.park && !m.parked {
		m.unpark()
	}
	for i := range m.Cells {
		if m.Cells[i].renewed {
			m.restartKeep(now, int32(i))
		}
	}
}

// releaseAgain returns what is sent after a release, or a Keep, that has failed, or has not found what the cell granted. It may
// have run before the attempt, though its answer came later, because the node did not know the script of the attempt at first. Or a
// replica has taken over that has not heard of the last grant: the waiter may still be in the queue there, or get the lock from it.
// Before Unlock the waiter may have to stay in the queue. After UnlockAfter a Restore may have acquired the lock there again, so the
// call only leaves the queue.
func (m *Machine) releaseAgain(k Call) Call {
	switch {
	case m.phase < Releasing, k.Do == Return:
	case k.Do == Keep:
		k.Do, k.Successor, k.All, k.For = Leave, false, !m.successorHolds(), 0
	default:
		k.Do, k.All, k.For = ReleaseAndLeave, k.Successor || !m.successorHolds(), 0
	}
	return k
}

// Released returns what came of an Unlock: whether a quorum of every member has confirmed it, and whether somebody had
// taken the keys away before, and could have held the lock since.
func (m *Machine) Released() (confirmed, broken bool) {
	return m.released == Yes, m.tallies().holds(isGone)
}

// Confirmed returns how many members have confirmed the release.
func (m *Machine) Confirmed() int { return int(m.tallies().root[saidYes]) }

// successorHolds reports whether what the waiter's successors have got must stay.
func (m *Machine) successorHolds() bool {
	return m.successor && (m.phase == Agreeing || m.phase == Holding || m.phase == Losing || m.phase == Releasing || m.keep)
}

// cancel gives up a call that has not got the lock.
func (m *Machine) cancel() {
	if m.phase != Idle && m.phase < Holding {
		m.fail(Cancelled)
	}
}

// fail ends a call without the lock: everything that it has got is released, and the waiter leaves every queue.
func (m *Machine) fail(why Reason) {
	m.fx.Outcome, m.fx.Reason = Failed, why
	m.phase, m.successor = Over, false
	m.changed++
	for i := range m.Cells {
		if m.cfg.Source != nil {
			m.undoAttach(i, why)
			continue
		}
		c := &m.Cells[i]
		do := Leave
		switch {
		case m.awaits(c):
			continue
		case c.State == Granted, c.State == Asked, c.State == Unknown, c.pending > 0 && c.State != Foreign:
			do = ReleaseAndLeave
		case c.State == Left, c.isClear():
			continue
		}
		m.call(Call{Do: do, Cell: int32(i), Attempt: m.attempt, All: true})
	}
}

// awaits reports whether the release at a cell must wait for the answer to its attempt: after a Foreign answer, a copy may have the
// lock here, too. See releaseAwaited.
func (m *Machine) awaits(c *Cell) bool {
	c.awaited = c.State == Asked && m.tallies().some(isForeign)
	return c.awaited
}

// Retry returns the call to send again after k, a release or leave, and the number of confirmations it still needs. Pass the
// outcome of k to the machine first. A failed k needs one confirmation, or none at a cell without a key or entry. One more is
// needed if an earlier call may still run from an old connection.
//
// A waiter that goes on waiting finds out with its next attempt where it is queued; but what an attempt has got must not be
// in its way. If there is no next attempt, a Yield that runs late must leave no entry in a queue.
func (m *Machine) Retry(k Call, failed bool) (again Call, times int) {
	c := &m.Cells[k.Cell]
	if !k.Do.IsRelease() {
		return k, 0
	}
	if failed && !c.isClear() {
		times++
	}
	if c.unsure || failed && c.pending > 0 {
		times++
	}
	switch {
	case k.Whose != Own:
	case k.Do == Yield && m.phase >= Holding:
		k.Do, k.All = ReleaseAndLeave, !m.successorHolds()
	case k.Do == Yield:
		k.Do = Release
	case k.Do == Release, k.Do == Park, k.Do == Return:
		k = m.releaseAgain(k)
	}
	return k, times
}

// Granted returns how many members the attempt has won.
func (m *Machine) Granted() int { return int(m.tallies().root[hasWon]) }
