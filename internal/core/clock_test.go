package core

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
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
	c := &Config{TTL: 10 * time.Second, NodeTimeout: time.Second, Drift: quorumlock.DefaultDrift(), Renew: true}
	m := New(c, func(int) time.Duration { return 0 }, 1)
	now := Time{Mono: time.Hour, Boot: time.Hour}
	fx := m.Step(now, Event{Kind: Start})
	m.Step(now, Event{Kind: Replied, Call: fx.Calls[0], Reply: Reply{OK: true, Token: 1}})
	fx = m.Step(now, Event{Kind: Extend})
	renew := fx.Calls[0]
	until := m.Until()
	now = Time{now.Mono + time.Millisecond, now.Boot + c.TTL}
	if fx = m.Step(now, Event{Kind: Replied, Call: renew, Reply: Reply{OK: true}}); fx.Lost != NotRenewed {
		t.Errorf("loss %d, want %d: the lease had ended when the answer came", fx.Lost, NotRenewed)
	}
	if m.Until() != until {
		t.Error("the deadline of a lease that had ended was moved")
	}
}

// The computer was suspended during the attempt. The timer of the deadline fires as much earlier.
func TestADeadlineCountsASuspendBeforeTheGrant(t *testing.T) {
	c := &Config{TTL: 10 * time.Second, NodeTimeout: time.Minute, Drift: quorumlock.DefaultDrift()}
	m := New(c, func(int) time.Duration { return 0 }, 1)
	now := Time{Mono: time.Hour, Boot: time.Hour}
	fx := m.Step(now, Event{Kind: Start})
	const suspended = 3 * time.Second
	now.Boot += suspended
	m.Step(now, Event{Kind: Replied, Call: fx.Calls[0], Reply: Reply{OK: true, Token: 1}})
	if got, want := m.Wake(), m.Until()-suspended; got != want {
		t.Errorf("the timer runs until %v, want %v", got, want)
	}
}
