package core

import (
	"testing"
	"time"
)

// The clock that shows more time counts: the monotonic clock may stand still during a suspend, and
// the other may be stepped. A step back changes nothing.
func TestElapsedIsWhatTheClockThatSaysMoreSays(t *testing.T) {
	for name, tt := range map[string]struct{ mono, boot, want time.Duration }{
		"both agree":          {5 * time.Second, 5 * time.Second, 5 * time.Second},
		"suspended":           {time.Minute, time.Hour, time.Hour},
		"stepped forward":     {0, time.Hour, time.Hour},
		"stepped back":        {time.Hour, time.Second, time.Hour},
		"stepped before then": {time.Second, -time.Hour, time.Second},
	} {
		start := Time{Mono: 7 * time.Hour, Boot: 1000 * time.Hour}
		if got := (Time{start.Mono + tt.mono, start.Boot + tt.boot}).Since(start); got != tt.want {
			t.Errorf("%s: elapsed is %v, want %v", name, got, tt.want)
		}
	}
}

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
