package slotsim

import (
	"fmt"
	"testing"
	"time"
)

// burst lets callers ask for the free slots of a semaphore at once, and keep their grants. It
// returns the time until all callers have a slot, or all slots are taken, and the scripts in it.
func burst(t *testing.T, seed uint64, permits, callers int, m minority) (while time.Duration, scripts int) {
	c := calm{permits, callers, 50 * time.Microsecond, 350 * time.Microsecond, time.Hour, 0, m}
	s := newCalm(seed, &c)
	for i := range callers {
		s.after(0, (&worker{sim: s, number: i, members: []member{{name: name, permits: permits}}, left: 1}).next)
	}
	for s.grants < min(permits, callers) && s.now < 10*time.Second && s.bad == "" {
		s.play()
	}
	if s.bad != "" || s.now >= 10*time.Second {
		t.Fatalf("seed %d: %d of %d have a slot after %v: %s", seed, s.grants, callers, s.now, s.bad)
	}
	return s.now, s.scripts
}

// Many callers may ask at once for free slots, and a minority of nodes may be silent. Yet a slot
// takes at most five scripts a node more than for a caller alone, which needs one.
func TestFreeSlotsNeedNoContest(t *testing.T) {
	for _, tt := range []struct{ permits, callers, seeds int }{
		{2, 2, 20}, {8, 8, 20}, {64, 32, 5}, {32, 32, 5}, {256, 256, 1}, {1000, 1000, 1},
	} {
		for silent := range 3 {
			t.Run(fmt.Sprintf("%d callers, %d slots, %d silent nodes", tt.callers, tt.permits, silent), func(t *testing.T) {
				var scripts int
				var while time.Duration
				for seed := range tt.seeds {
					w, n := burst(t, uint64(seed), tt.permits, tt.callers, minority{silent: silent})
					scripts, while = scripts+n, max(while, w)
				}
				each := float64(scripts) / float64(tt.seeds*tt.callers*(5-silent))
				t.Logf("%.2f scripts a slot and node; the last had its slot after %v at most", each, while)
				if each > 6 {
					t.Errorf("%.2f scripts a slot and node, want 6 at most", each)
				}
				if while > time.Second {
					t.Errorf("the last had its slot after %v", while)
				}
			})
		}
	}
}
