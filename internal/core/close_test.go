package core

import "testing"

// Close ends a call that has not won yet. A hold is lost.
func TestCloseEndsWhatAMachineDoes(t *testing.T) {
	m, _ := newSemaphore(t, 3, 1, false)
	if fx := m.Step(Time{}, Event{Kind: Close}); fx.Outcome != Failed || fx.Reason != Cancelled || fx.Lost != NoReason {
		t.Errorf("while it asks: %+v", fx)
	}
	m, asked := newSemaphore(t, 3, 1, false)
	for _, c := range asked {
		grantsSlot(m, Time{}, c, 0)
	}
	if m.Phase() != Holding {
		t.Fatalf("control: phase %d", m.Phase())
	}
	if fx := m.Step(Time{}, Event{Kind: Close}); m.Phase() != Losing || fx.Lost != Closed {
		t.Errorf("while it holds: phase %d, %+v", m.Phase(), fx)
	}
	if fx := m.Step(Time{}, Event{Kind: Close}); m.Phase() != Losing || fx.Outcome != Undecided || fx.Lost != NoReason {
		t.Errorf("once more: phase %d, %+v", m.Phase(), fx)
	}
}
