package redlock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// The node timeout is 500 ms in these tests, and the slowest round trip 4 ms. What waits for a node that does not
// answer takes at least 500 ms.

// A waiter comes at every moment around the release: before it, so that it is queued at all nodes; during
// it, so that some nodes refuse the attempt and hand over, and others grant it; and after it.
func TestSilentNodesCostAWaiterThatRacesTheReleaseNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		silent     int
		fall       func(*embedded.Server)
		throughout bool // or from the middle of the hold on: then the silent nodes have the lock as the holder's
	}{
		{"none silent", 0, nil, true},
		{"one of five stalls during the hold", 1, (*embedded.Server).Stall, false},
		{"two of five stall during the hold", 2, (*embedded.Server).Stall, false},
		{"one of five loses all requests", 1, (*embedded.Server).Lose, true},
		{"two of five lose all requests", 2, (*embedded.Server).Lose, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var took []time.Duration
			for rotation := range locktest.Thorough(5, 1) {
				synctest.Test(t, func(t *testing.T) {
					servers, _ := locktest.Nodes(t, 5)
					quiet := []*embedded.Server{servers[1], servers[4]}[:tt.silent]
					took = append(took, raceTheRelease(t, servers, quiet, tt.fall, tt.throughout, rotation)...)
				})
			}
			slices.Sort(took)
			late := len(took) - slices.IndexFunc(took, func(d time.Duration) bool { return d > 100*time.Millisecond })
			worst := took[len(took)-1]
			t.Logf("from Unlock to the grant: median %v, worst %v of %d", took[len(took)/2], worst, len(took))
			if worst > 100*time.Millisecond {
				t.Errorf("%d of %d grants took more than 100 ms, and the worst %v: they waited for a silent node", late, len(took), worst)
			}
		})
	}
}

// raceTheRelease returns how long a waiter took from the Unlock, or from its Lock if that was later, to its grant.
// The waiter is as far from each node as the holder is from another one, by the rotation.
func raceTheRelease(t *testing.T, servers, quiet []*embedded.Server, fall func(*embedded.Server), throughout bool, rotation int) (took []time.Duration) {
	first, near := locktest.Another(t, servers)
	second, far := locktest.Another(t, servers)
	warm(t, first)
	warm(t, second)
	for i := range servers {
		near[i].Delay(time.Duration(i+1) * 400 * time.Microsecond)
		far[i].Delay(time.Duration((i+rotation)%len(servers)+1) * 400 * time.Microsecond)
	}
	if throughout {
		locktest.Each(quiet, fall)
	}
	for i := range 33 {
		ahead := time.Duration(i-8) * 250 * time.Microsecond // of the Unlock, from -2 to 6 ms
		holder := locktest.MustLock(t, first.Mutex("x"))
		time.Sleep(10 * time.Millisecond)
		if !throughout {
			locktest.Each(quiet, fall)
		}
		begin := time.Now()
		got := make(chan *quorumlock.Lease)
		go func() {
			time.Sleep(max(-ahead, 0))
			got <- locktest.MustLock(t, second.Mutex("x"))
		}()
		time.Sleep(max(ahead, 0))
		go locktest.MustUnlock(t, holder)
		lease := <-got
		took = append(took, time.Since(begin.Add(max(ahead, -ahead))))
		locktest.MustUnlock(t, lease)
		if !throughout {
			locktest.Each(quiet, (*embedded.Server).Resume)
		}
		time.Sleep(time.Second * time.Duration(1+10*(i%2))) // a subscription is kept for ten seconds
	}
	locktest.Each(quiet, (*embedded.Server).Resume)
	time.Sleep(quorumlock.DefaultTTL)
	locktest.Nothing(t, servers)
	return took
}

// Under load nearly every grant is a handoff or races one: silent nodes must not set the pace.
func TestContendersAreServedHalfAsFastAtLeastWithTwoOfFiveBlackHoled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		contenders  int
		hold, think time.Duration // think is the longest pause between an Unlock and the next Lock
	}{
		{"eight who come back at once", 8, 2 * time.Millisecond, 0},
		{"eight who come back soon", 8, 0, 10 * time.Millisecond},
		{"two who come back at once", 2, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			healthy := grants(t, 0, tt.contenders, tt.hold, tt.think)
			got := grants(t, 2, tt.contenders, tt.hold, tt.think)
			t.Logf("%d grants with two of five black-holed, %d with none", got, healthy)
			if got < healthy/2 {
				t.Errorf("%d grants with two of five black-holed, %d with none: want at least half", got, healthy)
			}
		})
	}
}

// grants returns how many grants contenders get in 600 ms while some of five nodes lose all requests.
func grants(t *testing.T, silent, contenders int, hold, think time.Duration) (n int) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 5)
		ctx, cancel := context.WithCancel(t.Context())
		store := &locktest.Resource{T: t}
		var wg sync.WaitGroup
		for i := range contenders {
			c, paths := roomy(t, servers)
			warm(t, c)
			for j, p := range paths {
				wander(p, uint64(10*i+j))
			}
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			wg.Go(func() {
				for ctx.Err() == nil {
					lease, err := c.Mutex("x").Lock(ctx)
					if err != nil {
						return
					}
					store.Enter(lease)
					time.Sleep(hold)
					store.Leave(lease)
					locktest.MustUnlock(t, lease)
					time.Sleep(upTo(rng, think+1))
				}
			})
		}
		locktest.Each(servers[:silent], (*embedded.Server).Lose)
		time.Sleep(200 * time.Millisecond)
		before := store.Grants()
		time.Sleep(600 * time.Millisecond)
		n = store.Grants() - before
		cancel()
		wg.Wait()
		locktest.Each(servers[:silent], (*embedded.Server).Resume)
		time.Sleep(quorumlock.DefaultTTL)
	})
	return n
}

// wander makes every script take between 0.5 and 2 ms to a path's server, and its reply as long.
func wander(p *embedded.Server, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	var mu sync.Mutex
	pause := func(embedded.Run) {
		mu.Lock()
		d := 500*time.Microsecond + upTo(rng, 1500*time.Microsecond)
		mu.Unlock()
		time.Sleep(d)
	}
	p.Before(pause)
	p.After(pause)
}

// roomy is another with room for as many calls at a time as there are.
func roomy(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	paths, nodes := roomyPaths(t, servers)
	c, err := redlock.New(nodes, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, paths
}

// roomyPaths is locktest.Paths with so many connections a node that no call waits for one. A call to a silent node has
// one for as long as the node timeout; and go-redis keeps the timers with which it waits for one beyond the bubble,
// where they break the next test.
func roomyPaths(t *testing.T, servers []*embedded.Server) (paths []*embedded.Server, nodes []*node.Node) {
	t.Helper()
	t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis's redial looks once a second whether its pool is closed
	for _, s := range servers {
		p := s.Path(s.Name)
		t.Cleanup(p.Close)
		n, err := node.Dial("redis://"+s.Name+"?pool_size=4096", node.WithName(s.Name), node.WithDialer(p.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		paths, nodes = append(paths, p), append(nodes, n)
	}
	return paths, nodes
}
