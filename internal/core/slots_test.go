package core

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// newSemaphore returns a machine over n cells of a semaphore after Start, and its calls.
func newSemaphore(t *testing.T, n, permits int, tries bool) (*Machine, []Call) {
	t.Helper()
	drift := quorumlock.Drift{}
	config := &Config{
		Tree: Majority(n/2+1, n), TTL: 10 * time.Second, HandTTL: 1800 * time.Millisecond, NodeTimeout: time.Second,
		Drift: drift, Renew: true, Tries: tries, Slots: []Slots{{0, n, permits}},
	}
	m := New(config, func(int) time.Duration { return time.Millisecond }, 1)
	return m, callsOf(m.Step(Time{}, Event{Kind: Start}))
}

func callsOf(fx *Effects) []Call { return append([]Call(nil), fx.Calls...) }

func grantsSlot(m *Machine, at Time, c Call, slot int32) *Effects {
	return m.Step(at, Event{Kind: Replied, Call: c, Reply: Reply{OK: true, Token: 7, Slot: slot}})
}

func cellsOf(all []Call, do Do) (cells []int32) {
	for _, c := range all {
		if c.Do == do {
			cells = append(cells, c.Cell)
		}
	}
	return cells
}

// If different slots counted together, three nodes would admit three holders of two permits.
func TestDifferentSlotsAreNoQuorum(t *testing.T) {
	m, asked := newSemaphore(t, 3, 3, false)
	var fx *Effects
	for i, slot := range []int32{0, 1, 2} {
		if fx = grantsSlot(m, Time{}, asked[i], slot); fx.Outcome != Undecided {
			t.Fatalf("with %d cells: outcome %v", i+1, fx.Outcome)
		}
	}
	if got := cellsOf(fx.Calls, Yield); len(got) != 3 {
		t.Errorf("it gives back what cells %v gave, want all three: %+v", got, fx.Calls)
	}
}

func TestDifferentHandoffsAreNoQuorum(t *testing.T) {
	m, asked := newSemaphore(t, 3, 3, false)
	for _, c := range asked {
		m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: Reply{TTL: time.Second, Holder: "a:1.1"}})
	}
	for i, slot := range []int32{0, 1, 2} {
		fx := m.Step(Time{}, Event{Kind: Handoff, Cell: int32(i), Attempt: 1, Token: 7, Slot: slot})
		if fx.Outcome != Undecided || m.Phase() >= Agreeing && m.Phase() != Waiting && m.Phase() != Asking {
			t.Fatalf("after %d handoffs: outcome %v, phase %v", i+1, fx.Outcome, m.Phase())
		}
	}
	if fx := m.Step(Time{10 * time.Millisecond, 10 * time.Millisecond}, Event{Kind: Tick}); attemptOf(m) == 1 {
		t.Errorf("handoffs that are no quorum are kept: %+v", fx)
	}
}

// If a cell hands over when the successor already has the slot, the waiter has left the queue
// there. But another slot is not part of the hold, and the release must leave the queue.
func TestALateHandoffOfAnotherSlotIsNotPartOfTheHold(t *testing.T) {
	for slot, want := range map[int32]Do{0: Release, 1: ReleaseAndLeave} {
		m, asked := newSemaphore(t, 3, 3, false)
		for _, c := range asked {
			m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: Reply{TTL: time.Second, Holder: "a:1.1"}})
		}
		var fx *Effects
		for cell := range int32(2) {
			fx = m.Step(Time{}, Event{Kind: Handoff, Cell: cell, Attempt: 1, Token: 7, Slot: 0})
		}
		if fx.Outcome != Acquired {
			t.Fatalf("outcome %v", fx.Outcome)
		}
		m.Step(Time{}, Event{Kind: Handoff, Cell: 2, Attempt: 1, Token: 7, Slot: slot})
		if got := calls(m.Step(Time{}, Event{Kind: Unlock}), 2); len(got) != 1 || got[0] != want {
			t.Errorf("slot %d: the cell is asked for %v, want %v", slot, got, want)
		}
	}
}

// A cell that granted another slot is moved to that of the hold, and does not count before.
func TestACellWithAnotherSlotIsMoved(t *testing.T) {
	m, asked := newSemaphore(t, 5, 3, false)
	var fx *Effects
	for i, slot := range []int32{2, 1, 2, 2} {
		fx = grantsSlot(m, Time{}, asked[i], slot)
	}
	if fx.Outcome != Acquired || m.Slot() != 2 {
		t.Fatalf("outcome %v, slot %d", fx.Outcome, m.Slot())
	}
	moved := func(fx *Effects, cell int32) {
		t.Helper()
		for _, c := range fx.Calls {
			if c.Do == Restore && c.Cell == cell && c.Slot == 2 {
				return
			}
		}
		t.Errorf("cell %d is not moved to slot 2: %+v", cell, fx.Calls)
	}
	moved(fx, 1)
	moved(grantsSlot(m, Time{}, asked[4], 0), 4)
	fx = m.Step(Time{time.Second, time.Second}, Event{Kind: Extend})
	for _, c := range cellsOf(fx.Calls, Renew) {
		if slot := fx.Calls[c].Slot; slot != 2 {
			t.Errorf("cell %d renews slot %d", c, slot)
		}
	}
}

// The next attempt asks for the slot that most cells granted; in a tie, for that of the first cell.
func TestTheNextAttemptAsksForOneSlot(t *testing.T) {
	m, asked := newSemaphore(t, 3, 9, true)
	var fx *Effects
	for i, slot := range []int32{7, 3, 5} {
		fx = grantsSlot(m, Time{}, asked[i], slot)
	}
	for _, c := range callsOf(fx) {
		m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: Reply{}})
	}
	fx = m.Step(Time{5 * time.Millisecond, 5 * time.Millisecond}, Event{Kind: Tick})
	if got := cellsOf(fx.Calls, Acquire); len(got) != 3 {
		t.Fatalf("a TryLock that got different slots does not try again: %+v", fx)
	}
	for _, c := range fx.Calls {
		if c.Slot != 7 {
			t.Errorf("it asks cell %d for slot %d, want 7", c.Cell, c.Slot)
		}
	}
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
			m, asked := newSemaphore(t, 5, 9, false)
			want := tt.want
			if want < 0 {
				want = asked[0].Slot
			} else if want == asked[0].Slot {
				t.Fatal("control: it would ask for that slot anyway")
			}
			for _, c := range asked {
				m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: Reply{TTL: time.Second, Holder: "a:1.1"}})
			}
			var again []Call
			for cell, slot := range tt.named {
				again = callsOf(m.Step(Time{}, Event{Kind: TurnForSlot, Cell: int32(cell), Slot: slot}))
			}
			if got := cellsOf(again, Acquire); len(got) != 5 {
				t.Fatalf("it asks cells %v: %+v", got, again)
			}
			for _, c := range again {
				if c.Slot != want {
					t.Errorf("it asks cell %d for slot %d, want %d", c.Cell, c.Slot, want)
				}
			}
		})
	}
}

// A caller that meets others at free slots asks at once for the slot that most cells named, and no
// other. It also sends the slot from which a cell searches for another one.
func TestACallerThatFindsItsSlotTakenAsksForAnotherOne(t *testing.T) {
	for what, meet := range map[string]func(m *Machine, asked []Call) (again []Call){
		"granted different ones": func(m *Machine, asked []Call) (again []Call) {
			var fx *Effects
			for i, slot := range []int32{7, 3, 5} {
				fx = grantsSlot(m, Time{}, asked[i], slot)
			}
			for i, c := range callsOf(fx) {
				if c.Do != Yield || c.Other < 1 || c.Other > 9 {
					t.Errorf("%+v, want a Yield that asks for a free slot", c)
				}
				again = callsOf(m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: Reply{First: true, Slot: []int32{4, 4, 8}[i]}}))
			}
			return again
		},
		"refused": func(m *Machine, asked []Call) (again []Call) {
			for _, c := range asked[:2] { // two refusals decide
				again = callsOf(m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: Reply{Elsewhere: true, Holder: "a:1.1", Slot: 4}}))
			}
			return again
		},
	} {
		t.Run(what, func(t *testing.T) {
			m, asked := newSemaphore(t, 3, 9, false)
			for _, c := range asked {
				if c.Other != 0 {
					t.Errorf("the first attempt takes no other slot at cell %d", c.Cell)
				}
			}
			again := meet(m, asked)
			if got := cellsOf(again, Acquire); len(got) != 3 {
				t.Fatalf("it asks cells %v at once, want all: %+v", got, again)
			}
			for _, c := range again {
				if c.Slot != 4 || c.Other != again[0].Other || c.Other < 1 || c.Other > 9 {
					t.Errorf("it asks cell %d for slot %d or one from %d on, want slot 4, and one number from 1 to 9", c.Cell, c.Slot, c.Other)
				}
			}
		})
	}
}

// A TryLock does not end while another slot is free.
func TestATryLockAsksForAnotherSlot(t *testing.T) {
	m, asked := newSemaphore(t, 3, 9, true)
	for _, c := range asked {
		m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: Reply{Elsewhere: true, Holder: "a:1.1", Slot: 4}})
	}
	fx := m.Step(Time{5 * time.Millisecond, 5 * time.Millisecond}, Event{Kind: Tick})
	if got := cellsOf(fx.Calls, Acquire); len(got) != 3 || fx.Calls[0].Slot != 4 {
		t.Errorf("%+v, want another attempt, for slot 4", fx)
	}
}

// If others have the slot of a holder at some cells, it renews early, to get the slot there.
func TestAContestedSlotIsRenewedEarly(t *testing.T) {
	for contested, want := range map[bool]time.Duration{false: time.Second, true: renewHanded} {
		m, asked := newSemaphore(t, 3, 9, false)
		m.Step(Time{}, Event{Kind: Replied, Call: asked[0], Reply: Reply{Elsewhere: contested, TTL: time.Second, Holder: "a:1.1", Slot: 4}})
		grantsSlot(m, Time{}, asked[1], 2)
		if fx := grantsSlot(m, Time{}, asked[2], 2); fx.Outcome != Acquired {
			t.Fatalf("outcome %v", fx.Outcome)
		}
		if wake := m.Wake(); wake < want || contested && wake > want {
			t.Errorf("contested %v: the first renewal is after %v, want %v", contested, wake, want)
		}
	}
}

// A late grant of another slot does not raise the token.
func TestALateGrantOfAnotherSlotHasNoToken(t *testing.T) {
	m, asked := newSemaphore(t, 5, 3, false)
	m.Step(Time{}, Event{Kind: Replied, Call: asked[0], Reply: Reply{OK: true, Token: 7, Slot: 1}})
	m.Step(Time{}, Event{Kind: Replied, Call: asked[1], Reply: Reply{OK: true, Token: 99, Slot: 0}})
	m.Step(Time{}, Event{Kind: Replied, Call: asked[2], Reply: Reply{OK: true, Token: 8, Slot: 1}})
	fx := m.Step(Time{}, Event{Kind: Replied, Call: asked[3], Reply: Reply{OK: true, Token: 8, Slot: 1}})
	if got := cellsOf(fx.Calls, Raise); m.Token() != 8 || len(got) != 1 || got[0] != 0 {
		t.Errorf("token %d, raised at %v: want 8, raised at the first cell", m.Token(), got)
	}
}

func attemptOf(m *Machine) int32 { n, _ := m.Attempt(); return n }

// mixed grants different slots at the first three cells. It returns how long the machine then waits
// for the other cells, 0 for until the NodeTimeout.
func mixed(t *testing.T, m *Machine, now Time, asked []Call) time.Duration {
	t.Helper()
	for slot := range int32(3) {
		if m.Wake() != m.lastTry() {
			t.Errorf("it stops waiting at %v, before a quorum has answered", m.Wake())
		}
		grantsSlot(m, now, asked[slot], slot)
	}
	if m.Wake() == 0 {
		return 0
	}
	return m.Wake() - now.Mono
}

// abandonAttempt plays the end of an attempt. It returns the time and the calls of the next one.
func abandonAttempt(m *Machine) (now Time, asked []Call) {
	now = Time{m.Wake(), m.Wake()}
	for _, y := range callsOf(m.Step(now, Event{Kind: Tick})) {
		if y.Do == Yield {
			asked = append(asked, callsOf(m.Step(now, Event{Kind: Replied, Call: y, Reply: Reply{First: true}}))...)
		}
	}
	if len(asked) == 0 {
		now = Time{m.Wake(), m.Wake()}
		asked = callsOf(m.Step(now, Event{Kind: Tick}))
	}
	return now, asked
}

// Contenders that were granted different slots do not wait for silent nodes. A TryLock does from
// its second attempt on: leftovers of the dead also make slots differ, and then slow nodes count.
func TestMixedSlotsDoNotWaitForSilentNodes(t *testing.T) {
	for _, tries := range []bool{false, true} {
		m, asked := newSemaphore(t, 5, 3, tries)
		now := Time{}
		for attempt := 1; attempt <= 2; attempt++ {
			waits := mixed(t, m, now, asked)
			if want := tries && attempt > 1; m.Phase() != Asking || (waits == 0 || waits >= time.Second) != want {
				t.Fatalf("TryLock %v, attempt %d: phase %v, waits for %v; waits for the others: want %v", tries, attempt, m.Phase(), waits, want)
			}
			if attempt == 1 {
				now, asked = abandonAttempt(m)
			}
		}
	}
}

// Nor does a caller that was refused before wait for slow nodes, unless its slots keep differing.
func TestMixedSlotsWaitForSlowNodesInTheEnd(t *testing.T) {
	m, asked := newSemaphore(t, 5, 3, false)
	m.trip = slowMinority
	for _, c := range asked {
		m.Step(Time{}, Event{Kind: Replied, Call: c, Reply: Reply{TTL: time.Second, Holder: "a:1.1"}})
	}
	for cell := range int32(3) {
		asked = callsOf(m.Step(Time{}, Event{Kind: Turn, Cell: cell}))
	}
	now := Time{}
	for attempt := 1; attempt <= 4; attempt++ {
		if waits := mixed(t, m, now, asked); waits != 3*grace {
			t.Fatalf("attempt %d waits for %v, want three round trips to the nearest quorum, or %v", attempt, waits, 3*grace)
		}
		now, asked = abandonAttempt(m)
	}
	if waits := mixed(t, m, now, asked); waits < 3*slowMinority(4) {
		t.Errorf("after that it waits for %v, want three round trips to the slow nodes", waits)
	}
}

// If no other caller had the lock, leftovers of a dead caller make slots differ: only slow nodes
// help. A TryLock has no time for short attempts.
func TestMixedSlotsWaitForSlowNodesIfNobodyContends(t *testing.T) {
	for _, tries := range []bool{false, true} {
		m, asked := newSemaphore(t, 5, 3, tries)
		m.trip = slowMinority
		if waits := mixed(t, m, Time{}, asked); waits != 3*slowMinority(4) {
			t.Errorf("TryLock %v waits for %v, want three round trips to the slow nodes", tries, waits)
		}
		m, asked = newSemaphore(t, 5, 3, tries) // the dead have all slots of one node
		m.trip = slowMinority
		m.Step(Time{}, Event{Kind: Replied, Call: asked[2], Reply: Reply{TTL: time.Second, Holder: "a:1.1"}})
		for slot := range int32(2) {
			grantsSlot(m, Time{}, asked[slot], slot)
		}
		if m.Wake() != 3*slowMinority(4) {
			t.Errorf("TryLock %v that was refused waits for %v, want three round trips to the slow nodes", tries, m.Wake())
		}
	}
}

func slowMinority(cell int) time.Duration {
	const ms = time.Millisecond
	return []time.Duration{ms, ms, ms, 100 * ms, 100 * ms}[cell]
}
