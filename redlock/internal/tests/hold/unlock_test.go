package hold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// Nodes whose grant is still on its way when Unlock begins release it when it comes. They count as
// released: one more dead node does not cost the quorum.
func TestUnlockCountsTheNodesThatAreYetToAnswer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5)
		testkit.Warm(t, c)
		testkit.Each(servers[3:], func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		lease := testkit.Lock(t, c.Mutex("x"))
		servers[0].Kill()
		testkit.OK(t, lease.Unlock(t.Context()), "Unlock with four of five nodes healthy")
		for i, s := range servers[1:] {
			if left := testkit.Keys(s); len(left) > 0 && i < 2 {
				t.Errorf("Unlock returned, and %s has %q", s.Name, left)
			}
		}
		testkit.NoLocks(t, servers[1:])
	})
}

func TestUnlockAfterTheLongestTimeKeepsTheLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, _ := testkit.Client(t, 3)
		time.Sleep(time.Millisecond) // the clock does not stand at its beginning
		lease := testkit.Lock(t, c.Mutex("x"))
		testkit.Must(t, lease.UnlockAfter(t.Context(), math.MaxInt64), "UnlockAfter")
		testkit.Is(t, testkit.Err(c.Mutex("x").TryLock(t.Context())), quorumlock.ErrHeld, "TryLock")
	})
}

func TestUnlockWaitsForTheNodeTimeoutAtMost(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		testkit.Warm(t, c)
		servers[4].Stall() // it has not even answered the attempt
		lease := testkit.Lock(t, c.Mutex("x"))
		testkit.Each(servers[:2], (*embedded.Server).Stall)
		start := time.Now()
		err := lease.Unlock(t.Context())
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || len(q.Nodes) < 2 {
			t.Errorf("Unlock with two nodes of five healthy: %v, want a QuorumError that names them", err)
		}
		testkit.Took(t, start, 0, 500*time.Millisecond, "Unlock")
		testkit.Each(servers, (*embedded.Server).Resume)
		time.Sleep(10 * time.Second)
	})
}

// The holder hears of it at Unlock if it has not renewed meanwhile.
func TestUnlockTellsThatTheKeysWereTakenAway(t *testing.T) {
	for gone := range 6 {
		testkit.Run(t, fmt.Sprint(gone), func(t *testing.T) {
			c, servers := testkit.Client(t, 5)
			lease := testkit.Lock(t, c.Mutex("x"))
			testkit.HoldsAll(t, servers, lease)
			testkit.Each(servers[:gone], func(s *embedded.Server) { s.Redis.Del("x") })
			err := lease.Unlock(t.Context())
			switch {
			case gone <= 2:
				testkit.OK(t, err, "Unlock")
			case gone == 5:
				testkit.Is(t, err, quorumlock.ErrLost, "Unlock")
			}
			testkit.Nothing(t, servers)
		})
	}
}

// Unlock returns when a quorum of the nodes has released. At the others the former holder has the
// lock for a moment longer, or until the release is sent again, and nobody else has it.
func TestTryLockIsNotRefusedByOnesOwnReleaseThatIsLate(t *testing.T) {
	type fault struct {
		name       string
		begin, end func(*embedded.Server)
	}
	restart := func(s *embedded.Server) { s.Restart(true) }
	loses := fault{"loses its reply", func(s *embedded.Server) { s.LoseReplies(1) }, func(s *embedded.Server) { s.LoseReplies(0) }}
	// Messages on their way stay late; later ones on another connection are not.
	delayed := func(by time.Duration) fault {
		return fault{by.String() + " late", func(s *embedded.Server) { s.Delay(by) }, func(s *embedded.Server) { s.Delay(0) }}
	}
	dead := fault{"sent to dead nodes", (*embedded.Server).Kill, func(s *embedded.Server) { synctest.Wait(); s.Restart(true) }}
	for _, release := range []fault{delayed(time.Millisecond), delayed(20 * time.Millisecond), delayed(200 * time.Millisecond), dead} {
		for _, f := range []fault{
			{"is frozen", (*embedded.Server).Stall, (*embedded.Server).Resume}, {"loses requests", (*embedded.Server).Lose, (*embedded.Server).Resume},
			loses, {"refuses connections", (*embedded.Server).Kill, restart},
		} {
			testkit.Run(t, "releases are "+release.name+", a node "+f.name, func(t *testing.T) {
				c, servers := testkit.Client(t, 5)
				m := c.Mutex("x")
				for round := range 3 {
					lease := testkit.Lock(t, m)
					testkit.Each(servers[3:], release.begin)
					testkit.MustUnlock(t, lease)
					testkit.Each(servers[3:], release.end)
					if release.name == dead.name {
						time.Sleep(time.Duration(round) * time.Millisecond)
					}
					f.begin(servers[round])
					next, err := m.TryLock(t.Context())
					switch {
					case err == nil:
						testkit.MustUnlock(t, next)
					case errors.Is(err, quorumlock.ErrHeld):
						t.Errorf("TryLock: %v\nnobody else exists", err)
					default:
						t.Log("TryLock:", err)
					}
					f.end(servers[round])
					time.Sleep(2 * quorumlock.DefaultTTL)
				}
			})
		}
	}
}

func TestARefusalSaysWhoHoldsTheLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 3)
		lease := testkit.Lock(t, clients[0].Mutex("x"))
		_, err := clients[1].Mutex("x").TryLock(t.Context())
		held, ok := errors.AsType[*quorumlock.HeldError](err)
		if !ok || !errors.Is(err, quorumlock.ErrHeld) || held.Name != "x" || held.Holder != lease.Owner() || held.TTL <= 9*time.Second || held.TTL > quorumlock.DefaultTTL || held.Position != 0 {
			t.Errorf("TryLock: %#v, want one that names %s", err, lease.Owner())
		}
		_, err = clients[1].Mutex("x", quorumlock.WithWait(5*time.Second)).Lock(t.Context())
		if held, ok = errors.AsType[*quorumlock.HeldError](err); !ok || held.Holder != lease.Owner() || held.Position != 1 {
			t.Errorf("Lock: %#v, want the holder and the first position", err)
		}
		testkit.Unlock(t, lease)
		testkit.Nothing(t, servers)
	})
}

// A waiter that was refused by a quorum yields its grant elsewhere. Its ctx ends before the node
// has confirmed the yield.
func TestARefusalSaysWhoHoldsTheLockEvenIfTheCallerGoesDuringAYield(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 3)
		lease := testkit.Lock(t, clients[0].Mutex("x"))
		servers[2].Redis.Del("x") // this node grants it to the waiter, as one of three
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		servers[2].Before(func(r embedded.Run) {
			if r.Script == "release" {
				cancel()
				<-returned
			}
		})
		_, err := clients[1].Mutex("x").Lock(ctx)
		servers[2].Before(nil)
		close(returned)
		held, ok := errors.AsType[*quorumlock.HeldError](err)
		if !ok || held.Holder != lease.Owner() || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v, want that it was cancelled, and who holds the lock", err)
		}
		synctest.Wait()
		_ = lease.Unlock(t.Context())
		testkit.Nothing(t, servers)
	})
}

// A Lock that waits for a lease of its own process may contend with another goroutine, or lack the
// lease's context. The error does not advise to pass that context: two goroutines that do so would
// both enter.
func TestALockThatWaitsForItsOwnProcessSaysSo(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithWait(time.Second))
		other, _ := testkit.Another(t, servers, quorumlock.WithWait(time.Second))
		testkit.MustLock(t, c.Mutex("x"))
		for range 3 { // the others wait in the local queue, and ask no node
			go c.Mutex("x").Lock(t.Context()) //nolint:errcheck // it waits in vain
		}
		synctest.Wait()
		for name, tt := range map[string]struct {
			lock quorumlock.Locker
			own  bool
		}{"the client that holds": {c.Mutex("x"), true}, "another client": {other.Mutex("x"), false}} {
			for way, call := range map[string]func(context.Context) (*quorumlock.Lease, error){"TryLock": tt.lock.TryLock, "Lock": tt.lock.Lock} {
				_, err := call(t.Context())
				held, ok := errors.AsType[*quorumlock.HeldError](err)
				says := err != nil && strings.Contains(err.Error(), "held by this process")
				if !ok || strings.Contains(err.Error(), "context to enter") || held.Own != tt.own || says != tt.own || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s of %s: %v, want one line that says whether it is held by this process", way, name, err)
				}
			}
		}
	})
}

// A Lock within a hold, but without its context, waits for itself. The log says so once.
func TestALockThatWaitsForItselfIsLoggedOnce(t *testing.T) {
	for name, within := range map[string]time.Duration{"for a TTL": 0, "for less": 9 * time.Second} {
		testkit.Run(t, name, func(t *testing.T) {
			log, logger := testkit.Logger()
			c, _ := testkit.Client(t, 3, logger)
			lease := testkit.MustLock(t, c.Mutex("x"))
			if within > 0 {
				time.AfterFunc(within, func() { testkit.MustUnlock(t, lease) })
			}
			inner, err := c.Mutex("x").Lock(testkit.Within(t, time.Minute))
			want := 1
			if within > 0 {
				want = 0
				testkit.Must(t, err, "Lock")
				testkit.MustUnlock(t, inner)
			}
			testkit.Equal(t, len(log.Lines("a Lock has waited a whole TTL for one lease of its own process", "lock=x")), want, "the lines of the log")
		})
	}
}

// An exhausted time budget is 0 or negative. It means "no wait", not "for ever".
func TestNoTimeToWaitIsNoWaiting(t *testing.T) {
	for name, tt := range map[string]struct {
		before       func(t *testing.T, c *redlock.Client, servers []*embedded.Server)
		want         func(error) bool // nil: a lease
		waitingHelps bool
	}{
		"free": {func(*testing.T, *redlock.Client, []*embedded.Server) {}, nil, false},
		"held": {func(t *testing.T, c *redlock.Client, _ []*embedded.Server) { testkit.Lock(t, c.Mutex("x")) },
			func(err error) bool { return errors.Is(err, quorumlock.ErrHeld) }, true},
		"no quorum": {func(_ *testing.T, _ *redlock.Client, servers []*embedded.Server) { testkit.Kill(servers[:2]...) },
			func(err error) bool { _, few := errors.AsType[*quorumlock.QuorumError](err); return few }, true},
		"no lock": {func(t *testing.T, _ *redlock.Client, servers []*embedded.Server) {
			testkit.Each(servers, func(s *embedded.Server) { _ = s.Redis.Set("x", "a string") })
		}, func(err error) bool { return errors.Is(err, quorumlock.ErrNotALock) }, false},
	} {
		for _, limit := range []time.Duration{0, -time.Second} {
			testkit.Run(t, name+", "+limit.String(), func(t *testing.T) {
				c, servers := testkit.Client(t, 3)
				tt.before(t, c, servers)
				other, _ := testkit.Another(t, servers)
				m := other.Mutex("x", quorumlock.WithWait(limit))
				began := time.Now()
				lease, err := m.Lock(t.Context())
				testkit.Took(t, began, 0, 3*500*time.Millisecond, "Lock")
				if tt.want == nil {
					testkit.Must(t, err, "Lock")
					testkit.Unlock(t, lease)
					return
				}
				if !tt.want(err) || errors.Is(err, context.DeadlineExceeded) != tt.waitingHelps {
					t.Errorf("Lock: %v, with DeadlineExceeded: %v", err, tt.waitingHelps)
				}
				if _, err := m.TryLock(t.Context()); err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("TryLock: %v, want an error other than DeadlineExceeded", err)
				}
			})
		}
	}
}

func TestNoTimeToWaitForALatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithWait(0))
		l := c.Latch("x", 2)
		began := time.Now()
		testkit.OK(t, l.Done(t.Context(), "a"), "Done")
		testkit.Is(t, l.Wait(t.Context()), context.DeadlineExceeded, "Wait for a latch that is not open")
		testkit.Done(t, l, "b")
		testkit.OK(t, l.Wait(t.Context()), "Wait for a latch that is open")
		testkit.Kill(servers...)
		testkit.Is(t, c.Latch("y", 2).Done(t.Context(), "a"), context.DeadlineExceeded, "Done without a quorum")
		testkit.Took(t, began, 0, 5*time.Second, "they")
	})
}

func TestExtendCancelledKeepsTheLease(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		lease := testkit.Lock(t, c.Mutex("x"))
		testkit.Each(servers, (*embedded.Server).Stall)
		ctx := testkit.Within(t, 100*time.Millisecond)
		testkit.Is(t, lease.Extend(ctx), context.DeadlineExceeded, "Extend")
		testkit.Each(servers, (*embedded.Server).Resume)
		time.Sleep(2 * quorumlock.DefaultTTL)
		testkit.Held(t, lease)
		testkit.Unlock(t, lease)
	})
}

// Another program writes its own value under the key of a held lock: a plain SET, as simple locks
// do. The hold is over where that happens, as after a DEL.
func TestAHoldWhoseKeysWereOverwrittenIsLost(t *testing.T) {
	for what, use := range map[string]func(t *testing.T, m *redlock.Mutex, spoil func()) error{
		"Unlock": func(t *testing.T, m *redlock.Mutex, spoil func()) error {
			lease := testkit.MustLock(t, m)
			spoil()
			return lease.Unlock(t.Context())
		},
		"UnlockAfter": func(t *testing.T, m *redlock.Mutex, spoil func()) error {
			lease := testkit.MustLock(t, m)
			spoil()
			return lease.UnlockAfter(t.Context(), time.Second)
		},
		"Extend": func(t *testing.T, m *redlock.Mutex, spoil func()) error {
			lease := testkit.MustLock(t, m)
			defer lease.Unlock(t.Context()) //nolint:errcheck // Extend has the error
			spoil()
			return lease.Extend(t.Context())
		},
		"the watchdog": func(t *testing.T, m *redlock.Mutex, spoil func()) error {
			lease := testkit.MustLock(t, m)
			defer lease.Unlock(t.Context()) //nolint:errcheck // the context has the error
			spoil()
			time.Sleep(quorumlock.DefaultTTL / 2)
			return context.Cause(lease.Context())
		},
		"Do": func(t *testing.T, m *redlock.Mutex, spoil func()) error {
			return quorumlock.Do(t.Context(), m, func(context.Context) error { spoil(); return nil })
		},
		"Once": func(t *testing.T, m *redlock.Mutex, spoil func()) error {
			_, err := quorumlock.Once(t.Context(), m, time.Minute, func(context.Context) error { spoil(); return nil })
			return err
		},
	} {
		for spoilt, want := range []bool{false, false, true, true} { // of 3 nodes
			testkit.Run(t, fmt.Sprintf("%s, %d nodes", what, spoilt), func(t *testing.T) {
				c, servers := testkit.Client(t, 3)
				err := use(t, c.Mutex("x"), func() {
					synctest.Wait() // all nodes have granted
					for _, s := range servers[:spoilt] {
						s.Redis.Del("x") // miniredis's Set refuses a key of another type
						testkit.Must(t, s.Redis.Set("x", "somebody's"), "Set")
					}
				})
				if errors.Is(err, quorumlock.ErrLost) != want || (err != nil) != want {
					t.Errorf("%v, want a loss: %v", err, want)
				}
			})
		}
	}
}
