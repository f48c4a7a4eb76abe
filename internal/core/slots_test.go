package core

import (
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// newSemaphore returns a machine that has asked n cells of a semaphore.
func newSemaphore(n, permits int, tries bool) *Machine {
	c := config(Majority(n/2+1, n))
	c.Drift, c.Tries, c.Slots = quorumlock.Drift{}, tries, []Slots{{0, n, permits}}
	return begin(c)
}

func callsOf(fx *Effects) []Call { return slices.Clone(fx.Calls) }

func replied(c Call, r Reply) Event { return Event{Kind: Replied, Call: c, Reply: r} }

func grantOf(slot int32) Reply { return Reply{OK: true, Token: 7, Slot: slot} }

// grantsSlots plays grants of slots by the first cells.
func grantsSlots(m *Machine, slots ...int32) (fx *Effects) {
	for cell, slot := range slots {
		fx = plays(m, answer(Acquire, int32(cell), grantOf(slot)))
	}
	return fx
}

func handedSlot(cell, slot int32) Event {
	e := handed(cell, 1, 7)
	e.Slot = slot
	return e
}

func cellsOf(all []Call, do Do) (cells []int32) {
	for _, c := range all {
		if c.Do == do {
			cells = append(cells, c.Cell)
		}
	}
	return cells
}

// wantSlot checks that all n cells are asked for a slot.
func wantSlot(t *testing.T, all []Call, n int, slot int32) {
	t.Helper()
	if len(cellsOf(all, Acquire)) != n || slices.ContainsFunc(all, func(c Call) bool { return c.Do == Acquire && c.Slot != slot }) {
		t.Errorf("%+v, want all %d cells to be asked for slot %d", all, n, slot)
	}
}

// Different slots are no quorum after a handoff during an attempt: the next one asks for one slot.
func TestDifferentSlotsAreNoQuorumDuringAnAttempt(t *testing.T) {
	m := newSemaphore(5, 3, false)
	plays(m, handedSlot(4, 2))
	if fx := grantsSlots(m, 0, 1, 2); m.Phase() != Yielding {
		t.Errorf("granted: phase %v, outcome %v", m.Phase(), fx.Outcome)
	}
	m = newSemaphore(5, 3, false)
	if fx := plays(m, handedSlot(0, 0), handedSlot(1, 1), handedSlot(2, 2)); m.Phase() != Asking || m.attempt != 2 {
		t.Errorf("handed over: phase %v, outcome %v", m.Phase(), fx.Outcome)
	}
}

// A hold that was handed over has the slots handed over, even where the attempt was granted others.
func TestAHandoffDuringAnAttemptHasItsOwnSlots(t *testing.T) {
	c := config(Every([]Tree{Majority(3, 5), Majority(3, 5)}))
	c.Slots = []Slots{{0, 5, 3}, {5, 5, 3}}
	m := begin(c)
	plays(m, answer(Acquire, 4, grantOf(0)), handedSlot(0, 1), handedSlot(1, 1), handedSlot(2, 1))
	control(t, m, Asking)
	fx := plays(m, handedSlot(5, 2), handedSlot(6, 2), handedSlot(7, 2))
	if want := []int32{1, 2}; fx.Outcome != Acquired || !slices.Equal(m.slots, want) {
		t.Errorf("outcome %v, slots %v, want %v", fx.Outcome, m.slots, want)
	}
}

// While a successor agrees on the token, a cell may answer the attempt after it has handed over
// another slot. It is moved to the slot of the hold all the same, and so is one that hands over
// late.
func TestACellThatHandedOverAnotherSlotIsMoved(t *testing.T) {
	for name, late := range map[string][]Event{
		"it answers late":     {answer(Acquire, 4, heldByOther)},
		"another hands over":  {answer(Acquire, 4, heldByOther), handedSlot(3, 1)},
		"it is granted a key": {answer(Acquire, 4, grantOf(0))},
	} {
		m := newSemaphore(5, 3, false)
		refused(m, 4)
		higher := handedSlot(2, 0)
		higher.Token++
		raises := callsOf(plays(m, handedSlot(0, 0), handedSlot(1, 0), higher))
		control(t, m, Agreeing)
		plays(m, handedSlot(4, 1))
		plays(m, late...)
		var fx *Effects
		for _, c := range raises {
			if c.Do == Raise {
				fx = plays(m, replied(c, Reply{OK: true}))
			}
		}
		if fx.Outcome != Acquired || !slices.ContainsFunc(fx.Calls, func(c Call) bool { return c.Do == Restore && c.Cell == 4 && c.Slot == 0 }) {
			t.Errorf("%s: phase %s, cell 4 is not moved: %+v", name, m.phase, fx.Calls)
		}
		for i := range m.Cells {
			if c := &m.Cells[i]; c.Standing == Granted && c.handed.slot != m.slots[0] {
				t.Errorf("%s: cell %d counts with slot %d, and the hold has %d", name, i, c.handed.slot, m.slots[0])
			}
		}
	}
}

// If a cell hands over when the successor already has the slot, the waiter has left the queue
// there. But another slot is not part of the hold, and the release must leave the queue.
func TestALateHandoffOfAnotherSlotIsNotPartOfTheHold(t *testing.T) {
	for slot, do := range map[int32]Do{0: Release, 1: ReleaseAndLeave} {
		m := newSemaphore(3, 3, false)
		refused(m, int32(len(m.Cells)))
		plays(m, handedSlot(0, 0), handedSlot(1, 0))
		control(t, m, Holding)
		want(t, plays(m, handedSlot(2, slot), unlock), 2, do)
	}
}

// A cell that granted another slot is moved to that of the hold, and does not count before.
func TestACellWithAnotherSlotIsMoved(t *testing.T) {
	m := newSemaphore(5, 3, false)
	moved := func(fx *Effects, cell int32) {
		t.Helper()
		if !slices.ContainsFunc(fx.Calls, func(c Call) bool { return c.Do == Restore && c.Cell == cell && c.Slot == 2 }) {
			t.Errorf("cell %d is not moved to slot 2: %+v", cell, fx.Calls)
		}
	}
	fx := grantsSlots(m, 2, 1, 2, 2)
	if fx.Outcome != Acquired || m.Slot() != 2 {
		t.Fatalf("outcome %v, slot %d", fx.Outcome, m.Slot())
	}
	moved(fx, 1)
	moved(plays(m, answer(Acquire, 4, grantOf(0))), 4)
	for _, c := range m.Step(at(time.Second), extend).Calls {
		if c.Do == Renew && c.Slot != 2 {
			t.Errorf("cell %d renews slot %d", c.Cell, c.Slot)
		}
	}
}

// The next attempt asks for the slot that most cells granted; in a tie, for that of the first cell.
func TestTheNextAttemptAsksForOneSlot(t *testing.T) {
	m := newSemaphore(3, 9, true)
	for _, c := range callsOf(grantsSlots(m, 7, 3, 5)) {
		plays(m, replied(c, Reply{}))
	}
	wantSlot(t, m.Step(at(5*time.Millisecond), Event{Kind: Tick}).Calls, 3, 7)
}

// A waiter that is called for released slots asks every cell for the slot that most cells named.
// Numbers that are no slots do not count.
func TestACalledWaiterAsksForTheSlotThatWasReleased(t *testing.T) {
	for _, tt := range []struct {
		what  string
		named []int32
		want  int32 // -1 for the slot of the first attempt
	}{
		{"by all", []int32{4, 4, 4}, 4},
		{"by most", []int32{4, 3, 3}, 3},
		{"by the first", []int32{8, 3, 5}, 8},
		{"the lowest", []int32{0, 0, 0}, 0},
		{"one that does not exist", []int32{9, 9, 9}, -1},
		{"a negative one", []int32{-1, -1, -1}, -1},
		{"one that does not exist, by most", []int32{9, 5, 9}, 5},
	} {
		t.Run(tt.what, func(t *testing.T) {
			m := newSemaphore(5, 9, false)
			asked := callsOf(&m.fx)
			want := tt.want
			if want < 0 {
				want = asked[0].Slot
			} else if want == asked[0].Slot {
				t.Fatal("control: it would ask for that slot anyway")
			}
			refused(m, int32(len(m.Cells)))
			var again []Call
			for cell, slot := range tt.named {
				again = callsOf(plays(m, Event{Kind: TurnForSlot, Cell: int32(cell), Slot: slot}))
			}
			wantSlot(t, again, 5, want)
		})
	}
}

// A caller that meets others at free slots asks at once for the slot that most cells named, and no
// other. It also sends the slot from which a cell searches for another one.
func TestACallerThatFindsItsSlotTakenAsksForAnotherOne(t *testing.T) {
	for what, meet := range map[string]func(m *Machine) (again []Call){
		"granted different ones": func(m *Machine) (again []Call) {
			for i, c := range callsOf(grantsSlots(m, 7, 3, 5)) {
				if c.Do != Yield || c.Other < 1 || c.Other > 9 {
					t.Errorf("%+v, want a Yield that asks for a free slot", c)
				}
				again = callsOf(plays(m, replied(c, Reply{First: true, Slot: []int32{4, 4, 8}[i]})))
			}
			return again
		},
		"refused": func(m *Machine) (again []Call) {
			elsewhere := Reply{Elsewhere: true, Holder: "a:1.1", Slot: 4}
			return callsOf(plays(m, answer(Acquire, 0, elsewhere), answer(Acquire, 1, elsewhere))) // two refusals decide
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newSemaphore(3, 9, false)
			asked := callsOf(&m.fx)
			for _, c := range asked {
				if c.Other != 0 {
					t.Errorf("the first attempt takes no other slot at cell %d", c.Cell)
				}
			}
			again := meet(m)
			wantSlot(t, again, 3, 4)
			for _, c := range again {
				if c.Other != again[0].Other || c.Other < 1 || c.Other > 9 {
					t.Errorf("cell %d searches from %d on, want one number from 1 to 9", c.Cell, c.Other)
				}
			}
		})
	}
}

// If others have the slot of a holder at some cells, it renews early, to get the slot there.
func TestAContestedSlotIsRenewedEarly(t *testing.T) {
	for contested, want := range map[bool]time.Duration{false: time.Second, true: renewHanded} {
		m := newSemaphore(3, 9, false)
		plays(m, answer(Acquire, 0, Reply{Elsewhere: contested, TTL: time.Second, Holder: "a:1.1", Slot: 4}))
		plays(m, answer(Acquire, 1, grantOf(2)), answer(Acquire, 2, grantOf(2)))
		control(t, m, Holding)
		if wake := m.Wake() - at(0).Mono; wake < want || contested && wake > want {
			t.Errorf("contested %v: the first renewal is after %v, want %v", contested, wake, want)
		}
	}
}

// A late grant of another slot does not raise the token.
func TestALateGrantOfAnotherSlotHasNoToken(t *testing.T) {
	m := newSemaphore(5, 3, false)
	var fx *Effects
	for i, r := range []Reply{{OK: true, Token: 7, Slot: 1}, {OK: true, Token: 99}, {OK: true, Token: 8, Slot: 1}, {OK: true, Token: 8, Slot: 1}} {
		fx = plays(m, answer(Acquire, int32(i), r))
	}
	if got := cellsOf(fx.Calls, Raise); m.Token() != 8 || !slices.Equal(got, []int32{0}) {
		t.Errorf("token %d, raised at %v: want 8, raised at the first cell", m.Token(), got)
	}
}

// mixed grants different slots at the first three cells. It returns how long the machine then waits
// for the other cells, 0 for until the NodeTimeout.
func mixed(t *testing.T, m *Machine, now Time) time.Duration {
	t.Helper()
	for slot := range int32(3) {
		if m.Wake() != m.lastTry() {
			t.Errorf("it stops waiting at %v, before a quorum has answered", m.Wake())
		}
		m.Step(now, reply(Acquire, slot, m.attempt, grantOf(slot)))
	}
	return max(m.Wake()-now.Mono, 0)
}

// abandonAttempt plays the end of an attempt. It returns the time of the next one.
func abandonAttempt(m *Machine) (now Time) {
	now, attempt := Time{m.Wake(), m.Wake()}, m.attempt
	for _, y := range sends(m, now, Event{Kind: Tick}) {
		if y.Do == Yield {
			m.Step(now, replied(y, Reply{First: true}))
		}
	}
	if m.attempt == attempt {
		now = Time{m.Wake(), m.Wake()}
		m.Step(now, Event{Kind: Tick})
	}
	return now
}

// Contenders that were granted different slots do not wait for silent nodes. A TryLock does from
// its second attempt on: leftovers of the dead also make slots differ, and then slow nodes count.
func TestMixedSlotsDoNotWaitForSilentNodes(t *testing.T) {
	for _, tries := range []bool{false, true} {
		m := newSemaphore(5, 3, tries)
		now := at(0)
		for attempt := 1; attempt <= 2; attempt++ {
			waits := mixed(t, m, now)
			if want := tries && attempt > 1; m.Phase() != Asking || (waits == 0 || waits >= time.Second) != want {
				t.Fatalf("TryLock %v, attempt %d: phase %v, waits for %v; waits for the others: want %v", tries, attempt, m.Phase(), waits, want)
			}
			if attempt == 1 {
				now = abandonAttempt(m)
			}
		}
	}
}

// Nor does a caller that was refused before wait for slow nodes, unless its slots keep differing.
func TestMixedSlotsWaitForSlowNodesInTheEnd(t *testing.T) {
	m := newSemaphore(5, 3, false)
	m.trip = slowMinority
	refused(m, int32(len(m.Cells)))
	plays(m, Event{Kind: Turn, Cell: 0}, Event{Kind: Turn, Cell: 1}, Event{Kind: Turn, Cell: 2})
	now := at(0)
	for attempt := 1; attempt <= 4; attempt++ {
		if waits := mixed(t, m, now); waits != 3*grace {
			t.Fatalf("attempt %d waits for %v, want three round trips to the nearest quorum, or %v", attempt, waits, 3*grace)
		}
		now = abandonAttempt(m)
	}
	if waits := mixed(t, m, now); waits < 3*slowMinority(4) {
		t.Errorf("after that it waits for %v, want three round trips to the slow nodes", waits)
	}
}

// If no other caller had the lock, leftovers of a dead caller make slots differ: only slow nodes
// help. A TryLock has no time for short attempts.
func TestMixedSlotsWaitForSlowNodesIfNobodyContends(t *testing.T) {
	const want = 300 * time.Millisecond // three round trips to the slow nodes
	for _, tries := range []bool{false, true} {
		m := newSemaphore(5, 3, tries)
		m.trip = slowMinority
		if waits := mixed(t, m, at(0)); waits != want {
			t.Errorf("TryLock %v waits for %v, want %v", tries, waits, want)
		}
		m = newSemaphore(5, 3, tries) // the dead have all slots of one node
		m.trip = slowMinority
		plays(m, answer(Acquire, 2, heldByOther))
		grantsSlots(m, 0, 1)
		if waits := m.Wake() - at(0).Mono; waits != want {
			t.Errorf("TryLock %v that was refused waits for %v, want %v", tries, waits, want)
		}
	}
}

func slowMinority(cell int) time.Duration {
	return []time.Duration{ms, ms, ms, 100 * ms, 100 * ms}[cell]
}
