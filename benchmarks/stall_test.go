package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The rate after a stall is what is done two rates later: callers who fail for ever have none.
func TestTheRateAfterAStallIsMeasured(t *testing.T) {
	for name, recovers := range map[string]bool{"callers come back": true, "no caller comes back": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := job{Warm: 10 * time.Second, Time: 10 * time.Second, Hold: time.Minute}
				stalls := time.Now().Add(2*j.Warm + 3*j.Time)
				goesOn := stalls.Add(j.Hold + recovery*j.Time)
				take := func(context.Context, string) (func(context.Context) error, error) {
					if time.Now().After(stalls) {
						time.Sleep(time.Until(goesOn))
						if !recovers {
							return nil, errors.New("no lock")
						}
					}
					return func(context.Context) error { return nil }, nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := waves{pause: 100 * time.Millisecond}
				for range 100 {
					go w.run(ctx, "", take)
				}
				f, err := j.watchStall(t.Context(), &w)
				if err != nil {
					t.Fatal(err)
				}
				low, high := 90.0, 110.0
				if !recovers {
					low, high = 0, 0
				}
				if f[before] < 900 || f[before] > 1100 || f[back] < low || f[back] > high {
					t.Errorf("%v pairs/s before, back to %v %%, want 1000 and %v to %v", f[before], f[back], low, high)
				}
				if !recovers && w.locks.Count == 0 {
					t.Error("no failure is counted")
				}
			})
		})
	}
}

func TestAStallIsDrawnOverItsSeconds(t *testing.T) {
	c := &contest{store: inMemory, scene: "3s stall", rounds: rounds{ours: {{before: 8, "1st s": 2, "8th s": 4}}, redsyncName: {nil}}}
	p := stallPanel("3s stall").panel([]*contest{{store: inMemory, scene: "8s stall"}, c})
	if len(p.lines) != 1 || len(p.xs) != len(p.lines[0].ys) || p.lines[0].ys[0] != 8 || p.lines[0].last() != 4 {
		t.Errorf("%+v", p)
	}
}
