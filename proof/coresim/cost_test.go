package coresim

import (
	"testing"
	"time"
)

// cost is the total cost of several schedules.
type cost struct {
	grants, handed, attempts, scripts int
	waited                            time.Duration
}

func (c *cost) add(out *Outcome) {
	c.grants += out.Grants
	c.handed += out.Handed
	c.attempts += out.Attempts
	c.scripts += out.Scripts
	c.waited += out.Waited
}

// Many rules of the core only make it faster: without them, a waiter asks more often, or later. The
// first plain schedules always cost the same, so a missing rule shows. After a change that is meant
// to cost more, or that changes random choices, write the new numbers here.
const firstSeeds = 4000

var firstCost = [...]cost{
	calm:    {3253, 488, 6266, 55713, 811978212921},
	bounded: {6227, 524, 14420, 153932, 2499950940569},
	beyond:  {2970, 268, 6730, 71006, 1149685701362},
}

// costsNoMore fails if the first schedules cost more than firstCost.
func costsNoMore(t *testing.T, all *[len(firstCost)]cost) {
	for i, want := range firstCost {
		got := all[i]
		more := func(what string, got, want float64) {
			if got > 1.003*want {
				t.Errorf("seed %d: it costs more: %v: %s: %.6g, was %.6g", firstSeeds, class(i), what, got, want)
			}
		}
		more("scripts", float64(got.scripts), float64(want.scripts))
		more("attempts", float64(got.attempts), float64(want.attempts))
		more("seconds waited", got.waited.Seconds(), want.waited.Seconds())
		more("grants that were not handed over", float64(got.grants-got.handed), float64(want.grants-want.handed))
		more("missing grants", float64(want.grants), float64(got.grants))
		if t.Failed() {
			t.Logf("%v: {%d, %d, %d, %d, %d}", class(i), got.grants, got.handed, got.attempts, got.scripts, got.waited)
		}
	}
}
