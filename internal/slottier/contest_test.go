package slottier

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/scriptmodel"
)

// calm is a schedule without faults: each message takes near to far, and each holder hold.
type calm struct{ near, far, hold time.Duration }

// contest has 64 callers take a slot again and again, in virtual time, for a warm-up and then for a while. It returns how
// many grants there were in that while, how many of them handed over, and how many scripts.
func contest(seed uint64, permits int, c calm) (grants, handed, scripts int, while time.Duration) {
	const callers = 64
	s := newSim(seed, false)
	s.calm, s.permits, s.quorum, s.lossy, s.ttl = &c, permits, 3, 0, 10*time.Second
	s.nodes = nil
	for range 5 {
		s.nodes = append(s.nodes, scriptmodel.New(epoch-1e9))
	}
	s.down, s.trips = make([]time.Duration, 5), make([]time.Duration, 5)
	for i := range callers {
		w := &worker{sim: s, number: i, permits: permits, left: 1 << 30}
		s.after(time.Duration(i)*c.far, w.next)
	}
	warm := callers * (c.hold + 4*c.far)
	while = 500 * c.hold
	play := func(until time.Duration) {
		for s.events[0].at < until && s.bad == "" {
			e := heap.Pop(&s.events).(event)
			s.now = e.at
			e.do()
		}
	}
	play(warm)
	grants, handed, scripts = s.grants, s.handed, s.scripts
	play(warm + while)
	if s.bad != "" {
		panic(s.bad)
	}
	return s.grants - grants, s.handed - handed, s.scripts - scripts, while
}

// BenchmarkContest shows how busy the slots are where the processors cost nothing. Its time an operation means nothing.
func BenchmarkContest(b *testing.B) {
	const us = time.Microsecond
	for _, permits := range []int{1, 8} {
		for _, c := range []calm{{50 * us, 50 * us, 1000 * us}, {50 * us, 150 * us, 1000 * us}, {50 * us, 350 * us, 1000 * us}, {50 * us, 1000 * us, 1000 * us}, {50 * us, 350 * us, 20_000 * us}, {5000 * us, 6000 * us, 20_000 * us}} {
			b.Run(fmt.Sprintf("%d slots, %v to %v, hold %v", permits, c.near, c.far, c.hold), func(b *testing.B) {
				var grants, handed, scripts int
				var while time.Duration
				for i := range b.N {
					g, h, s, w := contest(uint64(i), permits, c)
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
