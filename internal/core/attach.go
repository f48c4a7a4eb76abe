package core

import (
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
)

// Source is a parked hold, which an Attach takes over. It is immutable.
type Source struct {
	Token  uint64   // of the hold
	Counts []uint64 // of each cell: the last token that it had counted at the Park
}

// Whose selects the owner of a call.
type Whose uint8

const (
	Own    Whose = iota // the attempt's own, or its successor
	Parked              // the owner of no process, to which a Detach passes the hold
	Former              // the parked owner, from which an Attach takes the hold
)

// detach ends the hold here and parks it: the cells pass it to an owner that belongs to no process.
// A lost hold is released.
func (m *Machine) detach(now Time, keep time.Duration) {
	if m.phase == Holding {
		m.endHold(now, keep, Park)
	} else {
		m.unlock(now, 0)
	}
}

// keeps reports whether the cells that granted keep a key after the Unlock.
func (m *Machine) keeps() bool { return m.keep || m.park }

// unpark releases a parked hold that no quorum confirmed in time: nobody will take it over.
func (m *Machine) unpark() {
	m.released = No
	for i := range m.Cells {
		if !m.Cells[i].isClear() {
			m.call(Call{Do: Release, Whose: Parked, Cell: int32(i), Attempt: m.attempt})
		}
	}
}

// Parked returns the hold that a Detach has parked, if a quorum has confirmed it. A cell without an
// answer may have it as well, and then has counted no token since its grant.
func (m *Machine) Parked() (s Source, ok bool) {
	if !m.parked || m.released != Yes {
		return s, false
	}
	s = Source{Token: m.token, Counts: make([]uint64, len(m.Cells))}
	for i := range m.Cells {
		s.Counts[i] = max(m.token, m.Cells[i].token)
	}
	return s, true
}

// attach asks a cell to pass the hold to the attempt's owner.
func (m *Machine) attach(cell int) {
	c := &m.Cells[cell]
	m.call(Call{Do: Attach, Cell: int32(cell), Of: c.of, Attempt: m.attempt, Token: m.cfg.Source.Counts[c.of]})
}

// attached handles a cell's answer to an Attach.
func (m *Machine) attached(now Time, call Call, r Reply) {
	c := &m.Cells[call.Cell]
	// The process that detached the hold may have its nodes in another order.
	if r.Moved && c.of == call.Cell && r.Of != c.of && int(r.Of) < len(m.Cells) && !m.hasGrantedOf(r.Of) && m.phase <= Holding {
		c.moved(r.Of)
		m.attach(int(call.Cell))
		return
	}
	// A node whose number differs may have counted a token that is late for the asked cell alone.
	r.Rival = r.Rival && r.Token <= slices.Max(m.cfg.Source.Counts)
	if c.Standing == Asked || m.phase == Holding {
		m.noteAttached(call, r)
	}
	lost := r.Err != nil && !r.Unsent && !r.Quarantined
	switch {
	case m.phase == Asking:
		m.countAttach(now)
	case m.phase >= Releasing && (lost || c.early && r.Err == nil && r.OK):
		m.call(Call{Do: m.undo(), Cell: call.Cell, Of: c.of, Attempt: call.Attempt})
	}
}

// hasGrantedOf reports whether a cell has passed on what the former owner had as this cell. No
// second cell may: a copy of a node would count twice.
func (m *Machine) hasGrantedOf(of int32) bool {
	return slices.ContainsFunc(m.Cells, func(c Cell) bool { return c.of == of && c.Standing == Granted })
}

// releaseFormer frees the parked hold at a cell that has not passed it on, or not yet. The cell may
// be any of those that no other cell is known to be.
func (m *Machine) releaseFormer(cell int32) {
	for of := range int32(len(m.Cells)) {
		if !m.hasGrantedOf(of) {
			m.call(Call{Do: Release, Whose: Former, Cell: cell, Of: of, Attempt: m.attempt})
		}
	}
}

// undo returns the call that ends an Attach at a cell. Return passes the hold back, for another
// Attach. After a hold, or once no quorum can take it over, Release frees the key.
func (m *Machine) undo() Do {
	if m.returns {
		return Return
	}
	return Release
}

func (m *Machine) noteAttached(call Call, r Reply) {
	c := &m.Cells[call.Cell]
	asking := m.phase == Asking
	another := r.OK && !(r.Again && asking) && c.Standing != Granted && m.hasGrantedOf(c.of)
	if r.Left < 0 {
		r.Left = m.cfg.TTL
	}
	if c.attached(r, m.cfg.Source, another, asking); another {
		m.call(Call{Do: Return, Cell: call.Cell, Of: c.of, Attempt: call.Attempt})
	}
}

// attachedTTL returns the longest TTL that a quorum still had at the Attach, at most this client's.
// A quorum has granted it.
func (m *Machine) attachedTTL() time.Duration {
	var left []time.Duration
	for i := range m.Cells {
		if c := &m.Cells[i]; c.Standing == Granted {
			left = append(left, c.left)
		}
	}
	slices.Sort(left)
	return min(left[len(left)-m.cfg.Tree.Need()], m.cfg.TTL)
}

// lastsForRenewal reports whether an attached hold has time for its first renewal: four times the
// duration of the Attach. A hold with the full TTL of this client always has.
func (m *Machine) lastsForRenewal(now Time) bool {
	ttl, took := m.attachedTTL(), now.Since(m.asked)
	return ttl == m.cfg.TTL || m.cfg.Drift.Validity(ttl, took) >= 4*took
}

// countAttach decides an Attach when a quorum has passed on the hold with enough time left, when no
// quorum can, when another owner has a quorum, or on the last answer.
func (m *Machine) countAttach(now Time) {
	t := m.tallies()
	switch {
	case t.holds(hasGranted) && (m.unanswered() == 0 || m.lastsForRenewal(now)):
		m.token = m.cfg.Source.Token
		for i := range m.Cells {
			m.Cells[i].keep()
		}
		m.hold(now)
	case !t.holds(mayAttach):
		m.fail(Gone)
	case m.TakenOver() != "":
		m.fail(Held)
	case m.unanswered() > 0:
	case !t.holds(isLock):
		m.fail(WrongUse)
	case slices.ContainsFunc(m.Cells, func(c Cell) bool { return c.Refusal != nil && c.Refusal.Rival }):
		m.fail(Held)
	default:
		m.fail(NoQuorum)
	}
}

// TakenOver returns the other owner that has taken the hold over at a quorum, "" if none. Answers
// are of different moments: it may have passed one cell back before it got the next.
func (m *Machine) TakenOver() quorumlock.Owner {
	cells := make(map[quorumlock.Owner]int)
	for i := range m.Cells {
		if r := m.Cells[i].Refusal; r != nil && r.Rival {
			if cells[r.Holder]++; cells[r.Holder] >= m.cfg.Tree.Need() {
				return r.Holder
			}
		}
	}
	return ""
}

// returnHold passes back a hold that was just attached, because nobody wants it here.
func (m *Machine) returnHold(now Time) {
	if m.phase != Holding && m.phase != Losing {
		return
	}
	m.become(Over)
	m.released, m.fx.Released = Yes, true
	m.endRounds()
	m.changed++
	for i := range m.Cells {
		m.undoAttach(i, Cancelled)
	}
}

// undoAttach gives up the certain or possible grant of a failed Attach at a cell.
func (m *Machine) undoAttach(i int, why Reason) {
	m.returns = why != Gone
	if c := &m.Cells[i]; c.mayHold() {
		m.call(Call{Do: m.undo(), Cell: int32(i), Of: c.of, Attempt: m.attempt})
	}
}
