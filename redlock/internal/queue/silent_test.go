package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// A waiter comes at every moment around the release: before it, so that it is queued at all nodes;
// during it, so that some nodes refuse the attempt and hand over, and others grant it; and after
// it.
func TestSilentNodesCostAWaiterThatRacesTheReleaseNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		silent int
		fall   func(*embedded.Server)
		// Or from the middle of the hold on: then the silent nodes have the holder's lock.
		throughout bool
	}{
		{"none silent", 0, nil, true},
		{"one of five stalls during the hold", 1, (*embedded.Server).Stall, false},
		{"two of five stall during the hold", 2, (*embedded.Server).Stall, false},
		{"one of five loses all requests", 1, (*embedded.Server).Lose, true},
		{"two of five lose all requests", 2, (*embedded.Server).Lose, true},
	} {
		for rotation := range locktest.Thorough(5, 1) {
			locktest.Run(t, fmt.Sprint(tt.name, ", rotation ", rotation), func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 5)
				quiet := []*embedded.Server{servers[1], servers[4]}[:tt.silent]
				took := raceTheRelease(t, servers, quiet, tt.fall, tt.throughout, rotation)
				if worst := slices.Max(took); worst > 100*time.Millisecond {
					t.Errorf("a grant took %v, want 100 ms at most: it waited for a silent node", worst)
				}
			})
		}
	}
}

// raceTheRelease returns how long a waiter took from the Unlock, or from its Lock if that was
// later, to its grant. The waiter is as far from each node as the holder is from another one, by
// the rotation.
func raceTheRelease(t *testing.T, servers, quiet []*embedded.Server, fall func(*embedded.Server), throughout bool, rotation int) (took []time.Duration) {
	first, near := locktest.Another(t, servers)
	second, far := locktest.Another(t, servers)
	locktest.Warm(t, first)
	locktest.Warm(t, second)
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
		// A subscription is kept for ten seconds.
		time.Sleep(time.Second * time.Duration(1+10*(i%2)))
	}
	locktest.Each(quiet, (*embedded.Server).Resume)
	time.Sleep(quorumlock.DefaultTTL)
	locktest.Nothing(t, servers)
	return took
}

// Under load nearly every grant is a handoff or races one: silent nodes must not set the pace.
func TestContendersAreServedHalfAsFastAtLeastWithTwoOfFiveBlackHoled(t *testing.T) {
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
			t.Parallel()
			if locktest.Race && tt.contenders > 2 {
				t.Skip("the race detector makes it take minutes")
			}
			healthy := grants(t, 0, tt.contenders, tt.hold, tt.think)
			got := grants(t, 2, tt.contenders, tt.hold, tt.think)
			t.Logf("%d grants with two of five black-holed, %d with none", got, healthy)
			if got < healthy/2 {
				t.Errorf("%d grants with two of five black-holed, %d with none: want at least half", got, healthy)
			}
		})
	}
}

// grants returns the number of grants in 600 ms while some of five nodes lose all requests.
func grants(t *testing.T, silent, contenders int, hold, think time.Duration) (n int) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 5)
		ctx, cancel := context.WithCancel(t.Context())
		store := &locktest.Resource{T: t}
		var wg sync.WaitGroup
		for i := range contenders {
			c, paths := locktest.Roomy(t, servers)
			locktest.Warm(t, c)
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
					time.Sleep(locktest.UpTo(rng, think+1))
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
