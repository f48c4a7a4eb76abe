package queue

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

var contests = flag.Int("contests", locktest.Thorough(20, 5), "how many contests TestSplitVotes has for each distance")

// Regions that are far from each other have a node and a contender each. All contenders call Lock
// within a round trip between regions, and votes split. One has the lock a few round trips after
// the first call. With -v it prints the figures of docs/nodes.md; time is virtual, so computing
// takes none.
func TestSplitVotesEndInAFewRoundTrips(t *testing.T) {
	const near = 500 * time.Microsecond // a round trip to the node of one's own region
	contests := *contests
	t.Log("regions, round trip between them | split | first grant after the first call: p50, p99, most | from an unlock to the next grant: p50, p99")
	for _, regions := range []int{3, 5} {
		for _, far := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
			locktest.Run(t, fmt.Sprint(regions, " regions, ", far), func(t *testing.T) {
				_, servers := locktest.Client(t, regions)
				var won atomic.Bool // by a first attempt
				seen := locktest.Observer(func(e quorumlock.Event) {
					if e.Kind == quorumlock.Acquired && e.Attempts == 1 && !e.Handed {
						won.Store(true)
					}
				})
				clients := make([]*redlock.Client, regions)
				for i := range clients {
					c, paths := locktest.Another(t, servers, quorumlock.WithObserver(seen))
					locktest.Warm(t, c)
					for j, p := range paths {
						if p.Delay(far / 2); i == j {
							p.Delay(near / 2)
						}
					}
					clients[i] = c
				}
				rng := rand.New(rand.NewPCG(1, uint64(far)))
				split := 0
				var firsts, handoffs []time.Duration
				for n := range contests {
					m := fmt.Sprint("x", n)
					won.Store(false)
					calls := make([]time.Time, regions)
					grants := make([]time.Time, regions)
					frees := make([]time.Time, regions)
					var all sync.WaitGroup
					for i, c := range clients {
						pause := time.Duration(rng.Int64N(int64(far)))
						all.Go(func() {
							time.Sleep(pause)
							calls[i] = time.Now()
							lease, err := c.Mutex(m).Lock(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							grants[i] = time.Now()
							time.Sleep(500 * time.Millisecond)
							frees[i] = time.Now()
							_ = lease.Unlock(t.Context()) // it answers to nobody here
						})
					}
					all.Wait()
					slices.SortFunc(calls, time.Time.Compare)
					slices.SortFunc(grants, time.Time.Compare)
					slices.SortFunc(frees, time.Time.Compare)
					firsts = append(firsts, grants[0].Sub(calls[0]))
					for i := 1; i < regions; i++ {
						handoffs = append(handoffs, grants[i].Sub(frees[i-1]))
					}
					if !won.Load() {
						split++
					}
				}
				slices.Sort(firsts)
				slices.Sort(handoffs)
				at := func(d []time.Duration, percent int) time.Duration {
					return d[(len(d)-1)*percent/100].Round(100 * time.Microsecond)
				}
				t.Logf("%d regions, %v | %d %% | %v, %v, %v | %v, %v", regions, far, split*100/contests,
					at(firsts, 50), at(firsts, 99), at(firsts, 100), at(handoffs, 50), at(handoffs, 99))
				if most := at(firsts, 100); most > 12*far+20*time.Millisecond {
					t.Errorf("the first grant came %v after the first call", most)
				}
			})
		}
	}
}
