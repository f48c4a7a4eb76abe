package quorum

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
)

// Whoever had a clock that was ahead is not the last in every queue once the clock is right.
func TestTicketsFollowAClockThatIsSetBack(t *testing.T) {
	now := time.Now()
	c := NewClient("test")
	c.now = func() time.Time { return now }
	first := c.nextTicket()
	now = now.Add(-time.Millisecond)
	if second := c.nextTicket(); second != first+1 {
		t.Errorf("a ticket %d µs after the last, want 1", second-first)
	}
	now = now.Add(-time.Hour)
	if got := c.nextTicket(); got != now.UnixMicro() {
		t.Errorf("the ticket is %d µs ahead of the clock, want it to be what the clock shows", got-now.UnixMicro())
	}
}

// A call that waits since before the clock was set back is not the last in every queue either.
func TestTheTicketOfAWaiterFollowsAClockThatIsSetBack(t *testing.T) {
	now := time.Now()
	c := NewClient("test")
	c.now = func() time.Time { return now }
	w := &call{lock: &Lock{client: c}, machine: core.New(&core.Config{Tree: core.Majority(1, 1)}, nil, 1)}
	w.caller.Ticket = now.UnixMicro()
	if got := w.entry().Ticket; got != now.UnixMicro() {
		t.Errorf("the ticket is changed by %d µs", got-now.UnixMicro())
	}
	now = now.Add(-time.Hour)
	if got := w.entry().Ticket; got != now.UnixMicro()+sameTicket {
		t.Errorf("the ticket is %d µs ahead of the clock, want %d", got-now.UnixMicro(), sameTicket)
	}
}
