package coretier

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cost is what schedules cost, all together.
type cost struct {
	grants, handed, attempts, scripts int
	waited                            time.Duration
}

func (c *cost) add(out Outcome) {
	c.grants += out.Grants
	c.handed += out.Handed
	c.attempts += out.Attempts
	c.scripts += out.Scripts
	c.waited += out.Waited
}

// Many rules of the core only make it faster: without them a waiter asks more often, or later. What the first schedules
// cost is always the same, so that it shows if a rule goes missing. After a change that is meant to cost more, or that
// changes what happens by chance, write the new numbers here.
func TestSchedulesCostNoMoreThanTheyDid(t *testing.T) {
	const first = 4000
	want := map[class]cost{
		calm:    {5966, 857, 11070, 97011, 1661312091247},
		bounded: {16129, 1367, 35097, 340063, 6264399456797},
		beyond:  {5705, 541, 12487, 116201, 2200151793940},
	}
	var next atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	got := make(map[class]cost)
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for seed := next.Add(1) - 1; seed < first; seed = next.Add(1) - 1 {
				p := newPlan(uint64(seed))
				out := play(uint64(seed))
				mu.Lock()
				c := got[p.Class]
				c.add(out)
				got[p.Class] = c
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for class, want := range want {
		got := got[class]
		more := func(what string, got, want float64) {
			if got > 1.003*want {
				t.Errorf("seed %d: costs more: %v: %s: %.6g, and it was %.6g", first, class, what, got, want)
			}
		}
		more("scripts", float64(got.scripts), float64(want.scripts))
		more("attempts", float64(got.attempts), float64(want.attempts))
		more("seconds waited", got.waited.Seconds(), want.waited.Seconds())
		more("grants that were not handed over", float64(got.grants-got.handed), float64(want.grants-want.handed))
		more("missing grants", float64(want.grants), float64(got.grants))
		if t.Failed() {
			t.Logf("%v: {%d, %d, %d, %d, %d}", class, got.grants, got.handed, got.attempts, got.scripts, got.waited)
		}
	}
}
