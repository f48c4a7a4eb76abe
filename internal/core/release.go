package core

import (
	"time"
)

// unlock ends a hold, also a lost one, and releases it at every cell: nothing of it may be left. If
// keep is positive, the cells that granted keep the key for that long instead.
func (m *Machine) unlock(now Time, keep time.Duration) {
	m.endHold(now, keep, Keep)
}

// endHold is unlock; keeper is the call to cells that keep the key.
func (m *Machine) endHold(now Time, keep time.Duration, keeper Do) {
	if m.phase != Holding && m.phase != Losing {
		return
	}
	m.become(Releasing)
	m.ending = ending{keep: keep > 0 && keeper == Keep, kept: now.Mono + keep, park: keeper == Park}
	// A Park that arrives after the attached hold was released would stay for its whole time. So a
	// Detach for long waits for all nodes.
	m.awaitsAll = m.park && keep >= 4*m.cfg.NodeTimeout
	m.endRounds()
	contended := m.tallies().some(hasRefused)
	for i := range m.Cells {
		c := &m.Cells[i]
		c.beginRelease()
		if m.awaits(c) {
			c.await()
			c.cast(No)
			continue
		}
		if c.Standing == Foreign {
			c.cast(No)
			continue
		}
		call := Call{Do: Release, Cell: int32(i), Attempt: m.attempt, Successor: m.successor}
		likely := c.Standing == Asked && !contended && m.attempt == 1 // most likely granted
		if likely {
			c.stayQueued()
		}
		switch {
		case keep > 0 && c.Standing == Granted, m.park && likely:
			call.Do, call.For = keeper, keep
		case likely:
		case c.Standing != Granted || c.leftover:
			call.Do = ReleaseAndLeave
		}
		call.All = call.Do == ReleaseAndLeave
		m.call(call)
		if m.cfg.Source != nil && c.Standing != Granted { // it may still be parked there
			m.releaseFormer(int32(i))
		}
	}
	m.changed++
}

// restartKeep repeats a Keep for the rest of its time: a renewal may have overtaken it, and would
// leave the key for the whole TTL. While it is open whether the lock is kept, it waits. If the lock
// is not kept, only the cells that have confirmed keep the key.
func (m *Machine) restartKeep(now Time, cell int32) {
	again := Call{Do: Keep, Cell: cell, Attempt: m.attempt, Successor: m.successor, For: m.kept - now.Mono}
	switch {
	case again.For <= 0:
		again.Do, again.For = Release, 0
	case m.released == Yes, m.Cells[cell].vote == Yes:
	default:
		m.Cells[cell].renewKept()
		return
	}
	m.call(again)
}

// releaseReplied handles the answer to a call that ends a hold. That a lock is not kept is decided
// with the last answer. Otherwise a Keep could still reach a node that comes back, after the holder
// was told, and leave the key there beyond its TTL.
func (m *Machine) releaseReplied(now Time, call Call, r Reply) {
	if call.Whose != Own {
		return
	}
	c := &m.Cells[call.Cell]
	if c.unanswered > 0 { // an earlier call has no answer yet
		c.overtake()
	} else if call.Attempt == m.attempt && call.Successor == m.successor && c.Standing == Granted && r.Err == nil && !r.OK && !c.early {
		c.overtake()
		m.call(m.releaseAgain(call))
	}
	if call.Do == Park && r.Err != nil && !r.Unsent { // it may run after the attached hold was released
		m.call(Call{Do: Release, Whose: Parked, Cell: call.Cell, Attempt: call.Attempt})
	}
	if m.phase != Releasing || call.Attempt != m.attempt || call.Successor != m.successor || c.vote != Unanswered {
		return
	}
	if r.Broken && !c.broken && (call.Do == Release || call.Do == ReleaseAndLeave || call.Do == Keep && m.kept > now.Mono) {
		c.disconnect() // such as behind a NAT that has forgotten all connections
		if call.Do == Keep {
			call.For = m.kept - now.Mono
		}
		m.call(call)
		return
	}
	c.released(r, call.Do == Keep || call.Do == Park, m.keeps())
	t := m.tallies()
	result := t.result(saidYes, maySayYes)
	missing := t.total()[maySayYes] > t.total()[saidYes]
	m.parked = m.parked || m.park && result == VoteWon && m.Remaining(now) > 0
	if result == VotePending || m.awaitsAll && missing || result == VoteLost && (t.undecided > 0 || m.keeps() && missing) {
		return
	}
	m.become(Over)
	m.fx.Released = true
	if m.released = No; result == VoteWon {
		m.released = Yes
	}
	if m.park && !m.parked {
		m.unpark()
	}
	for i := range m.Cells {
		if m.Cells[i].renewed {
			m.restartKeep(now, int32(i))
		}
	}
}

// releaseAgain returns the call to send after a release or Keep that failed, or did not find the
// grant. It may have run before the attempt, though its answer came later, because the node did not
// know the attempt's script at first. Or a replica without the grant has taken over: the waiter may
// still be queued there, and be handed the lock.
//
// Before Unlock the release stays as it is, because the waiter may have to stay queued. After a
// Keep the call only leaves the queue, because a Restore may have acquired the lock again.
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

// Released returns whether a quorum of every member has confirmed the Unlock. broken: so many cells
// had lost the key that another owner may have held the lock before.
func (m *Machine) Released() (confirmed, broken bool) {
	return m.released == Yes, m.tallies().holds(isGone)
}

// Confirmed returns the number of members that have confirmed the release.
func (m *Machine) Confirmed() int { return int(m.tallies().root[saidYes]) }

// successorHolds reports whether the holds of the waiter's successors must stay.
func (m *Machine) successorHolds() bool {
	return m.successor && (m.phase == Agreeing || m.phase == Holding || m.phase == Losing || m.phase == Releasing || m.keep)
}

// cancel ends a call that has not got the lock.
func (m *Machine) cancel() {
	if m.phase != Idle && m.phase < Holding {
		m.fail(Cancelled)
	}
}

// fail ends a call without the lock: it releases every grant, and leaves every queue.
func (m *Machine) fail(why Reason) {
	m.fx.Outcome, m.fx.Reason = Failed, why
	m.become(Over)
	m.successor = false
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
			c.await()
			continue
		case c.mayHold():
			do = ReleaseAndLeave
		case c.Standing == Left, c.isClear():
			continue
		}
		m.call(Call{Do: do, Cell: int32(i), Attempt: m.attempt, All: true})
	}
}

// awaits reports whether the release at a cell waits for the answer to its attempt: after a Foreign
// answer, a copy may have the lock here, too. See releaseAwaited.
func (m *Machine) awaits(c *Cell) bool {
	return c.Standing == Asked && m.tallies().some(isForeign)
}

// Retry returns the call to send again after k, a release or leave, and the number of confirmations
// it still needs. Pass the outcome of k to the machine first. A failed k needs one confirmation, or
// none at a cell without a key or entry. One more is needed if an earlier call may still run from
// an old connection.
//
// A waiter learns from its next attempt where it is queued, so a Yield becomes a Release: only its
// grant must not stay. If there is no next attempt, a late Yield must leave no entry in a queue.
func (m *Machine) Retry(k Call, failed bool) (again Call, times int) {
	c := &m.Cells[k.Cell]
	if k.Do == Keep && failed && m.promised > m.kept { // the key would stay for the longer TTL
		k.Do = Release
	}
	if !k.Do.IsRelease() {
		return k, 0
	}
	if failed && (!c.isClear() || k.Whose != Own) {
		times++
	}
	if c.unsure || failed && c.unanswered > 0 {
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

// Promised returns until when nodes may keep the key, by the monotonic clock, if that is longer than
// a TTL; else 0.
func (m *Machine) Promised() time.Duration { return m.promised }

// Granted returns the number of members that the attempt has won.
func (m *Machine) Granted() int { return int(m.tallies().root[hasWon]) }
