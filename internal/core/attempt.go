package core

import "time"

// ask begins an attempt: it asks each cell for the lock, for an owner of its own. The call also
// names a successor, to which a cell hands the lock in the waiter's turn: see Caller.Script in
// package wire. Either of these two owners may win; what the other has is released.
//
// This is the Redlock algorithm (redis.io, "Distributed Locks with Redis"), with parallel requests
// and a fencing token that a quorum agrees on.
func (m *Machine) ask(now Time) {
	if !m.tallies().holds(isWanted) {
		m.readySince = 0
	}
	m.become(Asking)
	m.trial = trial{attempt: m.attempt + 1, asked: now, nextLook: len(m.Cells), refresh: m.refreshAfter()}
	m.chooseSlot()
	m.spares = m.noteLacking()
	for i := range m.Cells {
		if m.spares && !m.Cells[i].lacking {
			m.spare(i)
		} else {
			m.askCell(i)
		}
	}
	m.tries.ownRefused = false
	m.changed++
}

// askCell asks a cell for the lock.
func (m *Machine) askCell(i int) {
	m.Cells[i].begin(i, m.attempt-1)
	call := Call{Do: Acquire, Cell: int32(i), Attempt: m.attempt}
	if s := m.cfg.Source; s != nil {
		call.Do, call.Of, call.Token = Attach, int32(i), s.Counts[i]
	}
	m.call(call)
}

// acquired handles an answer to an attempt.
func (m *Machine) acquired(now Time, call Call, r Reply) {
	c := &m.Cells[call.Cell]
	foreign := r.Again && !c.restored
	// The attempt has the lock there, or may have it.
	got := r.Err == nil && r.OK && !foreign || r.Err != nil && !r.Unsent && !r.Quarantined
	if call.Attempt != m.attempt {
		if m.outdated(call, got, r.Err != nil); r.Err != nil && c.Standing == Asked {
			c.miss()
			m.learnReason()
		}
		return
	}
	renewed := c.Standing == Granted // a renewal has shown it
	if c.Standing == Asked {
		if m.note(now, c, r); r.Elsewhere {
			m.name(int(call.Cell), r.Slot)
		}
		if !m.successor { // else the slot that was handed over decides
			c.compare(c.Standing == Granted && m.phase > Asking && c.slot != m.slotAt(int(call.Cell)), c.handed.apart)
		}
	}
	switch m.phase {
	case Asking:
		if c.Standing == Queued && m.giveUpAt == 0 {
			m.giveUpAt = now.Mono + m.tolerance()
		}
		m.count(now)
	case Agreeing, Holding, Losing:
		switch {
		case m.successor:
			if got {
				m.straggled(call, r.Err != nil)
			}
		case m.shared && c.Standing == Granted && r.OK: // the Downgrade came before the grant
			m.call(Call{Do: Renew, Cell: call.Cell, Attempt: m.attempt})
		case m.phase == Agreeing:
			m.join(now, int(call.Cell))
		case c.Standing == Granted && c.apart:
			m.move(int(call.Cell))
		// The waiter is queued, or may be. After a lost answer there may be a grant as well, which
		// stays: a renewal may confirm it, and Unlock releases it.
		case (c.Standing != Granted || !r.OK) && !c.isClear():
			m.call(Call{Do: Leave, Cell: call.Cell, Attempt: m.attempt, All: true})
		}
	case Yielding, Waiting:
		if got {
			c.doubt() // until the Yield is answered
			m.yield(int(call.Cell))
		}
		m.learnReason()
		if c.Standing == Queued {
			m.expectExpiry(now, false)
		}
		m.review(now)
	case Releasing, Over: // a release was sent behind it, or neither was sent
		if c.awaits {
			m.releaseAwaited(call, got, r.Err != nil)
			return
		}
		restored := c.Standing == Granted && !r.OK && !r.Unsent            // has the key; may queue the waiter
		if c.mayStayQueued && (c.Refusal != nil || c.copied) || restored { // the release left the queue as it is
			m.call(Call{Do: Leave, Cell: call.Cell, Attempt: m.attempt, All: !m.successorHolds()})
		}
		if m.keep && renewed { // the cell keeps the key
			return
		}
		if r.Err != nil && got || c.early && !r.Unsent && !foreign {
			m.straggled(call, true)
		}
	}
}

// releaseAwaited releases the certain or possible grant of a cell, after its awaited answer.
func (m *Machine) releaseAwaited(call Call, got, lost bool) {
	switch {
	case got:
		m.straggled(call, lost)
	case !m.Cells[call.Cell].isClear():
		m.call(Call{Do: Leave, Cell: call.Cell, Attempt: m.attempt, All: true})
	}
}

// outdated handles an answer to an earlier attempt. If the current attempt was answered first, the
// order is lost: the earlier one may have queued the waiter once more.
func (m *Machine) outdated(call Call, got, lost bool) {
	c := &m.Cells[call.Cell]
	overtaken := c.Standing != Asked
	switch {
	case got:
		m.straggled(call, lost || overtaken)
	case overtaken:
		c.litter()
		if m.phase >= Holding {
			m.call(Call{Do: Leave, Cell: call.Cell, Attempt: call.Attempt, All: !m.successorHolds()})
		}
	}
}

// straggled releases a late grant, certain or possible, that is of no use. After a lost answer the
// attempt may still run.
func (m *Machine) straggled(call Call, lost bool) {
	if lost {
		m.Cells[call.Cell].litter()
	}
	switch {
	case m.phase == Asking, m.phase == Yielding, m.phase == Waiting, m.phase == Agreeing && !m.successor:
		// The current attempt has queued the waiter. A Yield may queue it again after it has left.
		m.call(Call{Do: Release, Cell: call.Cell, Attempt: call.Attempt})
	default:
		m.call(Call{Do: ReleaseAndLeave, Cell: call.Cell, Attempt: call.Attempt, All: !m.successorHolds()})
	}
}

// note records a cell's answer to the current attempt.
func (m *Machine) note(now Time, c *Cell, r Reply) {
	if c.acquired(now, r); c.Refusal == nil {
		return
	}
	m.refusedByOthers = m.refusedByOthers || !r.Ended
	if own := m.cfg.Tries && !m.refusedByOthers; own != m.tries.ownRefused {
		m.tries.ownRefused = own
		m.changed++
	}
}

// count decides the attempt as soon as its votes do.
func (m *Machine) count(now Time) {
	if m.cfg.Source != nil {
		m.countAttach(now)
		return
	}
	if m.handedOver() {
		m.inherit(now)
		return
	}
	m.askSpared(now)
	t := m.tallies()
	result := t.result(hasGranted, mayGrant)
	switch {
	case result == VoteWon:
		m.agree(now)
	case result == VoteLost && !m.isUnclear() && !m.countsOn(now):
		m.abandonAttempt(now, m.refusal())
	case nextAttemptWins(t):
		m.abandonAttempt(now, m.refusal())
	// Its cells granted different slots, perhaps to its contenders as well. They must not all wait
	// for silent nodes. But leftovers of a dead caller also make slots differ, and a TryLock has
	// few attempts: from its second one on it waits.
	case t.some(isElsewhere) && t.holds(hasAnswered) && (!m.cfg.Tries || m.attempt == 1):
		m.limitWait(now)
	}
}

// countsOn reports whether an attempt without a quorum waits a little for the missing answers, so
// that its error counts the cells that granted. Nodes that refuse connections fail before others
// can answer.
func (m *Machine) countsOn(now Time) bool {
	if m.unanswered() == 0 || !m.refusal().lacksQuorum() {
		return false
	}
	if m.giveUpAt == 0 {
		m.giveUpAt = now.Mono + m.someTrips()
	}
	m.tries.over = true
	return true
}

// nextAttemptWins reports whether the cells that granted, handed over or called form a quorum. The
// next attempt most likely wins them all, so this one does not wait for silent nodes.
func nextAttemptWins(t *tally) bool {
	return (t.some(hasHanded) || t.some(hasCalled)) && t.holds(comesNext)
}

// tolerance returns how long an attempt waits for missing answers after a refusal, different slots,
// or a lack of votes for the token. Contenders with some of the living nodes each must not all wait
// for the silent ones. It is someTrips, and doubles each time it runs out, up to a NodeTimeout, so a
// node that has become slow is heard in the end. With semaphores it doubles every fourth time:
// slots may differ in several attempts though no node is slow.
func (m *Machine) tolerance() time.Duration {
	doublings := m.expiredWaits
	if m.hasSlots() {
		doublings /= 4
	}
	return min(m.someTrips()<<min(doublings, 10), m.cfg.NodeTimeout)
}

// someTrips is three round trips to the slowest missing node, up to a NodeTimeout.
func (m *Machine) someTrips() time.Duration {
	limit := m.cfg.NodeTimeout
	longest := grace
	if m.cfg.Tries { // without contention a TryLock has one attempt
		longest = limit / 24
	}
	for i := range m.Cells {
		if m.Cells[i].Standing == Asked {
			longest = max(longest, 3*m.trip(i))
		}
	}
	return min(longest, limit)
}

// limitWait limits the wait of an attempt that a quorum has answered with different slots. If only
// an earlier attempt was refused, contenders most likely have the other slots until they yield. So
// the first few such attempts of a Lock wait for three round trips to the nearest quorum. Later
// ones wait for slower nodes, too: they are needed if a dead holder keeps slots until its TTL.
func (m *Machine) limitWait(now Time) {
	const few = 4
	if m.giveUpAt == 0 {
		m.giveUpAt = now.Mono + m.tolerance()
	}
	if m.limited || !m.refusedByOthers || m.cfg.Tries || m.shortWaits == few || m.tallies().some(keepsOut) {
		return
	}
	m.limited = true
	if short := now.Mono + 3*m.voteGrace(); short < m.giveUpAt {
		m.giveUpAt = short
		m.shortWaits++
	}
}

// refusal returns the reason of a failed or failing attempt, as far as the answers decide it.
//
//   - Held: a quorum of cells answered, and another caller is in the way.
//   - NoQuorum: too many cells failed for a quorum.
//   - HeldAndNoQuorum: one member of a MultiLock is held, and another has no quorum.
//   - HeldOrNone: undecided until more answers arrive, or granted without a token (see disagree).
func (m *Machine) refusal() Reason {
	t := m.tallies()
	few := !t.holds(mayVote)
	switch {
	case !t.holds(isLock):
		return WrongUse
	case t.some(isContended) && t.holds(hasVoted):
		return Held
	case t.holds(isTaken):
		// Since then the nodes of the other member have not answered.
		if few || m.reason == HeldAndNoQuorum && !t.holds(hasVoted) {
			return HeldAndNoQuorum
		}
		return Held
	case few:
		return NoQuorum
	}
	return HeldOrNone
}

// mayBeBoth reports whether missing answers may show that one member of a MultiLock is held, and
// another has no quorum.
func (m *Machine) mayBeBoth() bool {
	t := m.tallies()
	return !t.holds(hasVoted) && t.holds(mayBeTaken)
}

// learnReason notes the reason of the abandoned attempt, once late answers decide it.
func (m *Machine) learnReason() {
	if m.phase != Yielding && m.phase != Waiting || m.reason == TooLate {
		return
	}
	why := m.refusal()
	if why == m.reason || why == HeldOrNone {
		return
	}
	m.reason = why
	if why == WrongUse {
		m.fail(why)
	} else if !m.cfg.Tries {
		m.fx.Waiting, m.fx.Reason = true, why
	}
}

// unanswered returns how many cells have not answered the attempt.
func (m *Machine) unanswered() int { return len(m.Cells) - int(m.tallies().total()[hasAnswered]) }

// looksAgain reports whether it is time for another look at all cells: after each answer while few
// are missing, else after a sixteenth of them. So the looks of an attempt cost a few steps a cell.
func (m *Machine) looksAgain() bool {
	missing := m.unanswered() + m.yields
	if missing > m.nextLook {
		return false
	}
	m.nextLook = missing - 1 - missing/16
	return true
}
