package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest/wallclock"
)

// The wall clock may step while a process runs. Callers are still served in the order of calls.
func TestTicketsDoNotFollowAWallClockThatIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		c := NewClient("test")
		defer c.Close()
		c.Simulate(func() time.Time { return wallclock.Now(ahead) }, nil, nil)
		first := c.nextTicket()
		if second := c.nextTicket(); second != first+1 {
			t.Errorf("a ticket %d µs after the last, want 1", second-first)
		}
		for _, ahead = range []time.Duration{-time.Hour, time.Hour} {
			before := c.nextTicket()
			time.Sleep(time.Second)
			if got := time.Duration(c.nextTicket()-before) * time.Microsecond; (got - time.Second).Abs() > time.Millisecond {
				t.Errorf("with the wall clock %v ahead: a ticket %v after the last, want a second", ahead, got)
			}
		}
	})
}
