package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// ahead is a token that is higher than the clock's hint by an hour and n: the counters decide then.
func ahead(n int) uint64 { return uint64(time.Now().Add(time.Hour).UnixMicro()) + uint64(n) }

// setCounters sets the token counters of a lock by hand, one for each server; 0 leaves none.
func setCounters(t *testing.T, servers []*embedded.Server, name string, tokens ...uint64) {
	t.Helper()
	for i, s := range servers {
		if tokens[i] == 0 {
			s.Redis.Del(wire.TokenKey(name))
		} else if err := s.Redis.Set(wire.TokenKey(name), fmt.Sprint(tokens[i])); err != nil {
			t.Fatal(err)
		}
	}
}

// atLeast returns how many servers count on from the token or from above.
func atLeast(t *testing.T, servers []*embedded.Server, name string, token uint64) int {
	t.Helper()
	n := 0
	for _, s := range servers {
		var c uint64
		if v, err := s.Redis.Get(wire.TokenKey(name)); err == nil {
			if _, err := fmt.Sscan(v, &c); err != nil {
				t.Fatal(err)
			}
		}
		if c >= token {
			n++
		}
	}
	return n
}

// When the nodes' counters are apart, a quorum is raised to the highest token before anybody gets it.
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
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5, quorumlock.WithQuorum(tt.quorum))
				tokens := make([]uint64, 5)
				for i, n := range tt.counters {
					if n > 0 {
						tokens[i] = ahead(n)
					}
				}
				setCounters(t, servers, "x", tokens...)
				lease := locktest.TryLock(t, c.Mutex("x"))
				if n := atLeast(t, servers, "x", lease.Token()); n < tt.quorum {
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
		})
	}
}

// Agreeing counters cost no second round.
func TestTokenCostsNoRaiseUsually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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

// A raise that arrives when its owner's hold is over changes no counter, whoever holds by then:
// otherwise the next grant could get the token of the one before.
func TestLateRaiseLandsInNoOtherHold(t *testing.T) {
	for _, held := range []bool{true, false} {
		t.Run(fmt.Sprintf("lock held meanwhile %v", held), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				other, _ := locktest.Another(t, servers)
				setCounters(t, servers, "x", ahead(2), ahead(3), ahead(1))
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
				before := counters(t, servers, "x")
				close(late)
				time.Sleep(time.Second)
				if after := counters(t, servers, "x"); after != before {
					t.Errorf("counters %v, want %v as before the late raise", after, before)
				}
				if held {
					locktest.Unlock(t, lease)
				}
				locktest.Nothing(t, servers)
			})
		})
	}
}

func counters(t *testing.T, servers []*embedded.Server, name string) string {
	t.Helper()
	all := ""
	for _, s := range servers {
		v, err := s.Redis.Get(wire.TokenKey(name))
		if err != nil {
			t.Fatal(err)
		}
		all += v + " "
	}
	return all
}

// raise.lua checks the hold: the owner holds, and the counter is still the one it got.
func TestRaiseChangesNothingInAnotherHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 1)
		s, n := servers[0], nodes[0]
		run := func(c wire.Call) wire.Reply { return transport.Of(n).Send(t.Context(), c)[0] }
		acquire := func(o quorumlock.Owner) uint64 {
			a, err := run(wire.Acquire("x", o, time.Second, 1, 1)).Acquired()
			if err != nil || !a.Granted {
				t.Fatalf("acquire for %s: %+v, %v", o, a, err)
			}
			return a.Token
		}
		raise := func(o quorumlock.Owner, own, to uint64) bool {
			ok, err := run(wire.Raise("x", o, time.Second, own, to)).Done()
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		a := acquire("a")
		if !raise("a", a, a+10) {
			t.Error("the holder's raise was refused")
		}
		if raise("a", a, a+20) {
			t.Error("a raise was taken from a counter that has moved")
		}
		run(wire.Release("x", "a", 1))
		b := acquire("b")
		if b <= a+10 {
			t.Errorf("token %d after %d", b, a+10)
		}
		for _, own := range []uint64{a, a + 10, b} {
			if raise("a", own, b+100) {
				t.Errorf("a raise by a former owner, from %d, was taken", own)
			}
		}
		if got, _ := s.Redis.Get(wire.TokenKey("x")); got != fmt.Sprint(b) {
			t.Errorf("the counter is %s, want %d", got, b)
		}
	})
}
