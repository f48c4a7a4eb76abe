package quorum

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// apart returns t with its monotonic reading put back by d, as if the monotonic clock had stood still
// for so long while the wall clock went on.
func apart(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	moved := at
	(*struct { // time.Time, which says that ext is the monotonic reading, if wall has the flag for it
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&moved)).ext -= int64(d)
	if moved.Sub(at) != -d || !moved.Round(0).Equal(at.Round(0)) {
		t.Fatal("time.Time is not what it was: this test shows nothing")
	}
	return moved
}

// What counts is the clock that says more: the monotonic one may stand still in suspend, and the wall
// clock may be stepped. A wall clock stepped back changes nothing.
func TestElapsedIsWhatTheClockThatSaysMoreSays(t *testing.T) {
	start := time.Now()
	for name, tt := range map[string]struct {
		passed    time.Duration // by the wall clock
		suspended time.Duration // and not by the monotonic one
		want      time.Duration
	}{
		"both agree":               {5 * time.Second, 0, 5 * time.Second},
		"suspended":                {time.Hour, 59 * time.Minute, time.Hour},
		"wall stepped forward":     {time.Hour, time.Hour, time.Hour},
		"wall stepped back":        {time.Second, -time.Hour, time.Hour + time.Second},
		"wall stepped before then": {-time.Hour, -time.Hour - time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			now := apart(t, start.Add(tt.passed), tt.suspended)
			if got := elapsed(start, now); got != tt.want {
				t.Errorf("elapsed is %v, want %v", got, tt.want)
			}
		})
	}
}

// idle is a node that is never asked.
type idle struct{}

func (idle) String() string { return "idle" }

func (idle) Send(context.Context, ...scripts.Call) []scripts.Reply { panic("not to be asked") }

func (idle) Listen(string, func(string)) (stop func()) { panic("not to be listened at") }

// The machine was suspended, and every timer with it. A renewal's answers come before the timer of the
// deadline does: the lease is over all the same.
func TestDeadlineThatPassedInSuspendIsNotMovedByALateAnswer(t *testing.T) {
	set, err := quorumlock.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient("test")
	defer c.Close()
	l := New(c, "x", Tree{}, []Cell{{Node: idle{}, Name: "x"}}, set, nil)
	held := newAttempt(l, newWaiter(l, 1, func() int { return 1 }))
	lease, err := held.begin(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	held.mu.Lock()
	held.start = held.start.Add(-set.TTL) // so long ago, and the timer does not know
	held.mu.Unlock()
	held.extendFrom(time.Now())
	if cause := context.Cause(lease.Context()); !errors.Is(cause, quorumlock.ErrLost) {
		t.Errorf("cause %v, want ErrLost: the lease had ended when the answer came", cause)
	}
	if time.Until(lease.ValidUntil()) > 0 {
		t.Error("the deadline of a lease that had ended was moved")
	}
}
