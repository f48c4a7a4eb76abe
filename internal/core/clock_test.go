package core

import (
	"testing"
	"time"
)

// The computer was suspended, with every timer. A renewal is answered before the timer of the
// deadline fires: the lease is over all the same.
func TestDeadlineThatPassedInSuspendIsNotMovedByALateAnswer(t *testing.T) {
	m := begin(config(Tree{}))
	plays(m, answer(Acquire, 0, grant), extend)
	until := m.Until()
	now := at(time.Millisecond)
	now.Boot += m.cfg.TTL
	if fx := m.Step(now, renewal(0, Reply{OK: true})); fx.Lost != NotRenewed {
		t.Errorf("loss %d, want %d: the lease had ended when the answer came", fx.Lost, NotRenewed)
	}
	if m.Until() != until {
		t.Error("the deadline of a lease that had ended was moved")
	}
}

// The computer was suspended during the attempt. The timer of the deadline fires as much earlier.
func TestADeadlineCountsASuspendBeforeTheGrant(t *testing.T) {
	const suspended = 3 * time.Second
	c := config(Tree{})
	c.Renew, c.NodeTimeout = false, time.Minute
	m, now := begin(c), at(0)
	now.Boot += suspended
	m.Step(now, answer(Acquire, 0, grant))
	if got, want := m.Wake(), m.Until()-suspended; got != want {
		t.Errorf("the timer runs until %v, want %v", got, want)
	}
}

// Close ends a call that has not won yet. A hold is lost.
func TestCloseEndsWhatAMachineDoes(t *testing.T) {
	closed := Event{Kind: Close}
	if fx := plays(start(2, 3), closed); fx.Outcome != Failed || fx.Reason != Cancelled || fx.Lost != NoReason {
		t.Errorf("while it asks: %+v", fx)
	}
	m := holding(0, 1, 2)
	if fx := plays(m, closed); m.Phase() != Losing || fx.Lost != Closed {
		t.Errorf("while it holds: phase %d, %+v", m.Phase(), fx)
	}
	if fx := plays(m, closed); m.Phase() != Losing || fx.Outcome != Undecided || fx.Lost != NoReason {
		t.Errorf("once more: phase %d, %+v", m.Phase(), fx)
	}
}
