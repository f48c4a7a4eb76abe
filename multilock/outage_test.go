package multilock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// outages are the ways in which servers go away and come back.
var outages = map[string]struct{ begin, end func(*embedded.Server) }{
	"dead":   {(*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(true) }},
	"frozen": {(*embedded.Server).Stall, (*embedded.Server).Resume},
}

// A MultiLock waits for a member whose nodes are away. Meanwhile others have its healthy member. When
// the nodes are back, the MultiLock is first.
func TestAMultiLockLetsOthersPassWhileAMemberIsAway(t *testing.T) {
	for name, away := range outages {
		for kind, member := range map[string]func(*redlock.Client) (mine, others quorumlock.Locker){
			"a mutex": func(c *redlock.Client) (_, _ quorumlock.Locker) { return c.Mutex("x"), c.Mutex("x") },
			"a reader": func(c *redlock.Client) (_, _ quorumlock.Locker) {
				return c.RWMutex("x").RLocker(), c.RWMutex("x")
			},
			"a slot": func(c *redlock.Client) (_, _ quorumlock.Locker) { return c.Semaphore("x", 1), c.Semaphore("x", 1) },
		} {
			testkit.Run(t, name+", and "+kind, func(t *testing.T) {
				c, near := testkit.Client(t, 3)
				far, servers := testkit.Client(t, 3)
				other, _ := testkit.Another(t, near)
				testkit.Warm(t, c)
				testkit.Warm(t, far)
				healthy, _ := member(c)
				_, alone := member(other)
				testkit.Each(servers[1:], away.begin)
				waits := testkit.Go(func() *quorumlock.Lease {
					return testkit.MustLock(t, testkit.Multi(t, healthy, far.Mutex("away")))
				})
				time.Sleep(1500 * time.Millisecond) // the first attempt fails

				ctx, stop := context.WithCancel(t.Context())
				var passes, longest atomic.Int64
				others := testkit.Go(func() error {
					for {
						began := time.Now()
						lease, err := alone.Lock(ctx)
						if err != nil {
							return nil
						}
						longest.Store(max(longest.Load(), int64(time.Since(began))))
						passes.Add(1)
						time.Sleep(20 * time.Millisecond)
						testkit.MustUnlock(t, lease)
					}
				})
				time.Sleep(20 * time.Second)
				if n, d := passes.Load(), time.Duration(longest.Load()); n < 950 || d > 20*time.Millisecond {
					t.Errorf("in 20 s the others had %d grants, and waited up to %v", n, d)
				}
				testkit.Each(servers[1:], away.end)
				back := time.Now()
				lease := <-waits
				testkit.Took(t, back, 0, 2*time.Second, "Lock after the nodes are back")
				before := passes.Load()
				time.Sleep(time.Second)
				testkit.Equal(t, passes.Load(), before, "grants of the others while the MultiLock holds")
				stop()
				<-others
				testkit.Unlock(t, lease)
				time.Sleep(2 * time.Second)
				testkit.Nothing(t, near)
				testkit.Nothing(t, servers)
			})
		}
	}
}

// Callers of two groups of nodes, and of both, while the groups come and go: nobody is inside with
// another, all are served, and nothing is left.
func TestMultiLocksOverTwoGroupsOutlastTheOutagesOfEach(t *testing.T) {
	for seed := range uint64(testkit.Thorough(20, 4)) {
		testkit.Run(t, fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var groups [2][]*embedded.Server
			for i := range groups {
				groups[i], _ = testkit.Nodes(t, 3)
			}
			sets := [][]int{{0}, {1}, {0, 1}, {1, 0}, {0, 1}, {1, 0}}
			var inside [2]atomic.Int32
			var wg sync.WaitGroup
			for i, set := range sets {
				var members []quorumlock.Locker
				for _, g := range set {
					c, _ := testkit.Another(t, groups[g])
					members = append(members, c.Mutex("x"))
				}
				lock := testkit.Multi(t, members...)
				wg.Go(func() {
					for range 40 {
						lease, err := lock.Lock(t.Context())
						if err != nil {
							t.Errorf("caller %d: %v", i, err)
							return
						}
						for _, g := range set {
							if inside[g].Add(1) != 1 {
								t.Errorf("caller %d is inside with another", i)
							}
						}
						time.Sleep(20 * time.Millisecond)
						for _, g := range set {
							inside[g].Add(-1)
						}
						_ = lease.Unlock(t.Context()) // a group may be away
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
			for range 10 {
				time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
				group := groups[random.IntN(2)]
				first := random.IntN(2)
				away := outages[[]string{"dead", "frozen"}[random.IntN(2)]]
				testkit.Each(group[first:first+2], away.begin)
				time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
				testkit.Each(group[first:first+2], away.end)
			}
			began := time.Now()
			wg.Wait()
			testkit.Took(t, began, 0, 20*time.Second, "the rest, after the outages")
			time.Sleep(3 * time.Second)
			for _, servers := range groups {
				testkit.Nothing(t, servers)
			}
		})
	}
}
