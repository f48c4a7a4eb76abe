package core

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

const (
	// refresh is the pause after which a waiter refreshes its entry in a queue. A waiter that
	// missed the messages of a release gets the lock that late. Behind nearPositions the pause
	// grows with the position: a long queue must not keep the nodes busy.
	refresh       = 600 * time.Millisecond
	nearPositions = 16
	maxRefresh    = 30 * time.Second

	// entryLife is the life of an entry, in refreshes: three may fail.
	entryLife = 10.0 / 3

	// spread delays waiters, by position, that ask when the holder's key should have expired.
	spread    = time.Millisecond
	maxSpread = 100 * time.Millisecond

	// fewCells is the most cells that a waiter looks at when one of them calls: see expectExpiry.
	fewCells = 64

	// grace and maxGrace bound the wait for missing votes after the first wake-up: see voteGrace.
	// Where free cells alone form a quorum, the wait is grace. grace is also the least tolerance.
	grace    = 3 * time.Millisecond
	maxGrace = 100 * time.Millisecond

	// Once free cells alone have caused attempts for readyFor, the wait is the time since then
	// divided by readyShare, from grace to maxGrace. If the holders lack different nodes, most
	// nodes have a free slot, but no slot is free at a quorum. A shorter readyFor would slow down
	// callers of as many free slots, and a longer wait would pass on a dead holder's slot late. A
	// handoff, a released slot, or a wait without a free quorum ends the growth.
	readyFor   = 2 * time.Second
	readyShare = 4

	// afterFailure is the average pause after an attempt without a quorum or with a late grant. It
	// doubles with each further attempt whose calls the nodes may still run, up to TTL/failureShare
	// and at most maxFailure. So callers of slow nodes do not keep each other from a timely grant.
	afterFailure = 100 * time.Millisecond
	failureShare = 10
	maxFailure   = time.Second

	// eagerWakeUps is how many consecutive attempts of a waiter may follow handoffs and calls
	// without a quorum after voteGrace. Then the wait doubles with each, up to maxDoublings times:
	// while a node that all of them need is silent, readers hand each other their shares at the
	// other nodes.
	//
	// It also bounds consecutive attempts that follow handoffs within grace of the one before. Then
	// the waiter pauses for grace, and for twice as long each further time, up to maxGrace: beside
	// the keys of a dead holder, a node may hand a yielded slot back to the waiter that yielded it.
	eagerWakeUps = 16
	maxDoublings = 5

	// eagerMoves is in how many attempts a waiter that finds its slot taken asks for another one at
	// once. Later it waits for grace.
	eagerMoves = 16
)

// ErrDuplicate marks a cell on a server that was already asked at another address, and ErrForeign
// one where a copy of the attempt has the lock under the same owner. Package client has their
// texts.
var ErrDuplicate, ErrForeign = errors.New("duplicate"), errors.New("foreign")

// abandonAttempt ends a failed attempt. Its grants are yielded, and the waiter is queued again with
// its ticket: after a split vote the lowest ticket is first at every node. The next attempt waits
// until the cells that granted have answered, so that the waiter knows where it is queued.
func (m *Machine) abandonAttempt(now Time, why Reason) {
	if why == HeldOrNone && m.cfg.Tries && m.reason.isHeld() && !slices.ContainsFunc(m.Cells, func(c Cell) bool { return c.failed }) {
		why = Held // lastTry cut the attempt short, and the one before was held
	}
	m.reason = why
	switch {
	case why == TooLate, why == NoQuorum && slices.ContainsFunc(m.Cells, func(c Cell) bool { return c.Standing == Unknown }):
		m.failures++
	case why != NoQuorum:
		m.failures = 0
	}
	m.undecide()
	m.become(Yielding)
	m.unconfirmedYields, m.giveUpAt = 0, 0
	if m.isFinal(now) {
		m.fail(why)
		return
	}
	for i := range m.Cells {
		switch m.Cells[i].Standing {
		case Granted:
			m.unconfirmedYields++
			m.yield(i)
		case Unknown:
			m.yield(i)
		}
	}
	if !m.cfg.Tries {
		m.fx.Listen = true
		m.fx.Waiting, m.fx.Reason = true, why
	}
	if m.unconfirmedYields == 0 {
		m.wait(now)
	}
}

// isFinal reports whether no other attempt can help.
func (m *Machine) isFinal(now Time) bool {
	return m.reason == WrongUse || m.cfg.Tries && (m.tries.over || !m.tries.undecided || !m.triesAgain(now))
}

func (m *Machine) yield(i int) {
	m.yields++
	m.call(Call{Do: Yield, Cell: int32(i), Attempt: m.attempt})
}

// yielded handles the answer to a Yield.
func (m *Machine) yielded(now Time, call Call, r Reply) {
	c := &m.Cells[call.Cell]
	// The shell sends a release. The next attempt shows where the waiter is queued.
	if r.Err != nil {
		c.litter()
	}
	if call.Attempt != m.attempt || m.phase != Yielding && m.phase != Waiting {
		return
	}
	m.yields--
	granted := c.Standing == Granted
	if c.yielded(r); r.Err == nil && r.First {
		m.name(int(call.Cell), r.Slot)
	}
	if m.learnReason(); m.phase != Yielding {
		m.expectExpiry(now, false)
		m.review(now)
		return
	}
	if granted {
		m.unconfirmedYields--
	}
	switch {
	case m.handedOver():
		m.inherit(now)
	case m.unconfirmedYields == 0:
		m.wait(now)
	}
}

// wait begins the wait for the next attempt.
func (m *Machine) wait(now Time) {
	if m.isFinal(now) {
		m.fail(m.reason)
		return
	}
	m.become(Waiting)
	if m.cfg.Tries {
		m.nextAttemptAt = now.Mono + betweenTries<<min(max(m.attempt-eagerTries, 0), maxTryDoublings)
		return
	}
	m.waitingSince = now.Mono
	m.nextAttemptAt = now.Mono + m.pause(now)
	m.lookAround(now)
}

// lookAround begins the next attempt, or takes the lock, once the messages of the nodes allow it.
func (m *Machine) lookAround(now Time) {
	if m.cfg.Tries {
		return
	}
	if m.handedOver() {
		m.inherit(now)
		return
	}
	t := m.tallies()
	called, handed, ready := t.some(hasCalled), t.some(hasHanded), t.holds(isWanted)
	comes := ready && (called || handed || m.isElsewhere() && m.attempt < eagerMoves)
	if m.handoffDeadline != 0 && (!comes || m.rushed > eagerWakeUps) {
		return
	}
	switch {
	case comes:
		if m.rushed++; !handed || now.Mono-m.waitingSince >= grace { // a call follows a release
			m.rushed = 1
		}
		if m.rushed <= eagerWakeUps {
			m.ask(now)
			return
		}
		m.handoffDeadline = now.Mono + min(grace<<min(m.rushed-eagerWakeUps-1, maxDoublings), maxGrace)
	// Handoffs without a quorum must be given up soon: another waiter may have the rest.
	case handed || called && t.holds(isPromised):
		if m.handoffWait == 0 { // many calls may restart the wait
			m.handoffWait = min(m.voteGrace()<<min(max(m.wokenInVain-eagerWakeUps, 0), maxDoublings), refresh)
		}
		m.handoffDeadline = now.Mono + m.handoffWait
	// Free cells alone form a quorum: leftovers of the last attempt go first, see readyFor. After a
	// late grant, the pause of afterFailure counts instead.
	case ready && m.reason != TooLate:
		if m.readySince == 0 {
			m.readySince = now.Mono
		}
		m.handoffDeadline = now.Mono + min(max((now.Mono-m.readySince-readyFor)/readyShare, grace), maxGrace)
	}
}

// voteGrace returns the time that a waiter waits for missing votes after the first wake-up. It is a
// round trip to the nearest quorum, from grace to maxGrace. The messages of a releaser that is no
// further away have arrived by then. If no quorum has ever answered, the longest known round trip
// counts. Where a client takes the cells one after another, it is three round trips.
func (m *Machine) voteGrace() time.Duration {
	trips := time.Duration(1)
	if m.takenInOrder {
		trips = 3
	}
	longest, _ := m.earliest(func(i int) (time.Duration, bool) {
		trip := m.trip(i)
		return trips * trip, trip > 0 // 0: no round trip has ever succeeded
	})
	return min(max(longest, grace), maxGrace)
}

// earliest returns when the cells that come at given moments form a quorum, or the last of the
// moments, and whether they do.
func (m *Machine) earliest(at func(cell int) (time.Duration, bool)) (moment time.Duration, wins bool) {
	type coming struct {
		at   time.Duration
		cell int32
	}
	var few [16]coming
	all := few[:0]
	for i := range m.Cells {
		if d, ok := at(i); ok {
			all = append(all, coming{d, int32(i)})
		}
	}
	slices.SortFunc(all, func(a, b coming) int { return cmp.Compare(a.at, b.at) })
	t := m.tallies()
	n := 0
	for n < len(all) && !wins {
		m.mark(all[n].cell)
		moment, wins = all[n].at, t.holds(isMarked)
		n++
	}
	for _, c := range all[:n] {
		m.unmark(c.cell)
	}
	return moment, wins
}

// next notes that the waiter may soon be the first in a queue. It refreshes as often as the first.
func (m *Machine) next(now Time) {
	m.refreshOften = true
	m.refreshSoon(now)
}

// summon notes a call of a cell. The waiter counts as dead there if it does not come soon, though
// it may wait for others.
func (m *Machine) summon(now Time, c *Cell) {
	c.summon()
	m.refreshSoon(now)
}

// refreshSoon makes a wait no longer than that of the first in a queue.
func (m *Machine) refreshSoon(now Time) {
	if m.phase == Waiting {
		m.nextAttemptAt = min(m.nextAttemptAt, max(now.Mono, m.waitingSince+refresh))
	}
}

// Life returns how long the entries of the waiter live without a refresh.
func (m *Machine) Life() time.Duration { return time.Duration(entryLife * float64(m.refresh)) }

// refreshAfter returns how long after the last attempt its entries need a refresh, by position.
func (m *Machine) refreshAfter() time.Duration {
	furthest := 0
	for i := range m.Cells {
		furthest = max(furthest, m.Cells[i].Position)
	}
	if furthest <= nearPositions || m.refreshOften || m.tallies().some(isSummoned) {
		return refresh
	}
	return min(refresh*time.Duration(furthest)/nearPositions, maxRefresh)
}

// pause returns the longest wait: until the entries need a refresh, or the holder's keys should
// have expired. It is shorter while there is no quorum to ask.
func (m *Machine) pause(now Time) time.Duration {
	if m.reason == NoQuorum || m.reason == TooLate {
		longest := max(min(m.cfg.TTL/failureShare, maxFailure), afterFailure)
		return m.jitter(min(afterFailure<<min(max(m.failures-1, 0), 4), longest))
	}
	pause := min(m.refreshAfter(), m.refresh)
	if expiry, furthest := m.expiry(); expiry > 0 {
		pause = min(pause, max(expiry-now.Mono, 0)+spread+min(time.Duration(furthest)*spread, maxSpread))
	}
	return pause
}

// expectExpiry makes the next attempt earlier if an answer during the wait shows when a quorum of
// the keys expires. If the cells are few, a call may show it, too: a Redisson client may have had a
// cell that was free for a moment. That cell calls, and the others have known moments.
func (m *Machine) expectExpiry(now Time, call bool) {
	if m.phase == Waiting && m.reason.isHeld() && (call && len(m.Cells) <= fewCells || !call && m.looksAgain()) {
		m.nextAttemptAt = min(m.nextAttemptAt, now.Mono+m.pause(now))
	}
}

// expiry returns when enough keys for a quorum should have expired, 0 if unknown, and the furthest
// position in the queues.
func (m *Machine) expiry() (at time.Duration, furthest int) {
	for i := range m.Cells {
		if c := &m.Cells[i]; c.Standing == Queued {
			furthest = max(furthest, c.Position)
		}
	}
	if !m.tallies().holds(willExpire) {
		return 0, furthest
	}
	at, _ = m.earliest(func(i int) (time.Duration, bool) {
		c := &m.Cells[i]
		if c.isOpen() {
			return 0, true
		}
		return c.expires, c.Standing == Queued && c.expires > 0
	})
	return at, furthest
}

// handed notes a handoff to a successor. It counts if the attempt is the last; the next attempt
// takes over earlier ones. While the last attempt's successor holds, earlier handoffs are released.
// If the call is over, or its own owner holds, leaving the queues has released them.
func (m *Machine) handed(now Time, cell int, attempt int32, token uint64, slot int32) {
	if m.phase == Idle || m.cfg.Tries {
		return
	}
	c := &m.Cells[cell]
	m.readySince = 0
	if m.phase >= Holding {
		switch {
		case !m.successor:
		case attempt < m.attempt:
			m.call(Call{Do: Release, Cell: int32(cell), Attempt: attempt, Successor: true})
		// It was queued, and has handed over: the entry is gone, and the cell is part of the hold.
		case attempt == m.attempt && m.phase == Holding && c.Standing == Queued && slot == m.slotAt(cell):
			c.confirm()
		}
		return
	}
	if c.Standing == Spared {
		m.call(Call{Do: Release, Cell: int32(cell), Attempt: attempt, Successor: true})
		return
	}
	switch {
	case attempt < m.attempt:
		c.expect(attempt)
	case attempt == m.attempt:
		again := c.HandedOver()
		c.handOver(token, slot)
		if m.successor {
			apart := slot != m.slotAt(cell)
			c.compare(apart, apart)
			if !again {
				m.join(now, cell)
			}
		}
	}
	m.review(now)
}

// handedOver reports whether a quorum has handed the lock to the last attempt's successor. During
// an attempt it compares the granted slots, too.
func (m *Machine) handedOver() bool {
	some := m.tallies().some(hasHanded)
	switch {
	case m.phase != Asking && some:
		m.compareSlots(slotHanded)
	case some:
		m.compareSlots(slotHanded, slotGranted)
	case m.phase == Asking:
		m.compareSlots(slotGranted)
	}
	if !some || !m.tallies().holds(hasInherited) {
		return false
	}
	m.compareSlots(slotHanded)
	return true
}

// inherit makes the last attempt's successor the holder. This is as safe as an attempt: the owner
// is used once, the validity counts from before any node knew it, and a quorum agrees on the token.
func (m *Machine) inherit(now Time) {
	// The renewal might come too late.
	if m.cfg.Drift.Validity(m.cfg.HandTTL, now.Since(m.asked)) < m.cfg.NodeTimeout {
		switch {
		case m.phase == Waiting:
			m.ask(now)
		case m.phase == Asking:
			m.abandonAttempt(now, Held)
		case m.phase == Yielding && m.unconfirmedYields == 0:
			m.wait(now)
		}
		return
	}
	m.successor = true
	m.agree(now)
}
