package core

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
)

const (
	// refresh is how often a waiter refreshes its entry in the queue. Behind nearPositions it does so less often, in
	// proportion: a long queue must not keep the nodes busy.
	refresh       = 600 * time.Millisecond
	nearPositions = 16
	maxRefresh    = 30 * time.Second

	// entryLife is how many refreshes may fail before an entry is lost.
	entryLife = 10.0 / 3

	// spread is how much later than the waiter before it a waiter looks when the holder's key should have expired.
	spread    = time.Millisecond
	maxSpread = 100 * time.Millisecond

	// grace and maxGrace bound how long a waiter waits for the missing votes after the first wake-up: see patience. Where free cells
	// alone make a quorum, it waits for grace.
	grace    = 3 * time.Millisecond
	maxGrace = 100 * time.Millisecond

	// afterFailure is the average pause while there is no quorum to ask, and after a grant that came too late.
	afterFailure = 100 * time.Millisecond

	// betweenTries is how long a TryLock waits for the others to give up what they have. After eagerTries attempts the pause
	// doubles with every attempt, up to maxDoublings times. By then it is seldom a contender: most likely a node is down.
	betweenTries = time.Millisecond
	eagerTries   = 4
	maxDoublings = 3

	// eagerMoves is in how many attempts a waiter that finds a slot taken asks for another one at once. Later ones wait for grace.
	eagerMoves = 16

	// maxTries is after how many attempts a TryLock ends that has taken longer than a NodeTimeout. To nodes that are far away, few
	// attempts fit into one, and whoever gives up before the others have given way leaves the lock to nobody.
	maxTries = 8
)

// ErrDuplicate is what a cell says that was asked at another address already.
var ErrDuplicate = errors.New("the lock was acquired here a moment ago: is this the same server as another node?")

// ErrForeign is the error of a cell where a copy of the attempt has the lock under the same owner.
var ErrForeign = errors.New("the lock was acquired here under the same owner before: is a proxy sending commands twice, or was this process restored twice from one image?")

// abandonAttempt ends an attempt that has failed. What it has got goes back, and the waiter is queued again with its ticket: after
// a split vote every node has the lowest ticket first. The next attempt waits until the cells that granted have the lock
// back, so that the waiter knows where it is queued.
func (m *Machine) abandonAttempt(now Time, why Reason) {
	if why == HeldOrNone && m.cfg.Tries && m.reason.isHeld() && !slices.ContainsFunc(m.Cells, func(c Cell) bool { return c.failed }) {
		why = Held // lastTry has cut this attempt short, and somebody else was in the way of the one before
	}
	m.reason = why
	m.undecide()
	m.phase, m.unconfirmedYields = Yielding, 0
	m.giveUpAt = 0
	if m.isFinal(now) {
		m.fail(why)
		return
	}
	for i := range m.Cells {
		switch m.Cells[i].State {
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
	return m.reason == NotALock || m.cfg.Tries && (!m.undecided || !m.triesAgain(now))
}

// triesAgain reports whether an undecided TryLock may make another attempt: as many as fit into a NodeTimeout, and then up to
// maxTries of them until lastTry.
func (m *Machine) triesAgain(now Time) bool {
	spent := now.Since(m.began)
	return spent <= m.cfg.NodeTimeout || m.attempt < maxTries && spent < 2*m.cfg.NodeTimeout
}

// lastTry is when an attempt of a TryLock ends whatever it lacks, so that its token, which may take a NodeTimeout to agree on, is
// known within three. It is 0 for a Lock, and for the first attempt, which ends within one anyway: most calls need no timer.
func (m *Machine) lastTry() time.Duration {
	if !m.cfg.Tries || m.attempt == 1 {
		return 0
	}
	return m.began.Mono + 2*m.cfg.NodeTimeout
}

// undecide looks, for a TryLock, whether another attempt may help, before the answers are forgotten.
func (m *Machine) undecide() {
	if !m.cfg.Tries {
		return
	}
	var met quorumlock.Owner
	var whole bool
	m.undecided, met, whole = m.isUndecided()
	m.undecided = m.undecided || m.phase == Agreeing && m.reason != TooLate // a quorum granted, but did not take the token
	if met != m.lastHolder {
		m.sameHolderCount = 0
	}
	m.lastHolder, m.contends = met, !whole
	m.sameHolderCount++
}

func (m *Machine) yield(i int) {
	m.Cells[i].pending++
	m.call(Call{Do: Yield, Cell: int32(i), Attempt: m.attempt})
}

// yielded takes the answer to a Yield.
func (m *Machine) yielded(now Time, call Call, r Reply) {
	c := &m.Cells[call.Cell]
	c.pending--
	if r.Err != nil { // the shell sends a release again; the next attempt finds out where it is queued
		c.stray = true
	}
	if call.Attempt != m.attempt || m.phase != Yielding && m.phase != Waiting {
		return
	}
	granted := c.State == Granted
	switch {
	case r.Err != nil:
		c.State, c.failed = Unknown, true
	case r.First:
		c.State = Free
		m.name(int(call.Cell), r.Slot)
	default:
		c.State = Queued
	}
	if m.learnReason(); m.phase != Yielding {
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

// wait waits for the time of the next attempt.
func (m *Machine) wait(now Time) {
	if m.isFinal(now) {
		m.fail(m.reason)
		return
	}
	if m.cfg.Tries {
		m.phase, m.nextAttemptAt = Waiting, now.Mono+betweenTries<<min(max(m.attempt-eagerTries, 0), maxDoublings)
		return
	}
	m.phase, m.waitingSince = Waiting, now.Mono
	m.nextAttemptAt = now.Mono + m.pause(now)
	m.lookAround(now)
}

// look begins the next attempt, or takes the lock, if the messages of the nodes say that it is time.
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
	if ready && (called || handed || m.isElsewhere() && m.attempt < eagerMoves) {
		m.ask(now)
		return
	}
	if m.handoffDeadline != 0 {
		return
	}
	switch {
	case handed || called && t.holds(isPromised): // handoffs that make no quorum must not be kept: somebody else may have the rest
		m.handoffDeadline = now.Mono + m.patience()
	case ready: // free cells alone make a quorum: the attempt met leftovers of the one before, which are gone by then
		m.handoffDeadline = now.Mono + grace
	}
}

// patience is how long a waiter waits for the missing votes after the first wake-up, if the quorum can do without some of them. It is
// a round trip to the nearest quorum, but at least grace and at most maxGrace. If whoever released the lock is no further away, the
// messages have arrived by then. If no quorum has ever answered, it is the longest round trip known.
func (m *Machine) patience() time.Duration {
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

// earliest returns when the cells that come at certain moments are a quorum, or the last of the moments, and whether they are.
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

// isOpen reports whether the next attempt should have the cell. A cell that turned out to share its server with
// another one says the same as that one, and does not vote.
func isOpen(c *Cell) bool {
	return c.Handed > 0 || !c.Duplicate && (c.State == Free || c.State == Queued && c.Called)
}

// next notes that the waiter is the second in a queue: it refreshes as often as the first.
func (m *Machine) next(now Time) {
	m.refreshOften = true
	if m.phase == Waiting {
		m.nextAttemptAt = min(m.nextAttemptAt, max(now.Mono, m.waitingSince+refresh))
	}
}

// Life is how long the entries of the waiter are kept without a refresh.
func (m *Machine) Life() time.Duration { return time.Duration(entryLife * float64(m.refreshAfter())) }

// refreshAfter is how long after the last attempt the waiter refreshes its entry, by the position it had then.
func (m *Machine) refreshAfter() time.Duration {
	if m.tallies().some(isFree) { // it is the first there, and would be taken for dead
		return refresh
	}
	if m.lastPosition < 0 {
		for i := range m.Cells {
			m.lastPosition = max(m.lastPosition, m.Cells[i].Position)
		}
	}
	if m.lastPosition <= nearPositions || m.refreshOften {
		return refresh
	}
	return min(refresh*time.Duration(m.lastPosition)/nearPositions, maxRefresh)
}

// pause is the longest time to wait: until the entry is due for a refresh, or until the holder's keys expire if they are
// not renewed. It is shorter while there is no quorum to ask.
func (m *Machine) pause(now Time) time.Duration {
	if m.reason == NoQuorum || m.reason == TooLate {
		return m.jitter(afterFailure)
	}
	pause := min(m.refreshAfter(), m.refresh)
	if expiry, furthest := m.expiry(); expiry > 0 {
		pause = min(pause, max(expiry-now.Mono, 0)+spread+min(time.Duration(furthest)*spread, maxSpread))
	}
	return pause
}

// expiry returns when the lock may be free at a quorum because keys expire, 0 if unknown, and the furthest position in
// the queues.
func (m *Machine) expiry() (at time.Duration, furthest int) {
	for i := range m.Cells {
		if c := &m.Cells[i]; c.State == Queued {
			furthest = max(furthest, c.Position)
		}
	}
	if !m.tallies().holds(willExpire) {
		return 0, furthest
	}
	at, _ = m.earliest(func(i int) (time.Duration, bool) {
		c := &m.Cells[i]
		if c.State == Free || c.Handed > 0 {
			return 0, true
		}
		return c.expires, c.State == Queued && c.expires > 0
	})
	return at, furthest
}

// handed notes that a cell has handed the lock to a successor. That counts if it is the successor of the last attempt;
// the next attempt takes over earlier handoffs. If there is no next attempt, since the last one's successor has the lock,
// they are given back. If the waiter has gone, or another owner of its has the lock, leaving has given them back.
func (m *Machine) handed(now Time, cell int, attempt int32, token uint64, slot int32) {
	if m.phase == Idle || m.cfg.Tries {
		return
	}
	c := &m.Cells[cell]
	if m.phase >= Holding {
		switch {
		case !m.successor:
		case attempt < m.attempt:
			m.call(Call{Do: Release, Cell: int32(cell), Attempt: attempt, Successor: true})
		case attempt == m.attempt && m.phase == Holding && c.State == Queued && slot == m.slotAt(cell): // and so no longer, as it has handed over
			c.State = Granted
		}
		return
	}
	if attempt < m.attempt {
		c.former = attempt
	}
	switch {
	case attempt == m.attempt:
		again := c.Handed > 0
		c.Handed, c.handedSlot = token, slot
		if m.successor {
			c.apart = slot != m.slotAt(cell)
			if !again {
				m.join(now, cell)
			}
		}
	case attempt < m.attempt && c.State == Queued: // the attempt since then did not find this handoff
		c.Called = true
	}
	m.review(now)
}

// handedOver reports whether a quorum of the cells has handed the lock to the successor of the last attempt.
func (m *Machine) handedOver() bool {
	if !m.tallies().some(hasHanded) {
		return false
	}
	m.majoritySlot(slotHanded)
	return m.tallies().holds(hasInherited)
}

// inherit makes the successor of the last attempt the holder. It is an attempt like any other, except that the nodes have
// voted without being asked. What makes it safe is the same: the owner is used once, the validity counts from before the
// owner was sent to any node, and a quorum agrees on the token.
func (m *Machine) inherit(now Time) {
	if m.cfg.Drift.Validity(m.cfg.HandTTL, now.Since(m.asked)) < m.cfg.NodeTimeout { // the renewal might come too late
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
