package latchsim

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is what all processes did, and what was wrong with it. The zero value is empty and safe for concurrent use.
type history struct {
	mu         sync.Mutex
	clock      int64 // counts calls and returns: what comes at one instant has an order, too
	operations []*operation
	problems   []string
	openAt     time.Time // the last process has seen it open
}

// operation is one call.
type operation struct {
	does        string
	id          int
	untilTheEnd bool // a Wait without a limit
	process     int
	called      int64
	returned    int64
	from, to    time.Time
	count       int
	err         error
}

const (
	adds   = "Done"
	waits  = "Wait"
	counts = "Count"
)

func (h *history) call(process int, o operation) *operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o.process, o.called, o.from = process, h.clock, time.Now()
	h.operations = append(h.operations, &o)
	return &o
}

func (h *history) returned(o *operation, count int, err error, problem string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o.returned, o.to, o.count, o.err = h.clock, time.Now(), count, err
	if problem != "" {
		h.problems = append(h.problems, fmt.Sprintf("%s: %v", problem, o))
	}
}

// wrong notes that something is not as it was promised.
func (h *history) wrong(invariant, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, invariant+": "+what)
}

// opened notes that the latch is open, and everything is well.
func (h *history) opened() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.openAt = time.Now()
}

func (o *operation) String() string {
	what := o.does
	switch o.does {
	case adds:
		what = fmt.Sprintf("Done(%d)", o.id)
	case counts:
		what = fmt.Sprintf("Count = %d", o.count)
	}
	return fmt.Sprintf("process %d, %v to %v (%d to %d): %s: %v", o.process, o.from.Sub(epoch), o.to.Sub(epoch), o.called, o.returned, what, o.err)
}

// epoch is when a bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// latch is the model: a set of ids in one place.
func latch(n int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, _ any) (bool, any) {
			ids, o := state.(uint64), input.(*operation)
			done := min(bits.OnesCount64(ids), n)
			switch o.does {
			case adds:
				return true, ids | 1<<o.id
			case waits:
				return done == n, ids
			}
			return done == o.count, ids
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
	}
}

// linearizable reports whether there is an order of the calls that one set would allow. A Done that failed may add its id
// at any later time, or never; other calls that failed say nothing.
func linearizable(n int, operations []*operation) bool {
	var ops []porcupine.Operation
	for i, o := range operations {
		p := porcupine.Operation{ClientId: i, Input: o, Call: o.called, Return: o.returned}
		switch {
		case o.err == nil:
		case o.does == adds:
			p.Return = math.MaxInt64
		default:
			continue
		}
		ops = append(ops, p)
	}
	return porcupine.CheckOperations(latch(n), ops)
}

// check notes what is wrong with the whole of it.
func (h *history) check(p *plan) {
	if !linearizable(p.n, h.operations) {
		h.wrong("linearizable", "no order of the calls makes sense")
	}
	var open time.Time // the first call that says so has returned
	for _, o := range h.operations {
		if says := o.does == waits || o.does == counts && o.count == p.n; says && o.err == nil && (open.IsZero() || o.to.Before(open)) {
			open = o.to
		}
	}
	for _, o := range h.operations {
		if o.does != waits || !o.untilTheEnd || o.err != nil {
			continue
		}
		if late := o.to.Sub(h.openAt); late > 6*time.Second {
			h.wrong("a Wait ends when the latch is open", fmt.Sprintf("%v late: %v", late, o))
		}
		if late := o.to.Sub(open); p.calm && late > 100*time.Millisecond {
			h.wrong("a Wait is told", fmt.Sprintf("%v late, with nothing wrong: %v", late, o))
		}
	}
}
