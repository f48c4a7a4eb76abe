package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

func TestALockIsHandedOverWithoutAnotherAttempt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 5)
		holder := testkit.MustLock(t, clients[0].Mutex("x"))
		testkit.Warm(t, clients[1])
		got := testkit.Waiter(t, clients[1].Mutex("x"))
		attempts := testkit.Ran(servers, "acquire")
		testkit.MustUnlock(t, holder)
		lease := <-got
		testkit.Equal(t, testkit.Ran(servers, "acquire")-attempts, 0, "attempts after Unlock")
		testkit.Rises(t, holder, lease)
		left := time.Until(lease.ValidUntil())
		if left <= 0 || left > 1800*time.Millisecond {
			t.Errorf("valid for %v, want no more than what was handed over", left)
		}
		time.Sleep(60 * time.Millisecond)
		if left := time.Until(lease.ValidUntil()); left < quorumlock.DefaultTTL*9/10 {
			t.Errorf("valid for %v a little later, want it renewed for the whole TTL", left)
		}
		testkit.HoldsAll(t, servers, lease)
		testkit.MustUnlock(t, lease)
		testkit.NoLocks(t, servers)
	})
}

func TestWithoutRenewalNothingIsHandedOver(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, _ := testkit.Fleet(t, 2, 5)
		holder := testkit.MustLock(t, clients[0].Mutex("x"))
		got := testkit.Waiter(t, clients[1].Mutex("x", quorumlock.WithoutRenewal()))
		testkit.MustUnlock(t, holder)
		lease := <-got
		if left := time.Until(lease.ValidUntil()); left < quorumlock.DefaultTTL*9/10 {
			t.Errorf("valid for %v, want the whole TTL", left)
		}
		testkit.MustUnlock(t, lease)
	})
}

// A waiter that dies during a handoff keeps the next one waiting for the TTL of the handoff.
func TestALockThatWasHandedToADeadWaiterGoesOn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		first, servers := testkit.Client(t, 5)
		second, dying := testkit.Another(t, servers)
		third, _ := testkit.Another(t, servers)
		holder := testkit.MustLock(t, first.Mutex("x"))
		ctx, cancel := context.WithCancel(t.Context())
		dead := testkit.Call(t, ctx, second.Mutex("x").Lock)
		got := testkit.Waiter(t, third.Mutex("x"))
		testkit.Kill(dying...)
		start := time.Now()
		testkit.MustUnlock(t, holder)
		lease := <-got
		testkit.Took(t, start, time.Second, 2*time.Second, "the handoff past a dead waiter")
		testkit.MustUnlock(t, lease)
		cancel()
		testkit.Equal(t, <-dead, nil, "the lease of the dead one")
		testkit.Restart(dying...)
	})
}

// The members of a MultiLock may have their own nodes for the same servers. Then the client hears
// every message twice, once for each node, and long after: the second time changes nothing.
func TestAHandoffThatIsHeardTwiceIsKept(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 4, 3)
		for i, s := range servers {
			// So that the copies come before the quorum has spoken.
			s.Delay(time.Duration(i+1) * 200 * time.Microsecond)
		}
		both := testkit.Multi(t, clients[1].Mutex("A"), clients[2].Mutex("B"))
		check := func(l quorumlock.Locker, names ...string) {
			var holds []*quorumlock.Lease
			for _, name := range names {
				holds = append(holds, testkit.MustLock(t, clients[0].Mutex(name)))
			}
			got := testkit.Waiter(t, l)
			for _, h := range holds {
				go testkit.MustUnlock(t, h)
			}
			lease := <-got
			for _, name := range names {
				testkit.Refused(t, clients[3].Mutex(name))
			}
			time.Sleep(time.Minute)
			testkit.Held(t, lease)
			testkit.MustUnlock(t, lease)
		}
		for range 5 {
			check(both, "A", "B")
			check(clients[1].Mutex("x"), "x")
		}
		testkit.NoLocks(t, servers)
	})
}

// A lock is handed over for a short time. Nodes that stall just then do not cost the lease.
func TestWhatWasHandedOverOutlivesAStall(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 3)
		for phase := time.Duration(0); phase < 600*time.Millisecond; phase += 100 * time.Millisecond {
			holder := testkit.MustLock(t, clients[0].Mutex("x"))
			got := testkit.Waiter(t, clients[1].Mutex("x"))
			time.Sleep(phase)
			testkit.MustUnlock(t, holder)
			lease := <-got
			testkit.Each(servers, (*embedded.Server).Stall)
			time.Sleep(quorumlock.DefaultTTL / 20)
			testkit.Each(servers, (*embedded.Server).Resume)
			time.Sleep(time.Minute)
			testkit.Held(t, lease)
			testkit.MustUnlock(t, lease)
		}
	})
}

// If a handoff is heard so late that the first renewal might come too late, another attempt takes
// it over, for the whole TTL.
func TestAHandoffOfWhichTooLittleIsLeftIsNotTaken(t *testing.T) {
	for late, want := range map[time.Duration]bool{0: true, 15 * time.Millisecond: false} {
		testkit.Run(t, late.String(), func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 3, quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(485*time.Millisecond))
			holder := testkit.MustLock(t, clients[0].Mutex("x"))
			testkit.Warm(t, clients[1])
			got := testkit.Waiter(t, clients[1].Mutex("x"))
			// 480 ms since it came; a node hands over for half a second.
			time.Sleep(460 * time.Millisecond)
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(late) })
			testkit.MustUnlock(t, holder)
			lease := <-got
			if _, handed, _ := strings.Cut(string(lease.Owner()), "/"); (handed != "") != want {
				t.Errorf("held by %s", lease.Owner())
			}
			testkit.MustUnlock(t, lease)
			testkit.NoLocks(t, servers)
		})
	}
}

// The first waiter's entry is missing at one node, and another node is silent, so each of two
// waiters is handed a part. However long they have waited before, they must not wait for the silent
// node.
func TestALongWaitMakesNoHandoffLate(t *testing.T) {
	for _, waits := range []time.Duration{0, 8 * time.Second} {
		testkit.Run(t, waits.String(), func(t *testing.T) {
			first, servers := testkit.Client(t, 3)
			one, paths := testkit.Another(t, servers)
			two, _ := testkit.Another(t, servers)
			holder := testkit.MustLock(t, first.Mutex("x"))
			got := testkit.Waiter(t, one.Mutex("x"))
			time.Sleep(10 * time.Millisecond)
			next := testkit.Waiter(t, two.Mutex("x"))
			time.Sleep(waits)
			paths[1].Lose()
			time.Sleep(2500 * time.Millisecond) // the entry there ends
			servers[2].Stall()
			paths[1].Resume()
			start := time.Now()
			testkit.MustUnlock(t, holder)
			for range 2 {
				select {
				case l := <-got:
					testkit.MustUnlock(t, l)
				case l := <-next:
					testkit.MustUnlock(t, l)
				}
			}
			testkit.Took(t, start, 0, 50*time.Millisecond, "both had the lock")
			servers[2].Resume()
		})
	}
}

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
		for rotation := range testkit.Thorough(5, 1) {
			testkit.Run(t, fmt.Sprint(tt.name, ", rotation ", rotation), func(t *testing.T) {
				servers, _ := testkit.Nodes(t, 5)
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
	first, near := testkit.Another(t, servers)
	second, far := testkit.Another(t, servers)
	testkit.Warm(t, first)
	testkit.Warm(t, second)
	for i := range servers {
		near[i].Delay(time.Duration(i+1) * 400 * time.Microsecond)
		far[i].Delay(time.Duration((i+rotation)%len(servers)+1) * 400 * time.Microsecond)
	}
	if throughout {
		testkit.Each(quiet, fall)
	}
	for i := range 33 {
		ahead := time.Duration(i-8) * 250 * time.Microsecond // of the Unlock, from -2 to 6 ms
		holder := testkit.MustLock(t, first.Mutex("x"))
		time.Sleep(10 * time.Millisecond)
		if !throughout {
			testkit.Each(quiet, fall)
		}
		begin := time.Now()
		got := testkit.Go(func() *quorumlock.Lease {
			time.Sleep(max(-ahead, 0))
			return testkit.MustLock(t, second.Mutex("x"))
		})
		time.Sleep(max(ahead, 0))
		go testkit.MustUnlock(t, holder)
		lease := <-got
		took = append(took, time.Since(begin.Add(max(ahead, -ahead))))
		testkit.MustUnlock(t, lease)
		if !throughout {
			testkit.Each(quiet, (*embedded.Server).Resume)
		}
		// A subscription is kept for ten seconds.
		time.Sleep(time.Second * time.Duration(1+10*(i%2)))
	}
	testkit.Each(quiet, (*embedded.Server).Resume)
	time.Sleep(quorumlock.DefaultTTL)
	testkit.Nothing(t, servers)
	return took
}

// While round trips take many times longer than before, a caller with little time left asks no node
// for a lock that another caller has just waited for in vain. Callers with more time, and callers
// of free locks and quick nodes, ask as always.
func TestCallersWithLittleTimeDoNotAskBusyNodes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var asked testkit.Events
		c, servers := testkit.Client(t, 3, quorumlock.WithObserver(&asked))
		other, _ := testkit.Another(t, servers)
		delay := func(d time.Duration) { testkit.Each(servers, func(s *embedded.Server) { s.Delay(d) }) }
		// try calls Lock, and reports whether that asked a node.
		try := func(name string, wait time.Duration) (bool, *quorumlock.Lease, error) {
			before := asked.Of(quorumlock.EventNodeAsked)
			lease, err := c.Mutex(name).Lock(testkit.Within(t, wait))
			did := asked.Of(quorumlock.EventNodeAsked) != before
			time.Sleep(100 * time.Millisecond) // its calls come back
			return did, lease, err
		}
		check := func(what, name string, wait time.Duration, want bool) {
			t.Helper()
			began := time.Now()
			did, lease, err := try(name, wait)
			testkit.Equal(t, did, want, "%s: asked", what)
			if lease != nil {
				t.Fatalf("%s: granted", what)
			}
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) {
				t.Errorf("%s: %v, want the end of the time, and that the lock is held", what, err)
			}
			if took := time.Since(began) - 100*time.Millisecond; took < wait {
				t.Errorf("%s: returned after %v of %v", what, took, wait)
			}
		}
		delay(time.Millisecond)
		held := testkit.MustLock(t, other.Mutex("x"))
		elsewhere := testkit.MustLock(t, other.Mutex("y"))
		check("quick nodes", "x", 50*time.Millisecond, true)
		check("quick nodes, after one gave up", "x", 50*time.Millisecond, true)
		delay(15 * time.Millisecond)
		check("a caller with much time", "x", 400*time.Millisecond, true)
		check("little time, just after one gave up", "x", 100*time.Millisecond, false)
		check("little time for another lock", "y", 100*time.Millisecond, true)
		check("little time, 250 ms after one gave up", "x", 100*time.Millisecond, true)
		check("just after that one", "x", 100*time.Millisecond, false)
		check("much time", "x", 400*time.Millisecond, true)
		testkit.MustUnlock(t, held)
		testkit.MustUnlock(t, elsewhere)
		time.Sleep(time.Second)
		for range 2 {
			did, lease, err := try("x", 100*time.Millisecond)
			if err != nil || !did {
				t.Fatalf("a free lock: asked %v, %v", did, err)
			}
			testkit.MustUnlock(t, lease)
		}
	})
}

// A caller that does not ask reports the lack of a quorum that the caller before it has met.
func TestCallersThatDoNotAskReportTheLackOfAQuorum(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		m := c.Mutex("x")
		for _, d := range []time.Duration{time.Millisecond, 15 * time.Millisecond} {
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(d) })
			for range 10 {
				testkit.Unlock(t, testkit.Lock(t, m))
			}
		}
		testkit.Kill(servers[1:]...)
		for _, wait := range []time.Duration{400 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond} {
			if _, err := m.Lock(testkit.Within(t, wait)); !errors.Is(err, quorumlock.ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: %v", wait, err)
			}
		}
	})
}
