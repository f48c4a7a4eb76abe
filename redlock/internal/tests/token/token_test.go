package token

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// kinds are the ways to get a lock of a client with a wrong clock. Each returns the token of one
// grant, which it releases.
var kinds = map[string]func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64{
	"redlock": func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64 {
		c, _ := testkit.Skewed(t, servers, ahead)
		return oneGrant(t, c.Mutex("x"))
	},
	"MultiLock": func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64 {
		c, _ := testkit.Skewed(t, servers, ahead)
		both := testkit.Multi(t, c.Mutex("x"), c.Mutex("y"))
		return oneGrant(t, both)
	},
	"a node's Mutex": func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64 {
		_, nodes := testkit.Paths(t, servers[:1])
		testkit.Skew(nodes[0].Mutex("any"), ahead)
		return oneGrant(t, nodes[0].Mutex("x"))
	},
	"a node's Acquire": func(t *testing.T, servers []*embedded.Server, ahead time.Duration) uint64 {
		_, nodes := testkit.Paths(t, servers[:1])
		testkit.Skew(nodes[0].Mutex("any"), ahead)
		a, err := nodes[0].Acquire(t.Context(), "x", "somebody:1", time.Second, 1)
		if err != nil || !a.Granted {
			t.Fatalf("Acquire: %+v, %v", a, err)
		}
		testkit.Must(t, testkit.Err(nodes[0].Release(t.Context(), "x", "somebody:1", 1)), "Release")
		return a.Token
	},
}

func oneGrant(t *testing.T, l quorumlock.Locker) uint64 {
	t.Helper()
	lease := testkit.Lock(t, l)
	defer testkit.Unlock(t, lease)
	return lease.Token()
}

// Tokens rise whatever the client's clock shows, at once and after idle minutes and days: a counter
// is kept for minutes. A client with a wild clock pushes no tokens up.
func TestTokensFollowNoClientsClock(t *testing.T) {
	for kind, grant := range kinds {
		for _, ahead := range []time.Duration{0, -30 * time.Minute, -48 * time.Hour, -40 * year, 3 * time.Hour, 100 * year} {
			testkit.Run(t, fmt.Sprintf("%s, clock off by %v", kind, ahead), func(t *testing.T) {
				servers, _ := testkit.Nodes(t, 3)
				last := grant(t, servers, 0)
				for _, idle := range []time.Duration{0, time.Minute, 3 * time.Minute, 5 * time.Minute, 30 * time.Hour, 10 * day} {
					time.Sleep(idle)
					for _, off := range []time.Duration{ahead, 0} {
						token := grant(t, servers, off)
						if token <= last {
							t.Errorf("token %d after %d, with a clock that is off by %v, %v later; no node forgot", token, last, off, idle)
						}
						if early := time.Until(time.UnixMicro(int64(token))); early.Abs() > 2*time.Minute {
							t.Errorf("token %d of a client whose clock is off by %v is %v ahead of the nodes' clocks", token, off, early)
						}
						last = token
					}
					used := servers
					if strings.HasPrefix(kind, "a node's") {
						used = servers[:1]
					}
					if idle == 0 {
						testkit.Sane(t, used, "x")
					}
				}
			})
		}
	}
}

// A hint may be a minute ahead, and a later one a minute behind: a counter lasts until the second is
// above the first. So does one that was in use before.
func TestTokensRiseFromAClientAheadToOneBehind(t *testing.T) {
	for _, inUse := range []bool{false, true} {
		testkit.Run(t, fmt.Sprint("in use before ", inUse), func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 3)
			early, _ := testkit.Skewed(t, servers, 59*time.Second)
			late, _ := testkit.Skewed(t, servers, -59*time.Second)
			for idle := time.Duration(0); idle < 5*time.Minute; idle += 5 * time.Second {
				name := idle.String()
				if inUse {
					oneGrant(t, late.Mutex(name))
					time.Sleep(200 * time.Second)
				}
				first := oneGrant(t, early.Mutex(name))
				time.Sleep(idle)
				if second := oneGrant(t, late.Mutex(name)); second <= first {
					t.Errorf("token %d after %d, %v later", second, first, idle)
				}
			}
		})
	}
}

// The nodes' clocks may be hours apart, and the second grant may have another quorum than the
// first.
func TestTokensRiseAtNodesWhoseClocksAreHoursApart(t *testing.T) {
	const ok, slow, fast = 0, -48 * time.Hour, year
	for _, tt := range []struct{ ahead, idle time.Duration }{
		{ok, time.Minute}, {ok, 5 * time.Minute}, {ok, 30 * time.Hour}, {slow, 5 * time.Minute}, {slow, 30 * time.Hour}, {fast, 5 * time.Minute}, {fast, 30 * time.Hour},
	} {
		testkit.Run(t, fmt.Sprintf("clock off by %v, %v later", tt.ahead, tt.idle), func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 3)
			for i, s := range servers {
				s.TellTime([]time.Duration{2 * time.Hour, 0, -2 * time.Hour}[i])
			}
			servers[2].Kill()
			early, _ := testkit.Skewed(t, servers, tt.ahead)
			first := oneGrant(t, early.Mutex("x"))
			time.Sleep(tt.idle)
			servers[2].Restart(true)
			servers[0].Kill()
			for _, late := range []time.Duration{-48 * time.Hour, 0} {
				c, _ := testkit.Skewed(t, servers, late)
				second := oneGrant(t, c.Mutex("x"))
				if second <= first {
					t.Errorf("token %d after %d, for a client whose clock is off by %v", second, first, late)
				}
				first = second
			}
			servers[0].Restart(true)
		})
	}
}

// The same for a wild client that is handed the lock, hands it over, and renews it, even at a node
// that has lost the key and its counter and grants it again.
func TestAWildClientThatHandsOverAndRenewsPushesNoTokensUp(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 3)
		correct, _ := testkit.Skewed(t, servers, 0)
		wild, _ := testkit.Skewed(t, servers, year)
		holder := testkit.Lock(t, wild.Mutex("x"))
		for i, c := range []*redlock.Client{correct, wild, correct} {
			got := testkit.Waiter(t, c.Mutex("x"))
			if i == 1 {
				servers[1].Redis.FlushAll()
				time.Sleep(quorumlock.DefaultTTL) // the holder gets it back there
				testkit.HoldsAll(t, servers, holder)
			}
			testkit.Unlock(t, holder)
			next := <-got
			if next == nil {
				t.FailNow()
			}
			testkit.Rises(t, holder, next)
			holder = next
			testkit.Near(t, fmt.Sprint("holder ", i+2), holder.Token())
		}
		time.Sleep(time.Minute)
		testkit.Held(t, holder)
		testkit.Sane(t, servers, "x")
		testkit.Unlock(t, holder)
		testkit.NoLocks(t, servers)
	})
}

// A token may be far ahead of the clocks: from a client of an earlier version, or set by hand. It
// stays with its lock.
func TestAWildTokenOfOneLockIsNotCarriedToAnother(t *testing.T) {
	for _, ahead := range []time.Duration{48 * time.Hour, year} {
		testkit.Run(t, ahead.String(), func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			other, _ := testkit.Another(t, servers)
			wild := uint64(time.Now().Add(ahead).UnixMicro())
			testkit.SetCounters(t, servers, "bad", wild, wild, wild)
			if token := oneGrant(t, c.Mutex("bad")); token <= wild {
				t.Errorf("token %d after %d", token, wild)
			}
			// Handed over, too.
			lease := testkit.Lock(t, other.Mutex("bad"))
			got := testkit.Waiter(t, c.Mutex("bad"))
			testkit.Unlock(t, lease)
			testkit.Unlock(t, <-got)

			testkit.Near(t, "another lock of the same client", oneGrant(t, c.Mutex("payments")))
			testkit.Sane(t, servers, "payments")
			testkit.Near(t, "a lock that another client takes after it", oneGrant(t, other.Mutex("payments")))
		})
	}
}

// Tokens cost no round trip of their own: the nodes agree at once, though their clocks do not. A
// hint that is more than a minute off counts for nothing, and the nodes agree on their ten seconds.
func TestAnUncontendedLockCostsOneScriptANodeWhateverTheClocks(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, ahead := range []time.Duration{3 * time.Millisecond, 50 * time.Second, -50 * time.Second, 30 * time.Hour, -30 * time.Hour} {
			testkit.Run(t, fmt.Sprintf("%d nodes, clock off by %v", n, ahead), func(t *testing.T) {
				servers, _ := testkit.Nodes(t, n)
				for i, s := range servers {
					s.TellTime([]time.Duration{0, 3 * time.Millisecond, -200 * time.Millisecond, 2 * time.Second, -time.Second}[i])
				}
				time.Sleep(3 * time.Second) // the ten seconds have begun everywhere
				c, paths := testkit.Skewed(t, servers, ahead)
				correct, correctPaths := testkit.Skewed(t, servers, 0)
				check := func(what string, paths []*embedded.Server, lock func(context.Context) (*quorumlock.Lease, error)) {
					t.Helper()
					before := make([]int, n)
					for i, p := range paths {
						before[i] = p.Ran()
					}
					lease, err := lock(t.Context())
					testkit.Must(t, err, "%s", what)
					synctest.Wait()
					for i, p := range paths {
						if ran := p.Ran() - before[i]; ran != 1 {
							t.Errorf("%s: %d scripts at %s, want one", what, ran, p.Name)
						}
					}
					testkit.Unlock(t, lease)
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
		}
	}
}

func TestAnExhaustedCounterSpoilsNoOtherLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		for _, s := range servers {
			testkit.Must(t, s.Redis.Set(wire.TokenKey("bad"), "9007199254740990"), "Set")
		}
		l := testkit.MustLock(t, c.Mutex("bad"))
		testkit.MustUnlock(t, l)
		_, err := c.Mutex("payments").TryLock(t.Context())
		testkit.OK(t, err, "another lock altogether")
	})
}

// The tokens of a slot rise after an idle day, whether or not other slots were used meanwhile.
func TestTokensOfASlotRiseAfterAnIdleDay(t *testing.T) {
	for name, busy := range map[string]bool{"the other slot is used": true, "nobody uses the semaphore": false} {
		testkit.Run(t, name, func(t *testing.T) {
			c, _ := testkit.Client(t, 3, quorumlock.WithTTL(10*time.Minute)) // few renewals
			last := map[int]uint64{}                                         // of each slot
			enter := func() *quorumlock.Lease {
				l := testkit.TryLock(t, c.Semaphore("x", 2))
				if l.Token() <= last[l.Slot()] {
					t.Errorf("slot %d has token %d after %d", l.Slot(), l.Token(), last[l.Slot()])
				}
				last[l.Slot()] = l.Token()
				return l
			}
			leave := func(l *quorumlock.Lease) { testkit.Unlock(t, l) }
			a, b := enter(), enter()
			leave(a)
			if !busy {
				leave(b)
				b = nil
			}
			time.Sleep(30 * time.Hour)
			first := enter()
			if b == nil {
				b = enter()
			}
			leave(first)
			leave(b)
		})
	}
}

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
		testkit.Run(t, tt.name, func(t *testing.T) {
			c, servers := testkit.Client(t, 5, quorumlock.WithQuorum(tt.quorum))
			tokens := make([]uint64, 5)
			for i, n := range tt.counters {
				if n > 0 {
					tokens[i] = testkit.Ahead(n)
				}
			}
			testkit.SetCounters(t, servers, "x", tokens...)
			lease := testkit.TryLock(t, c.Mutex("x"))
			if n := testkit.AtLeast(t, servers, "x", lease.Token()); n < tt.quorum {
				t.Errorf("%d nodes count on from the token, want %d", n, tt.quorum)
			}
			testkit.Unlock(t, lease)

			// Whichever nodes the next holder gets, its token is higher.
			for i := range servers[:5-tt.quorum] {
				servers[4-i].Kill()
			}
			other, _ := testkit.Another(t, servers, quorumlock.WithQuorum(tt.quorum))
			next := testkit.TryLock(t, other.Mutex("x"))
			testkit.Rises(t, lease, next)
			testkit.Unlock(t, next)
		})
	}
}
