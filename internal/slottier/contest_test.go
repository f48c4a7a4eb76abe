package slottier

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/scriptmodel"
)

// calm is a schedule without faults, but that some nodes never answer. Each message takes near to far, and each holder hold.
type calm struct {
	permits, callers, silent int
	near, far, hold          time.Duration
}

// contest has callers take a slot again and again, of five nodes in virtual time, for a warm-up and then for some holds. It returns
// what happened in these: how many grants there were, how many of them were handed over, and how many scripts.
func contest(seed uint64, c calm, holds int) (grants, handed, scripts int, while time.Duration) {
	s := newSim(seed, false)
	s.calm, s.permits, s.quorum, s.lossy, s.ttl, s.limit = &c, c.permits, 3, 0, 10*time.Second, 500*time.Millisecond
	s.nodes = nil
	for range 5 {
		s.nodes = append(s.nodes, scriptmodel.New(epoch-1e9))
	}
	s.down, s.trips = make([]time.Duration, 5), make([]time.Duration, 5)
	for i := range c.silent {
		s.down[4-i] = 1 << 60
	}
	for i := range c.callers {
		w := &worker{sim: s, number: i, permits: c.permits, left: 1 << 30}
		s.after(time.Duration(i)*c.far, w.next)
	}
	play := func(until time.Duration) {
		for s.events[0].at < until && s.bad == "" {
			e := heap.Pop(&s.events).(event)
			s.now = e.at
			e.do()
		}
	}
	warm := time.Duration(c.callers) * (c.hold + 4*c.far)
	while = time.Duration(holds) * c.hold
	play(warm)
	grants, handed, scripts = s.grants, s.handed, s.scripts
	play(warm + while)
	if s.bad != "" {
		panic(s.bad)
	}
	return s.grants - grants, s.handed - handed, s.scripts - scripts, while
}

const ms = time.Millisecond

// Callers whose slots differ from node to node give way to each other. They do not wait for nodes that are silent.
func TestSilentNodesCostASemaphoreNothing(t *testing.T) {
	for name, c := range map[string]calm{
		"eight slots, nine callers":      {8, 9, 0, 50 * time.Microsecond, 350 * time.Microsecond, 100 * ms},
		"eight slots, 16 callers":        {8, 16, 0, 50 * time.Microsecond, 350 * time.Microsecond, 50 * ms},
		"eight slots, 64 callers":        {8, 64, 0, 50 * time.Microsecond, 350 * time.Microsecond, 20 * ms},
		"two slots, three callers":       {2, 3, 0, 50 * time.Microsecond, 350 * time.Microsecond, 20 * ms},
		"one slot, three callers":        {1, 3, 0, 50 * time.Microsecond, 350 * time.Microsecond, 20 * ms},
		"two slots, three callers, far":  {2, 3, 0, 5 * ms, 6 * ms, 100 * ms},
		"eight slots, nine callers, far": {8, 9, 0, 5 * ms, 6 * ms, 200 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			healthy, _, _, _ := contest(1, c, 100)
			for c.silent = 1; c.silent <= 2; c.silent++ {
				if got, _, _, _ := contest(1, c, 100); got < healthy*9/10 {
					t.Errorf("%d silent: %d grants, want at least 90 %% of the %d with all nodes", c.silent, got, healthy)
				}
			}
		})
	}
}

// BenchmarkContest shows how busy the slots are where the processors cost nothing. Its time for an operation means nothing.
func BenchmarkContest(b *testing.B) {
	const us = time.Microsecond
	for _, permits := range []int{1, 8} {
		for _, c := range []calm{
			{permits, 64, 0, 50 * us, 50 * us, ms}, {permits, 64, 0, 50 * us, 150 * us, ms}, {permits, 64, 0, 50 * us, 350 * us, ms}, {permits, 64, 0, 50 * us, ms, ms},
			{permits, 64, 1, 50 * us, 350 * us, ms}, {permits, 64, 2, 50 * us, 350 * us, ms},
			{permits, 64, 0, 50 * us, 350 * us, 20 * ms}, {permits, 64, 0, 5 * ms, 6 * ms, 20 * ms},
		} {
			b.Run(fmt.Sprintf("slots %d, messages %v to %v, hold %v, silent %d", permits, c.near, c.far, c.hold, c.silent), func(b *testing.B) {
				var grants, handed, scripts int
				var while time.Duration
				for i := range b.N {
					g, h, s, w := contest(uint64(i), c, 500)
					grants, handed, scripts, while = grants+g, handed+h, scripts+s, while+w
				}
				b.ReportMetric(float64(grants)/while.Seconds(), "grants/s")
				b.ReportMetric(100*float64(grants)*c.hold.Seconds()/while.Seconds()/float64(permits), "%held")
				b.ReportMetric(float64(scripts)/float64(grants), "scripts/grant")
				b.ReportMetric(100*float64(handed)/float64(grants), "%handed")
			})
		}
	}
}
