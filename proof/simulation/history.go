package simulation

import (
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/proof/fleet"
)

// history has the calls on the latch, and their results. The world's mutex guards all of it.
type history struct {
	clock  int64 // counts calls and returns, to order those of one instant
	calls  []*latchCall
	openAt time.Time // when the last process saw it open, with everything well
}

// latchCall is one call on the latch.
type latchCall struct {
	what             ask
	id               int
	toTheEnd         bool // a Wait without a limit
	proc             *process
	called, returned int64
	to               time.Time
	count            int
	err              error
}

// ask is a kind of call on a latch.
type ask int

const (
	nothing ask = iota
	adds
	waits
	counts
)

func (a ask) String() string { return [...]string{"nothing", "Done", "Wait", "Count"}[a] }

func (c *latchCall) String() string {
	what := c.what.String()
	switch c.what {
	case adds:
		what += fmt.Sprintf("(%d)", c.id)
	case counts:
		what += fmt.Sprintf(" = %d", c.count)
	}
	return fmt.Sprintf("%v: %s, from %d to %d: %s", c.proc, what, c.called, c.returned, sort(c.err))
}

func (h *history) call(c *latchCall) *latchCall {
	h.clock++
	c.called = h.clock
	h.calls = append(h.calls, c)
	return c
}

func (h *history) returned(c *latchCall, n int, err error) {
	h.clock++
	c.returned, c.to, c.count, c.err = h.clock, time.Now(), n, err
}

// checkLatch checks the whole history of the latch. It is called with the world's mutex held.
func (w *world) checkLatch() {
	p, h := w.plan, &w.history
	var calls []fleet.SetCall
	for _, c := range h.calls {
		size := c.count
		if c.what == waits {
			size = p.Latch
		}
		calls = append(calls, fleet.SetCall{Adds: c.what == adds, ID: c.id, Size: size, Called: c.called, Returned: c.returned, OK: c.err == nil})
	}
	if !fleet.IsSet(p.Latch, calls) {
		w.violateLocked(oneSet, "the calls are not linearizable: %v", h.calls)
	}
	var open time.Time // the return of the first call that saw it open
	for _, c := range h.calls {
		says := c.what == waits || c.what == counts && c.count == p.Latch
		if says && c.err == nil && (open.IsZero() || c.to.Before(open)) {
			open = c.to
		}
	}
	for _, c := range h.calls {
		if !c.toTheEnd || c.proc.dead {
			continue
		}
		if late := c.to.Sub(h.openAt); c.err != nil || late > 5*time.Second+2*p.NodeTimeout+w.watch.slack() {
			w.violateLocked(waitEnds, "%v late, %v", late, c)
		}
		if late := c.to.Sub(open); p.Class == calm && late > 20*time.Millisecond+40*p.Latency {
			w.violateLocked(waitTold, "%v late, with nothing wrong: %v", late, c)
		}
	}
}
