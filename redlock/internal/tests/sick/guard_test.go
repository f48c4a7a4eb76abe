package sick

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// guarded is the guard of these tests, for locks with the default TTL. Servers are out for that long
// and its drift.
var guarded = quorumlock.WithRestartGuard(quorumlock.DefaultTTL)

const quarantine = quorumlock.DefaultTTL + 102*time.Millisecond

// longUp lets the servers run for so long that the guard trusts them.
func longUp(t *testing.T, c *redlock.Client) {
	t.Helper()
	_, _ = c.Ready(t.Context()) // meets them
	time.Sleep(time.Hour)
	testkit.OK(t, testkit.Err(c.Ready(t.Context())), "Ready")
}

// keepsTwoHolders reports whether b is granted a lock that a holds validly, when two of its three
// nodes restart without data.
func keepsTwoHolders(t *testing.T, opts ...quorumlock.Option) (two bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts = append(opts, quorumlock.WithoutRenewal())
		c, servers := testkit.Client(t, 3, opts...)
		other, _ := testkit.Another(t, servers, opts...)
		longUp(t, c)
		lease := testkit.Lock(t, c.Mutex("x"))
		servers[0].Restart(false)
		servers[1].Restart(false)
		var next *quorumlock.Lease
		for next == nil {
			time.Sleep(testkit.Thorough(10*time.Millisecond, 250*time.Millisecond))
			next, _ = other.Mutex("x").TryLock(t.Context())
		}
		two = lease.Context().Err() == nil
		testkit.Rises(t, lease, next)
		testkit.Unlock(t, next)
		_ = lease.Unlock(t.Context())
		testkit.Nothing(t, servers)
	})
	return two
}

// With a plain majority, the promise holds while no node forgets: hence the guard.
func TestRestartsWithoutDataMakeTwoHoldersOnlyWithoutTheGuard(t *testing.T) {
	t.Parallel()
	if !keepsTwoHolders(t) {
		t.Error("without the guard: one holder, so this test shows nothing")
	}
	if keepsTwoHolders(t, guarded) {
		t.Error("with the guard: two holders")
	}
}

func TestQuarantinedNodesAreNamedUntilTheyGrantAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5, guarded)
		longUp(t, c)
		testkit.Unlock(t, testkit.Lock(t, c.Mutex("x"))) // connects
		testkit.Each(servers[:3], func(s *embedded.Server) { s.Restart(false) })
		from := time.Now()
		_, _ = c.Inspect(t.Context(), "x") // finds the connections dead
		_, err := c.Mutex("x").TryLock(t.Context())
		e, ok := errors.AsType[*quorumlock.QuorumError](err)
		if !ok || !errors.Is(err, quorumlock.ErrQuarantined) || errors.Is(err, quorumlock.ErrHeld) {
			t.Fatalf("%v, want a *QuorumError with ErrQuarantined", err)
		}
		for _, n := range e.Nodes {
			if !errors.Is(n, quorumlock.ErrQuarantined) || !strings.Contains(n.Error(), "again in ") {
				t.Errorf("%v, want ErrQuarantined and for how long", n)
			}
		}
		lease := testkit.Lock(t, c.Mutex("x")) // waits
		testkit.Took(t, from, quarantine, quarantine+2200*time.Millisecond, "granted")
		testkit.Unlock(t, lease)
		testkit.Nothing(t, servers)
	})
}

// Where refusals alone decide, the lock is held, and a waiter gets it at its release.
func TestMinorityInQuarantineCostsNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5, guarded)
		other, _ := testkit.Another(t, servers, guarded)
		longUp(t, c)
		lease := testkit.Lock(t, c.Mutex("x"))
		testkit.Each(servers[:2], func(s *embedded.Server) { s.Restart(false) })
		time.Sleep(100 * time.Millisecond)
		testkit.Refused(t, other.Mutex("x"))
		granted := testkit.Go(func() *quorumlock.Lease { return testkit.MustLock(t, other.Mutex("x")) })
		time.Sleep(time.Second)
		released := time.Now()
		testkit.Unlock(t, lease)
		next := <-granted
		testkit.Took(t, released, 0, 10*time.Millisecond, "the handoff")
		testkit.Unlock(t, next)
		testkit.Nothing(t, servers)
	})
}

// A waiter may have been queued at a node since before its quarantine.
func TestWinnerLeavesTheQueueOfAQuarantinedNode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, guarded)
		other, _ := testkit.Another(t, servers, guarded)
		longUp(t, c)
		lease := testkit.Lock(t, c.Mutex("x"))
		won := testkit.Go(func() *quorumlock.Lease { return testkit.MustLock(t, other.Mutex("x")) })
		time.Sleep(time.Second)
		if !servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Error("no line: this test shows nothing")
		}
		servers[2].Promote()
		testkit.Unlock(t, lease)
		next := <-won
		synctest.Wait()
		if testkit.Holds(servers, "x", next.Owner()) != 2 || servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Errorf("node 3 has %q", testkit.Keys(servers[2]))
		}
		testkit.Unlock(t, next)
	})
}

// The holder keeps its lease, by the other nodes. One that forgot takes it back after its time, and
// not before: in the meantime it may have voted for another caller, whose lease would then be valid
// beside the holder's.
func TestHolderGetsALostKeyBackAfterTheQuarantineOnly(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5, guarded)
		longUp(t, c)
		lease := testkit.Lock(t, c.Mutex("x"))
		servers[0].Restart(false)
		for from := time.Now(); time.Since(from) < quarantine; time.Sleep(100 * time.Millisecond) {
			if servers[0].Redis.Exists("x") {
				t.Fatalf("the node has granted %v after its restart", time.Since(from))
			}
		}
		time.Sleep(quorumlock.DefaultTTL)
		testkit.HoldsAll(t, servers, lease)
		testkit.Held(t, lease)
		testkit.Unlock(t, lease)
		testkit.Nothing(t, servers)
	})
}

func TestMultiLockHasTheGuardOfItsClient(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, guarded)
		both := testkit.Multi(t, c.Mutex("x"), c.Mutex("y"))
		testkit.Is(t, testkit.Err(both.TryLock(t.Context())), quorumlock.ErrQuarantined, "nodes that have just started")
		testkit.Unlock(t, testkit.Lock(t, both))
		testkit.Nothing(t, servers)
	})
}

// A node that restarts without its data is asked to grant anew, and counts from the renewal after
// that: in the meantime another owner may have held the lock there.
func TestRestartWithNoDataCountsAgainFromTheRenewalAfterItsNewGrant(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		lease := testkit.Lock(t, c.Mutex("x"))
		testkit.HoldsAll(t, servers, lease)
		deadline := lease.ValidUntil()
		servers[3].Kill()
		servers[4].Kill() // so that the one that forgets is needed

		var mu sync.Mutex
		var ran []string
		servers[2].After(func(r embedded.Run) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, r.Script)
			if !lease.ValidUntil().Equal(deadline) {
				t.Errorf("the deadline has moved before %q: a node that forgot was counted", ran)
			}
			if r.Script == "renew" && slices.Contains(ran, "acquire") {
				servers[2].After(nil) // this one counts
			}
		})
		servers[2].Restart(false)
		time.Sleep(quorumlock.DefaultTTL * 2 / 3)
		servers[2].After(nil)
		mu.Lock()
		if want := []string{"renew", "acquire", "renew"}; !slices.Equal(ran, want) {
			t.Errorf("the node that restarted was sent %q, want %q", ran, want)
		}
		mu.Unlock()
		if !lease.ValidUntil().After(deadline) {
			t.Error("the lease was not renewed once the node counted again")
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		testkit.Held(t, lease)
		servers[3].Restart(true)
		servers[4].Restart(true)
		testkit.Unlock(t, lease)
	})
}

// twoRenewals is the time of two regular renewals, and of a handoff.
const twoRenewals = 2*quorumlock.DefaultTTL/3 + 100*time.Millisecond

// A node hands the lock over and its message is lost. It is renewed like the others, so it counts
// like them: the lease outlives as many other nodes as any lease does.
func TestANodeThatWasNotHeardToHandOverVotesAgainWithinTwoRenewals(t *testing.T) {
	for _, tt := range []struct {
		nodes, unheard int
		after          time.Duration
	}{
		{3, 1, twoRenewals},
		{3, 1, 10 * time.Minute},
		{5, 1, twoRenewals},
		{5, 2, twoRenewals},
		{5, 2, 10 * time.Minute},
	} {
		testkit.Run(t, fmt.Sprintf("%d of %d unheard, %v later", tt.unheard, tt.nodes, tt.after), func(t *testing.T) {
			first, servers := testkit.Client(t, tt.nodes)
			second, paths := testkit.Another(t, servers)
			holder := testkit.Lock(t, first.Mutex("x"))
			testkit.Warm(t, second)
			got := testkit.Waiter(t, second.Mutex("x"))
			unheard, heard := paths[:tt.unheard], servers[tt.unheard:]
			testkit.Each(unheard, func(p *embedded.Server) { p.LoseMessages(true) })
			testkit.MustUnlock(t, holder)
			lease := <-got
			synctest.Wait()
			testkit.Each(unheard, func(p *embedded.Server) { p.LoseMessages(false) })
			survivesAMinority(t, first.Mutex("x"), lease, servers, heard[:tt.nodes/2], tt.after)
		})
	}
}

// survivesAMinority checks that a lease goes on when some nodes die later, and leaves nothing.
func survivesAMinority(t *testing.T, other quorumlock.Locker, lease *quorumlock.Lease, servers, minority []*embedded.Server, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	testkit.Held(t, lease)
	testkit.Kill(minority...)
	died := time.Now()
	select {
	case <-lease.Context().Done():
		t.Errorf("the lease was lost %v after %d of %d nodes had died, with all others healthy", time.Since(died), len(minority), len(servers))
	case <-time.After(3 * quorumlock.DefaultTTL):
		testkit.Refused(t, other)
		testkit.MustUnlock(t, lease)
	}
	testkit.Restart(minority...)
	time.Sleep(quorumlock.DefaultTTL)
	testkit.Nothing(t, servers)
}
