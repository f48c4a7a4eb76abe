package core

import "slices"

// A semaphore is a number of slots behind one queue. Each slot is a mutex, with tokens of its own.
// A cell grants the preferred slot, or another free one; it hands over the slot that was released.
// A hold needs a quorum of cells for one slot. So a slot has at most one holder, for the same
// reason as a mutex.
//
// Cells with another slot than most count as refusals. A winner moves them to its slot, where that
// is free, and they release the other one. A loser yields everything. If its cells granted
// different slots, its next attempt takes one slot and no other, and so contests only this one. A
// cell where that is taken names a free slot instead, to each machine another one. The machine then
// asks for the slot that most cells named.
//
// A waiter that is called for released slots asks for the one that most cells named: it will soon
// be free everywhere. A slot that the last attempt was granted takes precedence, unless others were
// free. A slot that was handed over always does.

// Slots are the cells of one semaphore in the lock.
type Slots struct {
	First, Cells int // the first cell, and how many; Config.Slots is in this order
	Permits      int // the number of slots
}

// Slot returns the slot of the hold; with several semaphores, that of the first.
func (m *Machine) Slot() int {
	if len(m.slots) == 0 {
		return 0
	}
	return int(m.slots[0])
}

// hasSlots reports whether the lock has a semaphore with several slots.
func (m *Machine) hasSlots() bool {
	return slices.ContainsFunc(m.cfg.Slots, func(s Slots) bool { return s.Permits > 1 })
}

// isSlot reports whether the semaphore of a cell has such a slot. A publisher can send any number.
func (m *Machine) isSlot(cell int, slot int32) bool {
	i, is := m.semaphoreOf(cell)
	return is && 0 <= slot && int(slot) < m.cfg.Slots[i].Permits
}

// semaphoreOf returns the semaphore of a cell, if it has one.
func (m *Machine) semaphoreOf(cell int) (i int, is bool) {
	return slices.BinarySearchFunc(m.cfg.Slots, cell, func(s Slots, cell int) int {
		switch {
		case s.First+s.Cells <= cell:
			return -1
		case s.First > cell:
			return 1
		}
		return 0
	})
}

// slotAt returns the slot of the hold, or the preferred one, of the semaphore of a cell.
func (m *Machine) slotAt(cell int) int32 {
	if i, is := m.semaphoreOf(cell); is && m.slots != nil {
		return m.slots[i]
	}
	return 0
}

// slotOf is a slot that a cell may have.
type slotOf uint8

const (
	slotGranted slotOf = iota + 1 // granted, and not taken back
	slotHanded                    // handed over
	slotWon                       // granted; may be released since
	slotNamed                     // named as free
)

func (s slotOf) of(c *Cell) (slot int32, ok bool) {
	switch s {
	case slotGranted:
		return c.slot, c.Standing == Granted
	case slotHanded:
		return c.handed.slot, c.HandedOver()
	case slotWon:
		return c.slot, c.Won
	}
	return c.vacant - 1, c.vacant > 0
}

// compareSlots chooses, for each semaphore, the slot that most cells have, of the last kind that any
// of its cells has. It marks cells with another slot of the last kind given as apart. In the phases
// that compare slots, a step that changes the slots of its cell compares them at once. So if the
// last comparison ended with the same kind, only the semaphore of this cell is compared. The
// comparisons of chooseSlot end with another kind than those of the attempt that follows.
func (m *Machine) compareSlots(kinds ...slotOf) {
	last := kinds[len(kinds)-1]
	first, end := 0, len(m.slots)
	if i, is := m.semaphoreOf(int(m.current)); m.compared == last && m.current >= 0 {
		first, end = i, i
		if is {
			end++
		}
	}
	for i := first; i < end; i++ {
		for _, which := range kinds {
			m.majoritySlot(i, which)
		}
	}
	m.compared = last
}

// majoritySlot chooses the slot of one semaphore: see compareSlots.
func (m *Machine) majoritySlot(i int, which slotOf) {
	s := &m.cfg.Slots[i]
	cells := m.Cells[s.First : s.First+s.Cells]
	best, most := int32(-1), 0
	for j := range cells {
		slot, ok := which.of(&cells[j])
		n := 0
		for l := range cells {
			if other, ok2 := which.of(&cells[l]); ok && ok2 && other == slot {
				n++
			}
		}
		if n > most {
			best, most = slot, n
		}
	}
	for j := range cells {
		c := &cells[j]
		slot, ok := which.of(c)
		apart, handedApart := ok && slot != best, c.handed.apart
		if which == slotHanded {
			handedApart = apart
		}
		if apart != c.apart || handedApart != c.handed.apart {
			c.compare(apart, handedApart)
			if m.counted == m.changed { // otherwise the next count is of all cells
				m.tally.set(s.First+j, m.factsOf(s.First+j))
			}
		}
	}
	if most > 0 {
		m.slots[i] = best
	}
}

// chooseSlot chooses the slot for the next attempt.
func (m *Machine) chooseSlot() {
	switch {
	case len(m.cfg.Slots) == 0:
		return
	case m.slots == nil:
		m.slots = make([]int32, len(m.cfg.Slots))
		for i := range m.slots {
			m.slots[i] = int32(m.random() % uint64(m.cfg.Slots[i].Permits))
		}
	default:
		m.oneSlot = m.isElsewhere()
		m.compareSlots(slotNamed)
		if !m.oneSlot {
			m.compareSlots(slotWon)
		}
		m.compareSlots(slotHanded)
	}
	m.searchFrom = m.random()
}

// name notes a slot that is free at a cell.
func (m *Machine) name(cell int, slot int32) {
	if m.isSlot(cell, slot) {
		m.Cells[cell].name(slot)
	}
}

// otherAt returns Call.Other for a call to a cell.
func (m *Machine) otherAt(do Do, cell int) int32 {
	if do == Yield || do == Acquire && m.oneSlot {
		if i, is := m.semaphoreOf(cell); is {
			return 1 + int32(m.searchFrom%uint64(m.cfg.Slots[i].Permits))
		}
	}
	return 0
}

// isElsewhere reports whether slots are free, but cells granted different ones or refused this one.
func (m *Machine) isElsewhere() bool {
	return m.tallies().some(isElsewhere)
}

// maxSplits is the number of attempts after which a TryLock is refused although isSplit. The vote
// need not be split: a node that has lost its data grants slots that are taken.
const maxSplits = 8

// isSplit reports whether some cells of a semaphore granted a slot and others had none. Then
// contenders may have a free slot between them. The holders that refusals name do not show it: the
// holder of the lowest slot may have had it for long.
func (m *Machine) isSplit() bool {
	for _, s := range m.cfg.Slots {
		granted, refused := false, false
		for i := s.First; i < s.First+s.Cells; i++ {
			granted, refused = granted || m.Cells[i].Won, refused || m.Cells[i].Refusal != nil
		}
		if granted && refused && s.Permits > 1 {
			return true
		}
	}
	return false
}

// move asks a cell with another slot for the slot of the hold.
func (m *Machine) move(i int) {
	m.Cells[i].move()
	m.restore(i)
}
