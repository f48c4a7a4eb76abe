package simulation

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/anishathalye/porcupine"
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

// set is the model of a latch: a set of ids in one place, n of which open it.
func set(n int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, _ any) (bool, any) {
			ids, c := state.(uint64), input.(*latchCall)
			is := min(bits.OnesCount64(ids), n)
			switch c.what {
			case adds:
				return true, ids | 1<<c.id
			case waits:
				return is == n, ids
			}
			return is == c.count, ids
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
	}
}

// isLinearizable reports whether a single set would allow some order of the calls. A Done that
// failed may add its id at any later time, or never; other failed calls do not count.
func isLinearizable(n int, calls []*latchCall) bool {
	var ops []porcupine.Operation
	for i, c := range calls {
		o := porcupine.Operation{ClientId: i, Input: c, Call: c.called, Return: c.returned}
		switch {
		case c.err == nil:
		case c.what == adds:
			o.Return = math.MaxInt64
		default:
			continue
		}
		ops = append(ops, o)
	}
	return porcupine.CheckOperations(set(n), ops)
}

// checkLatch checks the whole history of the latch. It is called with the world's mutex held.
func (w *world) checkLatch() {
	p, h := w.plan, &w.history
	if !isLinearizable(p.Latch, h.calls) {
		w.violateLocked(oneSet, "no order of the calls makes sense: %v", h.calls)
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
