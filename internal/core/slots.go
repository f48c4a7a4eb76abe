package core

import "slices"

// A semaphore is a number of slots, each of which is a mutex of its own, with tokens of its own, behind one queue. A cell grants
// the slot that the machine would like, or another one that is free; it hands over the slot that has become free. A hold needs
// a quorum of cells for the same slot. So at most one machine has a slot, for the reason for which at most one has a mutex.
//
// Cells that gave another slot than most count as if they had refused. A machine that wins moves them to its slot, where that is
// free, and they give the other one back. A machine that does not win gives everything back. If its cells granted different
// slots, it asks for one slot next and takes no other, so that it contests only this one. Cells where that is taken name a free one
// instead, each machine another, and the machine asks for the one that most cells named. A waiter that is called because slots
// were released asks for the slot that most cells named: it will soon be free everywhere. A slot that its last attempt was granted
// takes precedence, if other cells had none for it; and so does one that it was handed.

// Slots are the cells of a semaphore.
type Slots struct {
	First, Cells int // which; those of a lock are in this order
	Permits      int // how many slots it has
}

// Slot returns the slot of the hold, of the first semaphore if there are several.
func (m *Machine) Slot() int {
	if len(m.slots) == 0 {
		return 0
	}
	return int(m.slots[0])
}

// hasSlots reports whether the lock is a semaphore with several slots, or has one as a member.
func (m *Machine) hasSlots() bool {
	return slices.ContainsFunc(m.cfg.Slots, func(s Slots) bool { return s.Permits > 1 })
}

// isSlot reports whether the semaphore that a cell belongs to has such a slot. Whoever may publish can send the machine any number.
func (m *Machine) isSlot(cell int, slot int32) bool {
	i, is := m.semaphoreOf(cell)
	return is && 0 <= slot && int(slot) < m.cfg.Slots[i].Permits
}

// semaphoreOf returns which semaphore a cell belongs to, if to any.
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

// slotAt is the slot that the hold has, or that the machine would like, of the semaphore that a cell belongs to.
func (m *Machine) slotAt(cell int) int32 {
	if i, is := m.semaphoreOf(cell); is && m.slots != nil {
		return m.slots[i]
	}
	return 0
}

// align chooses the slot that most of the cells have for which has says so, and notes which of these have another one.
func (m *Machine) majoritySlot(has func(*Cell) (slot int32, ok bool)) {
	for i := range m.slots {
		s := &m.cfg.Slots[i]
		cells := m.Cells[s.First : s.First+s.Cells]
		best, most := int32(-1), 0
		for j := range cells {
			slot, ok := has(&cells[j])
			n := 0
			for l := range cells {
				if other, ok2 := has(&cells[l]); ok && ok2 && other == slot {
					n++
				}
			}
			if n > most {
				best, most = slot, n
			}
		}
		for j := range cells {
			slot, ok := has(&cells[j])
			if apart := ok && slot != best; apart != cells[j].apart {
				cells[j].apart = apart
				m.changed++
			}
		}
		if most > 0 {
			m.slots[i] = best
		}
	}
}

func slotGranted(c *Cell) (int32, bool) { return c.slot, c.State == Granted }

func slotHanded(c *Cell) (int32, bool) { return c.handedSlot, c.Handed > 0 }

// like chooses the slot that the next attempt asks for.
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
		m.majoritySlot(func(c *Cell) (int32, bool) { return c.vacant, c.named })
		if !m.oneSlot {
			m.majoritySlot(func(c *Cell) (int32, bool) { return c.slot, c.Won })
		}
		m.majoritySlot(slotHanded)
	}
	m.searchFrom = m.random()
}

// name notes a slot that is free at a cell.
func (m *Machine) name(cell int, slot int32) {
	if m.isSlot(cell, slot) {
		m.Cells[cell].vacant, m.Cells[cell].named = slot, true
	}
}

// otherAt is Call.Other of a call to a cell.
func (m *Machine) otherAt(do Do, cell int) int32 {
	if do == Yield || do == Acquire && m.oneSlot {
		if i, is := m.semaphoreOf(cell); is {
			return 1 + int32(m.searchFrom%uint64(m.cfg.Slots[i].Permits))
		}
	}
	return 0
}

// isElsewhere reports whether slots are free, but the cells have granted different ones, or another one than the attempt takes.
func (m *Machine) isElsewhere() bool {
	return m.tallies().some(isElsewhere)
}

// maxSplits is after how many attempts a TryLock no longer takes a refusal for a split vote. It may be none: a node that has
// lost its data has slots that are taken.
const maxSplits = 8

// isSplit reports whether some cells of a semaphore granted a slot and others had none. Then contenders may have a free slot
// between them. Who is named by the refusals does not say so: whoever has the lowest slot may have had it for long.
func (m *Machine) isSplit() bool {
	for _, s := range m.cfg.Slots {
		granted, refused := false, false
		for i := s.First; i < s.First+s.Cells; i++ {
			granted, refused = granted || m.Cells[i].Won, refused || m.Cells[i].Refused
		}
		if granted && refused && s.Permits > 1 {
			return true
		}
	}
	return false
}

// move asks a cell of the hold that has another slot for the one of the hold.
func (m *Machine) move(i int) {
	m.Cells[i].State, m.Cells[i].apart = Unknown, false
	m.restore(i)
}
