package hold

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// Nodes whose grant is still on its way when Unlock begins release it when it comes. They count as
// released: one more dead node does not cost the quorum.
func TestUnlockCountsTheNodesThatAreYetToAnswer(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		locktest.Warm(t, c)
		locktest.Each(servers[3:], func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[0].Kill()
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock with four of five nodes healthy: %v", err)
		}
		for i, s := range servers[1:] {
			if left := locktest.Keys(s); len(left) > 0 && i < 2 {
				t.Errorf("Unlock returned, and %s has %q", s.Name, left)
			}
		}
		locktest.NoLocks(t, servers[1:])
	})
}

// However long the nodes are to keep the lock, they do.
func TestUnlockAfterTheLongestTimeKeepsTheLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := locktest.Client(t, 3)
		time.Sleep(time.Millisecond) // the clock does not stand at its beginning
		lease := locktest.Lock(t, c.Mutex("x"))
		if err := lease.UnlockAfter(t.Context(), math.MaxInt64); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Mutex("x").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("TryLock: %v, want ErrHeld", err)
		}
	})
}

// A node that never answers bounds Unlock by its timeout, no more.
func TestUnlockWaitsForTheNodeTimeoutAtMost(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		locktest.Warm(t, c)
		servers[4].Stall() // it has not even answered the attempt
		lease := locktest.Lock(t, c.Mutex("x"))
		locktest.Each(servers[:2], (*embedded.Server).Stall)
		start := time.Now()
		err := lease.Unlock(t.Context())
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || len(q.Nodes) < 2 {
			t.Errorf("Unlock with two nodes of five healthy: %v, want a QuorumError that names them", err)
		}
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("Unlock took %v, want 500 ms, the node timeout, at most", took)
		}
		locktest.Each(servers, (*embedded.Server).Resume)
		time.Sleep(10 * time.Second)
		locktest.Nothing(t, servers)
	})
}

// The holder hears of it at Unlock if it has not renewed meanwhile.
func TestUnlockTellsThatTheKeysWereTakenAway(t *testing.T) {
	for gone, want := range []error{nil, nil, nil, quorumlock.ErrLost, quorumlock.ErrLost, quorumlock.ErrLost} {
		locktest.Run(t, fmt.Sprint(gone), func(t *testing.T) {
			c, servers := locktest.Client(t, 5)
			lease := locktest.Lock(t, c.Mutex("x"))
			locktest.HoldsAll(t, servers, lease)
			for _, s := range servers[:gone] {
				s.Redis.Del("x")
			}
			err := lease.Unlock(t.Context())
			if gone <= 2 && err != nil {
				t.Errorf("Unlock with %d keys gone: %v, want no error", gone, err)
			}
			if gone == 5 && !errors.Is(err, want) {
				t.Errorf("Unlock with all keys gone: %v, want ErrLost", err)
			}
			locktest.Nothing(t, servers)
		})
	}
}

// Unlock returns when a quorum of the nodes has released. At the others the former holder has the
// lock for a moment longer, and nobody else.
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
			locktest.Run(t, fmt.Sprintf("releases %v late, a node %s", late, fault.name), func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				m := c.Mutex("x")
				for failing := range 3 {
					lease := locktest.Lock(t, m)
					// Messages on their way stay late; later ones on another connection are not.
					locktest.Each(servers[3:], func(s *embedded.Server) { s.Delay(late) })
					locktest.MustUnlock(t, lease)
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
		}
	}
}

// The same if the others were not reached at all: there the former holder has the lock until the
// release is sent again.
func TestTryLockIsNotRefusedByOnesOwnReleaseThatFailed(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		m := c.Mutex("x")
		for round := range 5 {
			lease := locktest.Lock(t, m)
			locktest.Each(servers[3:], (*embedded.Server).Kill)
			locktest.MustUnlock(t, lease)
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
