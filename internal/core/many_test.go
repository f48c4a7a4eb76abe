package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// many is a machine of a MultiLock. It counts the looks at all of its cells.
type many struct {
	*Machine
	now   Time
	looks int // looks at all cells that looksAgain allowed
	trips int // calls of trip
}

// newMany returns a machine of so many RedLocks, or semaphores with slots, that has asked all
// cells.
func newMany(members int, tries, slots bool) *many {
	trees, semaphores := make([]Tree, members), make([]Slots, members)
	for i := range trees {
		trees[i], semaphores[i] = Majority(3, 5), Slots{First: 5 * i, Cells: 5, Permits: 3}
	}
	c := config(Every(trees))
	if c.Tries = tries; slots {
		c.Slots = semaphores
	}
	m := &many{now: at(0)}
	m.Machine = New(c, func(int) time.Duration { m.trips++; return time.Millisecond }, 1)
	m.step(Event{Kind: Start})
	return m
}

func (m *many) step(e Event) []Call {
	before := m.nextLook
	all := sends(m.Machine, m.now, e)
	if m.nextLook != before {
		m.looks++
	}
	return all
}

// answers answers calls and the calls that follow, until there are none.
func (m *many) answers(calls []Call, reply func(Call) Reply) {
	for len(calls) > 0 {
		var more []Call
		for _, c := range calls {
			m.now = m.now.Add(time.Microsecond)
			more = append(more, m.step(replied(c, reply(c)))...)
		}
		calls = more
	}
}

// asked answers the calls of the first attempt.
func (m *many) asked(reply func(Call) Reply) {
	calls := make([]Call, len(m.Cells))
	for i := range calls {
		calls[i] = Call{Do: Acquire, Cell: int32(i), Attempt: m.attempt}
	}
	m.answers(calls, reply)
}

// The number of recounts of all cells depends neither on the number of cells nor on that of the
// answers. Looks after each sixteenth of the answers cost a few steps a cell.
func TestAnAnswerCostsNoLookAtAllCells(t *testing.T) {
	yes := func(c Call) Reply { return Reply{OK: true, Token: uint64(1 + c.Cell%3)} }
	held := func(c Call) Reply {
		return Reply{Holder: quorumlock.Owner(fmt.Sprint("other:", c.Cell/5)), TTL: time.Second + time.Duration(c.Cell%7)*time.Millisecond}
	}
	for name, tt := range map[string]struct {
		tries, slots bool
		play         func(m *many)
	}{
		"acquired, renewed and released": {false, false, func(m *many) {
			m.asked(yes)
			m.answers(m.step(extend), yes)
			m.answers(m.step(unlock), yes)
		}},
		"handed over": {false, false, func(m *many) {
			m.asked(held)
			for i := range m.Cells {
				m.answers(m.step(handed(int32(i), 1, uint64(1+i%3))), yes)
			}
			m.answers(m.step(unlock), yes)
		}},
		"called": {false, false, func(m *many) {
			m.asked(held)
			for i := range m.Cells {
				m.step(Event{Kind: Turn, Cell: int32(i)})
			}
			m.step(cancel)
		}},
		"called, and taken in order": {false, false, func(m *many) {
			m.asked(held)
			m.step(Event{Kind: Taken})
			for i := range m.Cells { // the first cell of each member, then the second
				m.step(Event{Kind: Turn, Cell: int32(i*5%len(m.Cells) + i*5/len(m.Cells))})
			}
			m.step(cancel)
		}},
		"slots of semaphores": {false, true, func(m *many) { m.asked(yes); m.answers(m.step(unlock), yes) }},
		"slots that differ": {false, true, func(m *many) {
			m.asked(func(c Call) Reply { return Reply{OK: true, Token: 1, Slot: c.Cell % 5 % 2} })
		}},
		"tried while others have a member each": {true, false, func(m *many) { m.asked(held) }},
		"tried while somebody has a member": {true, false, func(m *many) {
			m.asked(func(c Call) Reply {
				if c.Do == Acquire && c.Cell < 5 {
					return held(c)
				}
				return yes(c)
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			few, lots := newMany(20, tt.tries, tt.slots), newMany(320, tt.tries, tt.slots)
			tt.play(few)
			tt.play(lots)
			if few.phase == Asking || few.phase != lots.phase {
				t.Fatalf("phases %v and %v", few.phase, lots.phase)
			}
			if lots.changed > few.changed+2 || lots.changed > 12 {
				t.Errorf("%d recounts with 20 members, %d with 320", few.changed, lots.changed)
			}
			if cells := len(lots.Cells); lots.looks > cells/8 || lots.trips > 4*cells {
				t.Errorf("%d looks at %d cells, %d round trips asked for", lots.looks, cells, lots.trips)
			}
		})
	}
}

// After a handoff in the middle of an attempt, granted and handed slots are compared at each
// answer. A look at another semaphore would reset the mark there.
func TestAnAnswerComparesTheSlotsOfItsSemaphoreAlone(t *testing.T) {
	m := newMany(3, false, true)
	grant := func(c Call) Reply { return Reply{OK: true, Token: 1, Slot: 2} }
	refuse := func(c Call) Reply { return Reply{Holder: "other:1", TTL: time.Second} }
	acquire := func(cell int32) []Call { return []Call{{Do: Acquire, Cell: cell, Attempt: 1}} }
	m.answers(acquire(0), refuse)
	m.step(handed(0, 1, 7))
	m.answers(acquire(5), grant)
	far := &m.Cells[len(m.Cells)-1]
	far.apart = true
	m.answers(acquire(1), refuse)
	m.step(handed(1, 1, 7))
	m.answers(acquire(6), grant)
	if m.phase != Asking || !far.apart {
		t.Errorf("phase %v: an answer looked at another semaphore", m.phase)
	}
}
