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

func newMany(members int, tries bool, slots ...Slots) *many {
	trees := make([]Tree, members)
	for i := range trees {
		trees[i] = Majority(3, 5)
	}
	m := &many{now: at(0)}
	c := &Config{Tree: Every(trees), TTL: 10 * time.Second, HandTTL: 1800 * time.Millisecond, NodeTimeout: time.Second,
		Drift: quorumlock.DefaultDrift(), Renew: true, Tries: tries, Slots: slots}
	m.Machine = New(c, func(int) time.Duration { m.trips++; return time.Millisecond }, 1)
	m.step(Event{Kind: Start})
	return m
}

func (m *many) step(e Event) []Call {
	before := m.nextLook
	fx := m.Step(m.now, e)
	if m.nextLook != before {
		m.looks++
	}
	return append([]Call(nil), fx.Calls...)
}

// answers answers calls and the calls that follow, until there are none.
func (m *many) answers(calls []Call, reply func(Call) Reply) {
	for len(calls) > 0 {
		var more []Call
		for _, c := range calls {
			m.now = m.now.Add(time.Microsecond)
			more = append(more, m.step(Event{Kind: Replied, Call: c, Reply: reply(c)})...)
		}
		calls = more
	}
}

func (m *many) acquires() []Call {
	calls := make([]Call, len(m.Cells))
	for i := range calls {
		calls[i] = Call{Do: Acquire, Cell: int32(i), Attempt: m.attempt}
	}
	return calls
}

// slots are those of n semaphores.
func slots(n int) []Slots {
	all := make([]Slots, n)
	for i := range all {
		all[i] = Slots{First: 5 * i, Cells: 5, Permits: 3}
	}
	return all
}

// The number of recounts of all cells depends neither on the number of cells nor on that of the
// answers. Looks after each sixteenth of the answers cost a few steps a cell.
func TestAnAnswerCostsNoLookAtAllCells(t *testing.T) {
	yes := func(c Call) Reply { return Reply{OK: true, Token: uint64(1 + c.Cell%3)} }
	held := func(c Call) Reply {
		return Reply{Holder: quorumlock.Owner(fmt.Sprint("other:", c.Cell/5)), TTL: time.Second + time.Duration(c.Cell%7)*time.Millisecond}
	}
	one := func(n int) func(c Call) Reply {
		return func(c Call) Reply {
			if c.Do == Acquire && c.Cell < 5 {
				return held(c)
			}
			return yes(c)
		}
	}
	for name, play := range map[string]func(n int) *many{
		"acquired, renewed and released": func(n int) *many {
			m := newMany(n, false)
			m.answers(m.acquires(), yes)
			m.answers(m.step(Event{Kind: Extend}), yes)
			m.answers(m.step(Event{Kind: Unlock}), yes)
			return m
		},
		"handed over": func(n int) *many {
			m := newMany(n, false)
			m.answers(m.acquires(), held)
			for i := range m.Cells {
				m.answers(m.step(Event{Kind: Handoff, Cell: int32(i), Attempt: 1, Token: uint64(1 + i%3)}), yes)
			}
			m.answers(m.step(Event{Kind: Unlock}), yes)
			return m
		},
		"called": func(n int) *many {
			m := newMany(n, false)
			m.answers(m.acquires(), held)
			for i := range m.Cells {
				m.step(Event{Kind: Turn, Cell: int32(i)})
			}
			m.step(Event{Kind: Cancel})
			return m
		},
		"slots of semaphores": func(n int) *many {
			m := newMany(n, false, slots(n)...)
			m.answers(m.acquires(), yes)
			m.answers(m.step(Event{Kind: Unlock}), yes)
			return m
		},
		"slots that differ": func(n int) *many {
			m := newMany(n, false, slots(n)...)
			m.answers(m.acquires(), func(c Call) Reply { return Reply{OK: true, Token: 1, Slot: c.Cell % 5 % 2} })
			return m
		},
		"tried while others have a member each": func(n int) *many {
			m := newMany(n, true)
			m.answers(m.acquires(), held)
			return m
		},
		"tried while somebody has a member": func(n int) *many {
			m := newMany(n, true)
			m.answers(m.acquires(), one(n))
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			few, lots := play(20), play(320)
			if few.phase == Asking || few.phase != lots.phase {
				t.Fatalf("phases %v and %v", phases[few.phase], phases[lots.phase])
			}
			if lots.changed > few.changed+2 || lots.changed > 12 {
				t.Errorf("%d recounts with 20 members, %d with 320", few.changed, lots.changed)
			}
			if most := len(lots.Cells) / 8; lots.looks > most {
				t.Errorf("%d looks at %d cells", lots.looks, len(lots.Cells))
			}
			if most := 4 * len(lots.Cells); lots.trips > most {
				t.Errorf("%d round trips asked for, of %d cells", lots.trips, len(lots.Cells))
			}
		})
	}
}
