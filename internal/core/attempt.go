package core

import (
	"time"

	"github.com/quorumlock/quorumlock"
)

// ask begins an attempt: it asks every cell for the lock, for an owner of its own. The attempt also names a successor, an
// owner to whom a cell hands the lock when the waiter's turn comes. Either may win.
//
// This is the Redlock algorithm (redis.io, "Distributed Locks with Redis"), with the nodes asked at the same time, and
// with a fencing token that a quorum of them agrees on.
func (m *Machine) ask(now Time) {
	m.phase, m.attempt, m.successor = Asking, m.attempt+1, false
	m.asked = now
	m.giveUpAt, m.nextAttemptAt, m.handoffDeadline = 0, 0, 0
	m.refresh = m.refreshAfter()
	m.chooseSlot()
	for i := range m.Cells {
		c := &m.Cells[i]
		former := c.former
		if c.Handed > 0 {
			former = m.attempt - 1
		}
		m.Cells[i] = Cell{Position: c.Position, Err: c.Err, stray: c.stray, former: former, pending: c.pending + 1, reached: c.reached, unsure: c.unsure, of: int32(i)}
		call := Call{Do: Acquire, Cell: int32(i), Attempt: m.attempt}
		if s := m.cfg.Source; s != nil {
			call.Do, call.Of, call.Token = Attach, int32(i), s.Counts[i]
		}
		m.call(call)
	}
	m.ownRefused, m.nextLook = false, len(m.Cells)
	m.changed++
}

// acquired takes an answer to an attempt.
func (m *Machine) acquired(now Time, call Call, r Reply) {
	c := &m.Cells[call.Cell]
	c.pending--
	foreign := r.Again && !c.restored
	got := r.Err == nil && r.OK && !foreign || r.Err != nil && !r.Unsent && !r.Quarantined // the attempt has the lock there, or may have it
	if call.Attempt != m.attempt {
		if m.outdated(call, got, r.Err != nil); r.Err != nil && c.State == Asked {
			c.failed = true
			m.learnReason()
		}
		return
	}
	renewed := c.State == Granted // a renewal has said so
	if c.State == Asked {
		if m.note(now, c, r); r.Elsewhere {
			m.name(int(call.Cell), r.Slot)
		}
		c.apart = c.State == Granted && m.phase > Asking && c.slot != m.slotAt(int(call.Cell))
	}
	switch m.phase {
	case Asking:
		if c.State == Queued && m.giveUpAt == 0 {
			m.giveUpAt = now.Mono + m.tolerance()
		}
		m.count(now)
	case Agreeing, Holding, Losing:
		switch {
		case m.successor:
			if got {
				m.straggled(call, r.Err != nil)
			}
		case m.shared && c.State == Granted && r.OK: // the Downgrade was before it
			m.call(Call{Do: Renew, Cell: call.Cell, Attempt: m.attempt})
		case m.phase == Agreeing:
			m.join(now, int(call.Cell))
		case c.State == Granted && c.apart:
			m.move(int(call.Cell))
		case (c.State != Granted || !r.OK) && !c.isClear():
			m.call(Call{Do: Leave, Cell: call.Cell, Attempt: m.attempt, All: true})
		}
	case Yielding, Waiting:
		if got {
			c.State = Unknown // until the yield is answered
			m.yield(int(call.Cell))
		}
		m.learnReason()
		if m.phase == Waiting && m.reason.isHeld() && c.State == Queued && m.looksAgain() { // this refusal may tell when a quorum of the keys will have expired
			m.nextAttemptAt = min(m.nextAttemptAt, now.Mono+m.pause(now))
		}
		m.review(now)
	case Releasing, Over: // a release is on its way behind it, or neither has been sent
		if c.awaited {
			m.releaseAwaited(call, got, r.Err != nil)
			return
		}
		restored := c.State == Granted && !r.OK && !r.Unsent  // the key, but the waiter may be queued
		if c.bare && (c.Refused || c.Duplicate) || restored { // which does not take the waiter out of the queue
			m.call(Call{Do: Leave, Cell: call.Cell, Attempt: m.attempt, All: !m.successorHolds()})
		}
		if m.keep && renewed { // and the key is kept
			return
		}
		if r.Err != nil && got || c.overtaken && !r.Unsent && !foreign {
			m.straggled(call, true)
		}
	}
}

// releaseAwaited releases the certain or possible grant of a cell whose answer was awaited.
func (m *Machine) releaseAwaited(call Call, got, lost bool) {
	switch {
	case got:
		m.straggled(call, lost)
	case !m.Cells[call.Cell].isClear():
		m.call(Call{Do: Leave, Cell: call.Cell, Attempt: m.attempt, All: true})
	}
}

// outdated takes an answer to an attempt before the current one. If the current one was answered first, the two have
// overtaken each other: the waiter may be queued where it should not be.
func (m *Machine) outdated(call Call, got, lost bool) {
	c := &m.Cells[call.Cell]
	overtaken := c.State != Asked
	switch {
	case got:
		m.straggled(call, lost || overtaken)
	case overtaken:
		c.stray = true
		if m.phase >= Holding {
			m.call(Call{Do: Leave, Cell: call.Cell, Attempt: call.Attempt, All: !m.successorHolds()})
		}
	}
}

// straggled gives back what an attempt has got, or may have, when that is of no use any more. If its answer was lost, the
// calls may have overtaken each other: an attempt may run yet.
func (m *Machine) straggled(call Call, lost bool) {
	c := &m.Cells[call.Cell]
	c.stray = c.stray || lost
	switch {
	case m.phase == Asking, m.phase == Yielding, m.phase == Waiting, m.phase == Agreeing && !m.successor:
		// The current attempt has queued the waiter. A yield would do so once more, perhaps when the waiter has gone.
		m.call(Call{Do: Release, Cell: call.Cell, Attempt: call.Attempt})
	default:
		m.call(Call{Do: ReleaseAndLeave, Cell: call.Cell, Attempt: call.Attempt, All: !m.successorHolds()})
	}
}

// note records a cell's answer to the current attempt.
func (m *Machine) note(now Time, c *Cell, r Reply) {
	c.failed = r.Err != nil
	switch {
	case r.Quarantined, r.Unsent:
		c.State = Untouched
	case r.Err != nil:
		c.State, c.NotALock, c.stray = Unknown, r.NotALock, true
	case r.Again && !c.restored:
		// This attempt uses its owner alone, and sends its request once. So a proxy repeats requests, or a copy of this
		// process runs the same call. The copy's lock must not be released.
		c.State, c.Duplicate, c.Err = Foreign, true, ErrForeign
	case r.OK && r.Again, !r.OK && r.Ours: // the call has already reached this server at another address
		c.State, c.Duplicate, c.Err = Unknown, true, ErrDuplicate
	case r.OK:
		c.State, c.Won, c.Token, c.Err = Granted, true, r.Token, nil
		c.slot = r.Slot
	default:
		if r.Position >= m.lastPosition {
			m.lastPosition = r.Position
		} else if c.Position == m.lastPosition {
			m.lastPosition = -1
		}
		c.State, c.Refused, c.Refusal, c.Position, c.Err, m.refusedByOthers = Queued, true, r, r.Position, nil, m.refusedByOthers || !r.Ended
		if r.TTL > 0 {
			c.expires = now.Mono + r.TTL
		}
		if r.Elsewhere {
			c.State = Free
		}
		if own := m.cfg.Tries && !m.refusedByOthers; own != m.ownRefused {
			m.ownRefused = own
			m.changed++
		}
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
	m.majoritySlot(slotGranted)
	result := m.tallies().result(hasGranted, mayGrant)
	switch {
	case result == VoteWon:
		m.agree(now)
	case result == VoteLost && !m.isUnclear():
		m.abandonAttempt(now, m.refusal())
	case m.nextAttemptWins():
		m.abandonAttempt(now, m.refusal())
	// It was granted different slots, and perhaps its contenders were, too. They must not all wait for silent nodes. But what a dead
	// caller left also makes slots differ, and a TryLock has no time for many attempts: from its second on it waits.
	case m.isElsewhere() && m.tallies().holds(hasAnswered) && (!m.cfg.Tries || m.attempt == 1):
		m.limitWait(now)
	}
}

// together reports whether the cells of the attempt, those of its successor, and those that have called the waiter since
// they refused, would win the lock. Then the next attempt has it, and a node that is silent is not waited for.
func (m *Machine) nextAttemptWins() bool {
	t := m.tallies()
	return (t.some(hasHanded) || t.some(hasCalled)) && t.holds(comesNext)
}

// tolerance is how long an attempt that was refused somewhere, or was granted different slots, waits for the nodes that have not
// answered. Otherwise contenders that have some of the living nodes each would all wait for the silent ones. It is a few round trips,
// as these nodes took lately, and doubles with every attempt: in the end a node that has become slow gets its time. With a
// semaphore it doubles only with every fourth attempt: several in a row may be granted different slots though no node is slow.
func (m *Machine) tolerance() time.Duration {
	limit := m.cfg.NodeTimeout
	longest := grace
	if m.cfg.Tries { // a TryLock has only one attempt if nobody contends
		longest = limit / 24
	}
	for i := range m.Cells {
		if m.Cells[i].State == Asked {
			longest = max(longest, 3*m.trip(i))
		}
	}
	doublings := m.contestedAttempts
	if m.hasSlots() {
		doublings /= 4
	}
	m.contestedAttempts++
	return min(longest<<min(doublings, 10), limit)
}

// hurry limits how long an attempt waits once a quorum has answered and granted different slots. If an earlier attempt was refused
// and this one is not, contenders most likely have the other slots, and keep them until they give way. So the first few such attempts
// of a Lock wait for a few round trips to the nearest quorum only. Later attempts wait for slower nodes as well: a dead holder keeps its
// slots until the TTL is over, and then those nodes are needed.
func (m *Machine) limitWait(now Time) {
	const few = 4
	if m.giveUpAt == 0 {
		m.giveUpAt = now.Mono + m.tolerance()
	}
	short := now.Mono + 3*m.patience()
	if m.refusedByOthers && !m.cfg.Tries && short < m.giveUpAt && m.shortWaits < few && !m.tallies().some(keepsOut) {
		m.giveUpAt = short
		m.shortWaits++
	}
}

// refusal returns the reason of a failed or failing attempt, as far as the answers so far decide
// it.
//
//   - Held: a quorum of cells answered, and another caller is in the way.
//   - NoQuorum: too many cells failed for a quorum.
//   - HeldAndNoQuorum: one member of a MultiLock is held, and another has no quorum.
//   - HeldOrNone: the missing answers decide; or too few cells took the token, and nobody is in the
//     way.
func (m *Machine) refusal() Reason {
	t := m.tallies()
	few := !t.holds(mayVote)
	switch {
	case !t.holds(isLock):
		return NotALock
	case t.some(isContended) && t.holds(hasVoted):
		return Held
	case t.holds(isTaken):
		if few || m.reason == HeldAndNoQuorum && !t.holds(hasVoted) { // the other member's nodes have not answered since
			return HeldAndNoQuorum
		}
		return Held
	case few:
		return NoQuorum
	}
	return HeldOrNone
}

// mayBeBoth reports whether the missing answers may show that one member of a MultiLock is held and another has no quorum.
func (m *Machine) mayBeBoth() bool {
	t := m.tallies()
	return !t.holds(hasVoted) && t.holds(mayBeTaken)
}

// learn notes the reason of the abandoned attempt, once a later answer decides it.
func (m *Machine) learnReason() {
	if m.phase != Yielding && m.phase != Waiting || m.reason == TooLate {
		return
	}
	why := m.refusal()
	if why == m.reason || why == HeldOrNone {
		return
	}
	m.reason = why
	if why == NotALock {
		m.fail(why)
	} else if !m.cfg.Tries {
		m.fx.Waiting, m.fx.Reason = true, why
	}
}

// isUnclear reports whether a refused TryLock should wait for more nodes: the holder, or the existence of a quorum, is unknown.
func (m *Machine) isUnclear() bool {
	if !m.cfg.Tries {
		return false
	}
	if m.unanswered() == 0 {
		return false
	}
	why := m.refusal()
	if why == HeldOrNone || why != NotALock && m.mayBeBoth() {
		return true
	}
	if !m.looksAgain() {
		return true
	}
	undecided, _, _ := m.isUndecided()
	return undecided
}

// isUndecided reports whether an attempt of a TryLock was refused although it is not certain that somebody has the
// lock, or will have it: no single contender has enough of the nodes. A hold of this client that has ended does not
// count; its release may not have arrived everywhere.
//
// Whoever has one member of a MultiLock, or so many nodes that nobody else can win, may be another contender, which lacks what
// this one has. So such a refusal is final only if this contender has nothing and waits for no answer, or meets the same one
// again. Whoever has not even a whole member may be giving way: that one is met three times. It returns who was met, and whether
// anybody has a whole member, or, if this contender has nothing, may have one with the cells that are silent.
func (m *Machine) isUndecided() (is bool, met quorumlock.Owner, whole bool) {
	if m.isElsewhere() || m.isSplit() && m.attempt < maxSplits {
		return true, "", false
	}
	t := m.tallies()
	silent := !t.some(hasWon)
	whole = silent && t.holds(mayBeTheirs)
	all, index := m.contenders()
	for i := range m.Cells {
		c := &m.Cells[i]
		if !c.Refused || c.Refusal.Free || c.Refusal.Ended {
			continue
		}
		who := c.Refusal.holder()
		their := &all[index[who]]
		if !their.judged {
			their.judged = true
			m.mark(their.cells...)
			wins, part, blocks, may := t.holds(isMarked), t.holds(isPartMarked), t.holds(isBlockMarked), t.holds(mayBeTheirs)
			m.unmark(their.cells...)
			whole = whole || part || silent && may
			switch {
			case wins:
				return false, who, true
			case who == "", !part && !blocks:
			case who == m.lastHolder && (part || m.sameHolderCount > 1):
				return false, who, whole
			default:
				their.met = true
			}
		}
		if their.met {
			met = who
		}
	}
	grants := int(t.total[hasWon]) + m.unanswered() // or what may become one
	return t.some(hasRefused) && (grants > 0 || met == ""), met, whole
}

// contender is somebody who has cells that refused the attempt.
type contender struct {
	cells  []int32
	judged bool
	met    bool
}

// contenders returns everybody who has cells that refused the attempt, and who is which.
func (m *Machine) contenders() ([]contender, map[quorumlock.Owner]int) {
	var all []contender
	index := make(map[quorumlock.Owner]int)
	for i := range m.Cells {
		r := &m.Cells[i].Refusal
		if !m.Cells[i].Refused || r.Free {
			continue
		}
		n, known := index[r.holder()]
		if !known {
			n = len(all)
			all = append(all, contender{})
			index[r.holder()] = n
		}
		all[n].cells = append(all[n].cells, int32(i))
	}
	return all, index
}

// unanswered returns how many cells have yet to answer the attempt.
func (m *Machine) unanswered() int { return len(m.Cells) - int(m.tallies().total[hasAnswered]) }

// looksAgain reports whether it is time to look at all cells once more: after every answer if few are missing, and else when a
// sixteenth of them has come. So the looks of an attempt cost a few steps a cell.
func (m *Machine) looksAgain() bool {
	missing := m.unanswered()
	if missing > m.nextLook {
		return false
	}
	m.nextLook = missing - 1 - missing/16
	return true
}
