package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

const (
	day  = 24 * time.Hour
	year = 365 * day

	// aboutAnHour is how far a token may be from the nodes' clocks, and aboutADay how long a counter lives.
	aboutAnHour = 90 * time.Minute
	aboutADay   = 28*time.Hour + quorumlock.DefaultTTL
)

// skew sets the wall clock of a client that has not been used yet. A negative skew is behind the nodes' clocks.
func skew(c *quorum.Client, ahead time.Duration) {
	c.Simulate(func() time.Time { return time.Now().Add(ahead) }, nil, func(d time.Duration) time.Duration { return d })
}

// skewed returns one more client of the servers, whose wall clock is off, and its paths to them.
func skewed(t *testing.T, servers []*embedded.Server, ahead time.Duration, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	c, paths := locktest.Another(t, servers, opts...)
	skew(quorum.ClientOf(c.Mutex("any")), ahead)
	return c, paths
}

// near checks that a token is within about an hour of the nodes' clocks, which are those of the test.
func near(t *testing.T, what string, token uint64) {
	t.Helper()
	if off := time.Until(time.UnixMicro(int64(token))); off.Abs() > aboutAnHour {
		t.Errorf("%s has token %d, which is %v from the nodes' clocks, want about an hour at most", what, token, off)
	}
}

// sane checks the counters of a lock: near the nodes' clocks, and kept for about a day.
func sane(t *testing.T, servers []*embedded.Server, name string) {
	t.Helper()
	for _, s := range servers {
		key := wire.TokenKey(name)
		v, err := s.Redis.Get(key)
		if err != nil {
			t.Errorf("%s has no counter of %q: %v", s.Name, name, err)
			continue
		}
		token, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Errorf("%s: the counter of %q is %q", s.Name, name, v)
			continue
		}
		near(t, fmt.Sprintf("%s's counter of %q", s.Name, name), token)
		if ttl := s.Redis.TTL(key); ttl < day-time.Hour || ttl > aboutADay {
			t.Errorf("%s keeps the counter of %q for %v, want about a day", s.Name, name, ttl)
		}
	}
}

// kinds are the ways to get a lock of a client whose clock is off. Each returns the token of one grant, which is
// given back.
var kinds = map[string]func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64{
	"redlock": func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64 {
		c, _ := skewed(t, servers, ahead)
		return oneGrant(t, c.Mutex("x"))
	},
	"MultiLock": func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64 {
		c, _ := skewed(t, servers, ahead)
		both, err := multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("y")})
		if err != nil {
			t.Fatal(err)
		}
		return oneGrant(t, both)
	},
	"a node's Mutex": func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64 {
		return oneGrant(t, skewedNode(t, servers[0], ahead).Mutex("x"))
	},
	"a node's Acquire": func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64 {
		n := skewedNode(t, servers[0], ahead)
		a, err := n.Acquire(t.Context(), "x", "somebody:1", time.Second, 1)
		if err != nil || !a.Granted {
			t.Fatalf("Acquire: %+v, %v", a, err)
		}
		if _, err := n.Release(t.Context(), "x", "somebody:1", 1); err != nil {
			t.Fatal(err)
		}
		return a.Token
	},
}

func oneGrant(t *testing.T, l quorumlock.Locker) uint64 {
	t.Helper()
	lease := locktest.Lock(t, l)
	defer locktest.Unlock(t, lease)
	return lease.Token()
}

// skewedNode returns one more node for a server, of a client whose wall clock is off.
func skewedNode(t *testing.T, s *embedded.Server, ahead time.Duration) *node.Node {
	t.Helper()
	_, nodes := locktest.Paths(t, []*embedded.Server{s})
	skew(quorum.ClientOf(nodes[0].Mutex("any")), ahead)
	return nodes[0]
}

// A counter is kept for about a day. The grant after that must not depend on the clock of the client that asks.
func TestTokensRiseAfterAnIdleDay(t *testing.T) {
	for kind, grant := range kinds {
		for _, ahead := range []time.Duration{0, -30 * time.Minute, -48 * time.Hour, -year, -40 * year, 48 * time.Hour} {
			for _, idle := range []time.Duration{day + time.Minute, 30 * time.Hour, 10 * day} {
				t.Run(fmt.Sprintf("%s, clock off by %v, idle for %v", kind, ahead, idle), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						servers, _ := locktest.Nodes(t, 3)
						first := grant(t, servers, 0)
						time.Sleep(idle)
						second := grant(t, servers, ahead)
						if second <= first {
							t.Errorf("token %d after %d, and no node forgot", second, first)
						}
						if third := grant(t, servers, 0); third <= second {
							t.Errorf("token %d after %d, at once", third, second)
						}
					})
				})
			}
		}
	}
}

// The nodes' own clocks may be hours apart, and the second grant may have another quorum than the first.
func TestTokensRiseAfterAnIdleDayAtNodesWhoseClocksAreHoursApart(t *testing.T) {
	for _, ahead := range []time.Duration{0, -48 * time.Hour, year} {
		t.Run(fmt.Sprintf("clock off by %v", ahead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 3)
				for i, s := range servers {
					s.TellTime([]time.Duration{2 * time.Hour, 0, -2 * time.Hour}[i])
				}
				servers[2].Kill()
				early, _ := skewed(t, servers, ahead)
				first := oneGrant(t, early.Mutex("x"))
				time.Sleep(30 * time.Hour)
				servers[2].Restart(true)
				servers[0].Kill()
				for _, late := range []time.Duration{-48 * time.Hour, 0} {
					c, _ := skewed(t, servers, late)
					second := oneGrant(t, c.Mutex("x"))
					if second <= first {
						t.Errorf("token %d after %d, for a client whose clock is off by %v", second, first, late)
					}
					first = second
				}
				servers[0].Restart(true)
			})
		})
	}
}

// Clients with clocks that are off by anything take turns, with pauses from nothing to ten days, while a minority of
// the nodes comes and goes. Every grant has a token of its own, higher than all before.
func TestTokensRiseWhateverTheClientsClocksSay(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				n := []int{3, 5}[seed%2]
				servers, _ := locktest.Nodes(t, n)
				for _, s := range servers {
					s.TellTime(time.Duration(rng.Int64N(int64(4*time.Hour))) - 2*time.Hour)
				}
				offs := []time.Duration{0, time.Second, -30 * time.Minute, 30 * time.Minute, -48 * time.Hour, 48 * time.Hour, -year, year, -40 * year, 100 * year}
				var clients []*redlock.Client
				for _, ahead := range offs {
					c, _ := skewed(t, servers, ahead)
					clients = append(clients, c)
				}
				pauses := []time.Duration{0, time.Microsecond, time.Second, time.Hour, 23 * time.Hour, 25 * time.Hour, 50 * time.Hour, 10 * day}
				var last uint64
				lastBy := -1
				enter := func(by int, lease *quorumlock.Lease) {
					if lease.Token() <= last {
						t.Errorf("token %d, for a client whose clock is off by %v, after %d, for one that is off by %v", lease.Token(), offs[by], last, offs[max(lastBy, 0)])
					}
					if off := time.Until(time.UnixMicro(int64(lease.Token()))); off > 2*time.Hour+aboutAnHour {
						t.Errorf("token %d, for a client whose clock is off by %v, is %v ahead of the nodes' clocks", lease.Token(), offs[by], off)
					}
					last, lastBy = lease.Token(), by
				}
				for range 40 {
					down := servers[rng.IntN(n)]
					if rng.IntN(3) == 0 {
						down.Kill()
					}
					by, next := rng.IntN(len(clients)), rng.IntN(len(clients))
					lease := locktest.Lock(t, clients[by].Mutex("x"))
					enter(by, lease)
					if next != by && rng.IntN(2) == 0 { // and hands it over
						got := locktest.Waiter(t, clients[next].Mutex("x"))
						locktest.Unlock(t, lease)
						if lease = <-got; lease == nil {
							t.FailNow()
						}
						enter(next, lease)
					}
					locktest.Unlock(t, lease)
					down.Restart(true)
					time.Sleep(pauses[rng.IntN(len(pauses))])
				}
			})
		})
	}
}

func TestAClientWhoseClockIsWildPushesNoTokensUp(t *testing.T) {
	for kind, grant := range kinds {
		for _, ahead := range []time.Duration{3 * time.Hour, 48 * time.Hour, year, 100 * year} {
			t.Run(fmt.Sprintf("%s, %v ahead", kind, ahead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					servers, _ := locktest.Nodes(t, 3)
					used := servers
					if kind == "a node's Mutex" || kind == "a node's Acquire" {
						used = servers[:1]
					}
					before := grant(t, servers, 0)
					for range 3 {
						wild := grant(t, servers, ahead)
						near(t, "the client with the wild clock", wild)
						after := grant(t, servers, 0)
						near(t, "a correct client after it", after)
						if before >= wild || wild >= after {
							t.Errorf("tokens %d, %d, %d do not rise", before, wild, after)
						}
						before = after
					}
					sane(t, used, "x")
				})
			})
		}
	}
}

// The same for a wild client that waits and tries again when it is called.
func TestAWildClientThatWaitsForItsTurnPushesNoTokensUp(t *testing.T) {
	for _, ahead := range []time.Duration{48 * time.Hour, year} {
		t.Run(fmt.Sprintf("%v ahead", ahead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 3)
				correct, _ := skewed(t, servers, 0)
				wild, _ := skewed(t, servers, ahead)
				holder := locktest.Lock(t, correct.Mutex("x"))
				got := locktest.Waiter(t, wild.Mutex("x", quorumlock.WithoutRenewal())) // nothing is handed over without renewal
				locktest.Unlock(t, holder)
				lease := <-got
				if lease == nil {
					t.FailNow()
				}
				if lease.Token() <= holder.Token() {
					t.Errorf("token %d after %d", lease.Token(), holder.Token())
				}
				near(t, "the client with the wild clock", lease.Token())
				sane(t, servers, "x")
				locktest.Unlock(t, lease)
			})
		})
	}
}

// The same for a wild client that is handed the lock, hands it over, and renews it, even at a node that has lost the
// key and its counter and grants it again.
func TestAWildClientThatHandsOverAndRenewsPushesNoTokensUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 3)
		correct, _ := skewed(t, servers, 0)
		wild, _ := skewed(t, servers, year)
		holder := locktest.Lock(t, wild.Mutex("x"))
		for i, c := range []*redlock.Client{correct, wild, correct} {
			got := locktest.Waiter(t, c.Mutex("x"))
			if i == 1 {
				servers[1].Redis.FlushAll()
				time.Sleep(quorumlock.DefaultTTL) // the holder gets it back there
				locktest.HoldsAll(t, servers, holder)
			}
			locktest.Unlock(t, holder)
			next := <-got
			if next == nil {
				t.FailNow()
			}
			if next.Token() <= holder.Token() {
				t.Errorf("token %d after %d", next.Token(), holder.Token())
			}
			holder = next
			near(t, fmt.Sprint("holder ", i+2), holder.Token())
		}
		time.Sleep(time.Minute)
		locktest.Held(t, holder)
		sane(t, servers, "x")
		locktest.Unlock(t, holder)
		locktest.NoLocks(t, servers)
	})
}

// A token that is far ahead of the clocks may be there: from a client of an earlier version, or set by hand. It
// stays with its lock.
func TestAWildTokenOfOneLockIsNotCarriedToAnother(t *testing.T) {
	for _, ahead := range []time.Duration{48 * time.Hour, year} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				other, _ := locktest.Another(t, servers)
				wild := uint64(time.Now().Add(ahead).UnixMicro())
				setCounters(t, servers, "bad", wild, wild, wild)
				if token := oneGrant(t, c.Mutex("bad")); token <= wild {
					t.Errorf("token %d after %d", token, wild)
				}
				// Handed over, too.
				lease := locktest.Lock(t, other.Mutex("bad"))
				got := locktest.Waiter(t, c.Mutex("bad"))
				locktest.Unlock(t, lease)
				locktest.Unlock(t, <-got)

				near(t, "another lock of the same client", oneGrant(t, c.Mutex("payments")))
				sane(t, servers, "payments")
				near(t, "a lock that another client takes after it", oneGrant(t, other.Mutex("payments")))
			})
		})
	}
}

// One client whose clock is wild takes a lock; a correct one takes the same lock and then another.
func TestAWildClientInfectsNoOtherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 3)
		wild, _ := skewed(t, servers, year)
		correct, _ := skewed(t, servers, 0)
		oneGrant(t, wild.Mutex("x"))
		oneGrant(t, correct.Mutex("x"))
		near(t, "another lock of a correct client", oneGrant(t, correct.Mutex("payments")))
		sane(t, servers, "payments")
	})
}

// Tokens cost no round trip of their own: the nodes agree at once, though their clocks do not.
func TestAnUncontendedLockCostsOneScriptANodeWhateverTheClocks(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, ahead := range []time.Duration{0, 3 * time.Millisecond, time.Minute, 30 * time.Minute, -time.Minute, -30 * time.Minute} {
			t.Run(fmt.Sprintf("%d nodes, clock off by %v", n, ahead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					servers, _ := locktest.Nodes(t, n)
					for i, s := range servers {
						s.TellTime([]time.Duration{0, 3 * time.Millisecond, -200 * time.Millisecond, 2 * time.Second, -time.Minute}[i])
					}
					c, paths := skewed(t, servers, ahead)
					correct, correctPaths := skewed(t, servers, 0)
					check := func(what string, paths []*embedded.Server, lock func(context.Context) (*quorumlock.Lease, error)) {
						t.Helper()
						before := make([]int, n)
						for i, p := range paths {
							before[i] = p.Ran()
						}
						lease, err := lock(t.Context())
						if err != nil {
							t.Fatalf("%s: %v", what, err)
						}
						synctest.Wait()
						for i, p := range paths {
							if ran := p.Ran() - before[i]; ran != 1 {
								t.Errorf("%s: %d scripts at %s, want one", what, ran, p.Name)
							}
						}
						locktest.Unlock(t, lease)
					}
					for _, name := range []string{"x", "y"} {
						check("the first Lock", paths, c.Mutex(name).Lock)
						check("the next Lock", paths, c.Mutex(name).Lock)
						check("TryLock", paths, c.Mutex(name).TryLock)
						check("Lock by a correct client after it", correctPaths, correct.Mutex(name).Lock)
						check("Lock after that", paths, c.Mutex(name).Lock)
						time.Sleep(30 * time.Hour)
						check("Lock after an idle day", paths, c.Mutex(name).Lock)
						check("Lock by a correct client after an idle day", correctPaths, correct.Mutex(name).Lock)
					}
				})
			})
		}
	}
}
