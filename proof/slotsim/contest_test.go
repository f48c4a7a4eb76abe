package slotsim

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/quorum/engine"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// calm is a schedule without faults, except that the last nodes can be silent or slow. Each message
// takes between near and far; to or from a slow node it takes lag longer. Each holder keeps its
// slot for hold.
type calm struct {
	permits, callers int
	near, far, hold  time.Duration
	each             time.Duration // how long a script keeps its node busy
	minority
}

type minority struct {
	silent, slow int
	lag          time.Duration
}

// newCalm is a calm schedule of five nodes without callers.
func newCalm(seed uint64, c *calm) *sim {
	s := newSim(seed, false)
	s.calm, s.permits, s.quorum, s.lossy, s.ttl, s.limit = c, c.permits, 3, 0, 10*time.Second, 500*time.Millisecond
	s.nodes, s.health = nil, nil
	for range 5 {
		s.nodes, s.health = append(s.nodes, scriptmodel.New(epoch-1e9)), append(s.health, &engine.Health{})
	}
	s.down, s.queues = make([]time.Duration, 5), make([][]func() bool, 5)
	for i := range c.silent {
		s.down[4-i] = 1 << 60
	}
	return s
}

// contest lets callers take a slot again and again, of five nodes in virtual time, for a warm-up
// and then for some holds. It returns the grants, handoffs, scripts and time of these holds.
func contest(seed uint64, c calm, holds int) (grants, handed, scripts int, while time.Duration) {
	s := newCalm(seed, &c)
	for i := range c.callers {
		w := &worker{sim: s, number: i, members: []member{{name: name, permits: c.permits}}, left: 1 << 30}
		s.after(time.Duration(i)*c.far, w.next)
	}
	playTo := func(until time.Duration) {
		for s.events[0].at < until && s.bad == "" {
			s.play()
		}
	}
	warm := time.Duration(c.callers) * (c.hold + 4*c.far)
	while = time.Duration(holds) * c.hold
	playTo(warm)
	grants, handed, scripts = s.grants, s.handed, s.scripts
	playTo(warm + while)
	if s.bad != "" {
		panic(s.bad)
	}
	return s.grants - grants, s.handed - handed, s.scripts - scripts, while
}

const ms = time.Millisecond

// Callers with different slots at different nodes give way to each other. They do not wait for
// silent or slow nodes.
func TestSilentAndSlowNodesCostASemaphoreNothing(t *testing.T) {
	for name, c := range map[string]calm{
		"eight slots, nine callers":      {8, 9, 50 * time.Microsecond, 350 * time.Microsecond, 100 * ms, 0, minority{}},
		"eight slots, 16 callers":        {8, 16, 50 * time.Microsecond, 350 * time.Microsecond, 50 * ms, 0, minority{}},
		"eight slots, 64 callers":        {8, 64, 50 * time.Microsecond, 350 * time.Microsecond, 20 * ms, 0, minority{}},
		"two slots, three callers":       {2, 3, 50 * time.Microsecond, 350 * time.Microsecond, 20 * ms, 0, minority{}},
		"one slot, three callers":        {1, 3, 50 * time.Microsecond, 350 * time.Microsecond, 20 * ms, 0, minority{}},
		"two slots, three callers, far":  {2, 3, 5 * ms, 6 * ms, 100 * ms, 0, minority{}},
		"eight slots, nine callers, far": {8, 9, 5 * ms, 6 * ms, 200 * ms, 0, minority{}},
	} {
		t.Run(name, func(t *testing.T) {
			healthy, _, _, _ := contest(1, c, 100)
			for _, c.minority = range []minority{{silent: 1}, {silent: 2}, {slow: 1, lag: 100 * ms}, {slow: 2, lag: 100 * ms}} {
				if got, _, _, _ := contest(1, c, 100); got < healthy*9/10 {
					t.Errorf("%+v: %d grants, want at least 90 %% of the %d with all nodes", c.minority, got, healthy)
				}
			}
		})
	}
}

// BenchmarkContest measures the use of the slots without the cost of processors. Its time for an
// operation means nothing.
func BenchmarkContest(b *testing.B) {
	const us = time.Microsecond
	for _, permits := range []int{1, 8} {
		for _, c := range []calm{
			{permits, 64, 50 * us, 50 * us, ms, 0, minority{}}, {permits, 64, 50 * us, 150 * us, ms, 0, minority{}},
			{permits, 64, 50 * us, 350 * us, ms, 0, minority{}}, {permits, 64, 50 * us, ms, ms, 0, minority{}},
			{permits, 64, 50 * us, 350 * us, ms, 0, minority{silent: 1}}, {permits, 64, 50 * us, 350 * us, ms, 0, minority{silent: 2}},
			{permits, 64, 50 * us, 350 * us, ms, 0, minority{slow: 1, lag: 50 * ms}}, {permits, 64, 50 * us, 350 * us, ms, 0, minority{slow: 2, lag: 50 * ms}},
			{permits, 64, 50 * us, 350 * us, 20 * ms, 0, minority{}}, {permits, 64, 5 * ms, 6 * ms, 20 * ms, 0, minority{}},
		} {
			b.Run(fmt.Sprintf("slots %d, messages %v to %v, hold %v, silent %d, slow %d", permits, c.near, c.far, c.hold, c.silent, c.slow), func(b *testing.B) {
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
