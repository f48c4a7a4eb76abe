package token

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// When the nodes' counters differ, a quorum is raised to the highest token before a caller gets it.
func TestTokenIsThatOfAQuorumBeforeTheLeaseBegins(t *testing.T) {
	for _, tt := range []struct {
		name     string
		counters [5]int // how far ahead of the clock; 0: no counter
		quorum   int
	}{
		{"all apart", [5]int{10, 20, 30, 40, 50}, 3},
		{"all apart, four needed", [5]int{10, 20, 30, 40, 50}, 4},
		{"one ahead", [5]int{10, 10, 10, 10, 90}, 3},
		{"one ahead of none", [5]int{0, 0, 0, 0, 90}, 3},
		{"two ahead", [5]int{10, 10, 10, 90, 90}, 3},
		{"equal", [5]int{70, 70, 70, 70, 70}, 3},
		{"all, of all", [5]int{10, 20, 30, 40, 50}, 5},
	} {
		locktest.Run(t, tt.name, func(t *testing.T) {
			c, servers := locktest.Client(t, 5, quorumlock.WithQuorum(tt.quorum))
			tokens := make([]uint64, 5)
			for i, n := range tt.counters {
				if n > 0 {
					tokens[i] = locktest.Ahead(n)
				}
			}
			locktest.SetCounters(t, servers, "x", tokens...)
			lease := locktest.TryLock(t, c.Mutex("x"))
			if n := locktest.AtLeast(t, servers, "x", lease.Token()); n < tt.quorum {
				t.Errorf("%d nodes count on from the token, want %d", n, tt.quorum)
			}
			locktest.Unlock(t, lease)

			// Whichever nodes the next holder gets, its token is higher.
			for i := range servers[:5-tt.quorum] {
				servers[4-i].Kill()
			}
			other, _ := locktest.Another(t, servers, quorumlock.WithQuorum(tt.quorum))
			next := locktest.TryLock(t, other.Mutex("x"))
			if next.Token() <= lease.Token() {
				t.Errorf("token %d after %d", next.Token(), lease.Token())
			}
			locktest.Unlock(t, next)
		})
	}
}

// Agreeing counters cost no second round.
func TestTokenCostsNoRaiseUsually(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		for range 10 {
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("x")))
			locktest.Unlock(t, locktest.Lock(t, other.Mutex("x")))
			time.Sleep(time.Millisecond)
		}
		for _, s := range servers {
			if n := s.Ran("raise"); n > 0 {
				t.Errorf("%d raises at %s", n, s.Name)
			}
		}
	})
}

// A raise that arrives after its owner's hold changes no counter, with or without another holder:
// otherwise the next grant could get the token of the one before.
func TestLateRaiseLandsInNoOtherHold(t *testing.T) {
	for _, held := range []bool{true, false} {
		locktest.Run(t, fmt.Sprintf("lock held meanwhile %v", held), func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			other, _ := locktest.Another(t, servers)
			locktest.SetCounters(t, servers, "x", locktest.Ahead(2), locktest.Ahead(3), locktest.Ahead(1))
			servers[2].Delay(time.Millisecond) // otherwise two may agree without a raise
			late := make(chan struct{})
			locktest.Each(servers, func(s *embedded.Server) {
				s.Before(func(r embedded.Run) {
					if r.Script == "raise" {
						<-late
					}
				})
			})
			if lease, err := c.Mutex("x").TryLock(t.Context()); err == nil {
				t.Fatalf("granted token %d, which no quorum has", lease.Token())
			}
			locktest.NoLocks(t, servers)
			locktest.Each(servers, func(s *embedded.Server) { s.Before(nil) })
			servers[2].Delay(0)
			lease := locktest.TryLock(t, other.Mutex("x"))
			if !held {
				locktest.Unlock(t, lease)
			}
			synctest.Wait()
			before := locktest.Counters(t, servers, "x")
			close(late)
			time.Sleep(time.Second)
			if after := locktest.Counters(t, servers, "x"); !slices.Equal(after, before) {
				t.Errorf("counters %v, want %v as before the late raise", after, before)
			}
			if held {
				locktest.Unlock(t, lease)
			}
			locktest.Nothing(t, servers)
		})
	}
}
