package redlock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// Unlock returns when a quorum of the nodes has released. At the others the former holder has the lock for a moment
// longer, and that is nobody else.
func TestTryLockIsNotRefusedByOnesOwnReleaseThatIsStillOnItsWay(t *testing.T) {
	for _, late := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		for _, fault := range []struct {
			name       string
			begin, end func(*embedded.Server)
		}{
			{"is frozen", (*embedded.Server).Stall, (*embedded.Server).Resume},
			{"loses requests", (*embedded.Server).Lose, (*embedded.Server).Resume},
			{"loses its reply", func(s *embedded.Server) { s.LoseReplies(1) }, func(s *embedded.Server) { s.LoseReplies(0) }},
			{"refuses connections", (*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(true) }},
		} {
			t.Run(fmt.Sprintf("releases %v late, a node %s", late, fault.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := locktest.Client(t, 5)
					m := c.Mutex("x")
					for failing := range 3 {
						lease := locktest.Lock(t, m)
						// What is on its way stays late; what is sent on another connection afterwards is not.
						locktest.Each(servers[3:], func(s *embedded.Server) { s.Delay(late) })
						if err := lease.Unlock(t.Context()); err != nil {
							t.Fatal(err)
						}
						locktest.Each(servers[3:], func(s *embedded.Server) { s.Delay(0) })
						fault.begin(servers[failing])
						next, err := m.TryLock(t.Context())
						switch {
						case err == nil:
							locktest.MustUnlock(t, next)
						case errors.Is(err, quorumlock.ErrHeld):
							t.Errorf("TryLock: %v\nnobody else exists", err)
						default:
							t.Log("TryLock:", err)
						}
						fault.end(servers[failing])
						time.Sleep(2 * quorumlock.DefaultTTL)
					}
				})
			})
		}
	}
}

// The same if the others were not reached at all: there the former holder has the lock until the release is sent
// again.
func TestTryLockIsNotRefusedByOnesOwnReleaseThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		m := c.Mutex("x")
		for round := range 5 {
			lease := locktest.Lock(t, m)
			locktest.Each(servers[3:], (*embedded.Server).Kill)
			if err := lease.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			locktest.Each(servers[3:], func(s *embedded.Server) { s.Restart(true) })
			time.Sleep(time.Duration(round) * time.Millisecond)
			servers[0].LoseReplies(1)
			next, err := m.TryLock(t.Context())
			switch {
			case err == nil:
				locktest.MustUnlock(t, next)
			case errors.Is(err, quorumlock.ErrHeld):
				t.Errorf("TryLock: %v\nnobody else exists", err)
			default:
				t.Log("TryLock:", err)
			}
			servers[0].LoseReplies(0)
			time.Sleep(2 * quorumlock.DefaultTTL)
		}
	})
}

// The same at random: now and then a script takes longer to arrive, and a reply is lost.
func TestNobodyElseHoldsTheLockOfALoneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 5)
		c, paths := roomy(t, servers)
		warm(t, c)
		for i, p := range paths {
			rng, mu := rand.New(rand.NewPCG(uint64(i), 12)), sync.Mutex{}
			p.Before(func(embedded.Run) {
				mu.Lock()
				slow := rng.IntN(4) == 0
				mu.Unlock()
				if slow {
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		const calls = 500
		rng := rand.New(rand.NewPCG(1, 11))
		held, failed := 0, 0
		for range calls {
			lost := paths[rng.IntN(len(paths))]
			if rng.IntN(4) == 0 {
				lost.LoseReplies(1)
			}
			lease, err := c.Mutex("x").TryLock(t.Context())
			lost.LoseReplies(0)
			switch {
			case err == nil:
				locktest.MustUnlock(t, lease)
			case errors.Is(err, quorumlock.ErrHeld):
				held++
			default:
				failed++
			}
		}
		t.Logf("%d of %d calls failed otherwise", failed, calls)
		if held > 0 {
			t.Errorf("%d of %d calls of TryLock said that somebody else holds the lock: nobody else exists", held, calls)
		}
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Nothing(t, servers)
	})
}
