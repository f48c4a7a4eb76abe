package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// Of those who TryLock and TryRLock a free lock at the same time, one gets it.
func TestOneOfReadersAndWritersWhoTryGetsTheLock(t *testing.T) {
	t.Parallel()
	for seed := range locktest.Thorough(uint64(60), 10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 3))
				n := 3 + 2*int(seed%2)
				_, servers := locktest.Client(t, n)
				var clients []*redlock.Client
				for range 2 + rng.IntN(4) {
					c, paths := locktest.Another(t, servers)
					if l, err := c.RWMutex("warm").TryLock(t.Context()); err == nil {
						locktest.Unlock(t, l)
					}
					for _, p := range paths {
						p.Delay(time.Duration(rng.IntN(3000)) * time.Microsecond)
					}
					clients = append(clients, c)
				}
				var wg sync.WaitGroup
				var mu sync.Mutex
				var got []*quorumlock.Lease
				began := time.Now()
				for i, c := range clients {
					reads := rng.IntN(2) == 0
					wait := time.Duration(rng.IntN(500)) * time.Microsecond
					wg.Go(func() {
						time.Sleep(wait)
						m := c.RWMutex("x")
						f := m.TryLock
						if reads {
							f = m.TryRLock
						}
						l, err := f(context.Background())
						mu.Lock()
						defer mu.Unlock()
						if err != nil && !errors.Is(err, quorumlock.ErrHeld) {
							t.Error(i, reads, err)
						}
						if l != nil {
							got = append(got, l)
						}
					})
				}
				wg.Wait()
				if took := time.Since(began); took > 300*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				if len(got) == 0 {
					t.Error("nobody got it")
				}
				for _, l := range got {
					locktest.Unlock(t, l)
				}
				locktest.Nothing(t, servers)
			})
		})
	}
}
