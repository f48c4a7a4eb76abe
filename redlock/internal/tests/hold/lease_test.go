package hold

import (
	"context"
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
	public "github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A lease without renewal ends by itself, on time, and Extend prolongs it.
func TestLeaseWithoutRenewalEndsAtItsTTL(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other, _ := testkit.Another(t, servers)
		m := c.Mutex("x", quorumlock.WithoutRenewal(), quorumlock.WithTTL(time.Second))
		lease := testkit.Lock(t, m)
		for range 5 {
			time.Sleep(900 * time.Millisecond)
			testkit.Must(t, lease.Extend(t.Context()), "Extend")
			testkit.Equal(t, time.Until(lease.ValidUntil()), 988*time.Millisecond, "left after Extend")
		}
		deadline := lease.ValidUntil()
		testkit.Lost(t, lease, time.Minute)
		testkit.Took(t, deadline, 0, 0, "the loss, from the deadline")
		testkit.Refused(t, other.Mutex("x")) // the drift
		time.Sleep(12 * time.Millisecond)
		testkit.Unlock(t, testkit.TryLock(t, other.Mutex("x")))
		for _, s := range servers {
			testkit.Equal(t, s.Ran("renew"), 5, "renewals ran at %s", s.Name)
		}
	})
}

// ExtendTo gives each kind of lock a TTL of the caller's choice. Neither a shorter one nor the
// renewal shortens it, and the nodes keep the lock as long, though the process dies.
func TestExtendToLastsAtLeastThatLong(t *testing.T) {
	type client = redlock.Client
	for name, lock := range map[string]func(c *client, opts ...quorumlock.Option) quorumlock.Locker{
		"Mutex":     func(c *client, o ...quorumlock.Option) quorumlock.Locker { return c.Mutex("x", o...) },
		"reader":    func(c *client, o ...quorumlock.Option) quorumlock.Locker { return c.RWMutex("x", o...).RLocker() },
		"Semaphore": func(c *client, o ...quorumlock.Option) quorumlock.Locker { return c.Semaphore("x", 1, o...) },
		"MultiLock": func(c *client, o ...quorumlock.Option) quorumlock.Locker {
			m, err := multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("y")}, o...)
			testkit.Must(t, err, "multilock.New")
			return m
		},
	} {
		for _, opts := range [][]quorumlock.Option{{quorumlock.WithoutRenewal()}, {}} {
			testkit.Run(t, fmt.Sprint(name, len(opts)), func(t *testing.T) {
				c, servers := testkit.Client(t, 3)
				other, _ := testkit.Another(t, servers)
				lease := testkit.Lock(t, lock(c, opts...))
				synctest.Wait() // for the node beyond the quorum
				began := time.Now()
				for _, ttl := range []time.Duration{time.Hour, time.Minute} {
					testkit.Must(t, lease.ExtendTo(t.Context(), ttl), "ExtendTo")
				}
				testkit.Must(t, lease.Extend(t.Context()), "Extend")
				valid := time.Hour - time.Hour/100 - 2*time.Millisecond
				testkit.Took(t, began, 0, 0, "the extensions")
				testkit.Equal(t, time.Until(lease.ValidUntil()), valid, "the validity")
				time.Sleep(30 * time.Minute)
				testkit.Must(t, lease.Context().Err(), "the context")
				if len(opts) == 0 {
					testkit.Must(t, c.Close(), "Close") // as if the process had died
				}
				time.Sleep(time.Until(began.Add(time.Hour - time.Millisecond)))
				testkit.Equal(t, lease.Context().Err() != nil, true, "the context is done")
				if name == "Semaphore" {
					testkit.Refused(t, other.Semaphore("x", 1))
				} else {
					testkit.Refused(t, other.RWMutex("x"))
				}
				time.Sleep(50 * time.Millisecond) // the embedded nodes' clock is as coarse
				testkit.Unlock(t, testkit.TryLock(t, lock(other)))
			})
		}
	}
}

func TestExtendToRefusesBadTTLs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, _ := testkit.Client(t, 3, quorumlock.WithRestartGuard(time.Minute))
		time.Sleep(2 * time.Minute)
		lease := testkit.Lock(t, c.Mutex("x"))
		for ttl, want := range map[time.Duration]string{0: "use a TTL of", -time.Second: "use a TTL of", 400 * 24 * time.Hour: "use a TTL of", time.Hour: "WithRestartGuard(1m0s)"} {
			err := lease.ExtendTo(t.Context(), ttl)
			testkit.Is(t, err, quorumlock.ErrMisuse, "ExtendTo")
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("ExtendTo(%v): %v, want %q", ttl, err, want)
			}
		}
		testkit.Unlock(t, lease)
	})
}

func TestExtendOfALeaseThatIsUnlockedMeanwhileIsNotHeld(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		lease := testkit.Lock(t, c.Mutex("x"))
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		extended := testkit.Go(func() error { return lease.Extend(t.Context()) })
		time.Sleep(time.Millisecond)
		testkit.MustUnlock(t, lease)
		if err := <-extended; !errors.Is(err, quorumlock.ErrNotHeld) || errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Extend: %v, want ErrNotHeld", err)
		}
	})
}

func TestWaitIsBoundedAndTheLeaseIsNot(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other, _ := testkit.Another(t, servers)
		m := other.Mutex("x", quorumlock.WithWait(3*time.Second))
		holder := testkit.Lock(t, c.Mutex("x"))
		start := time.Now()
		_, err := m.Lock(t.Context())
		testkit.Took(t, start, 3*time.Second, 3*time.Second, "Lock")
		testkit.Is(t, err, context.DeadlineExceeded, "Lock")
		testkit.Is(t, err, quorumlock.ErrHeld, "Lock")
		time.AfterFunc(2*time.Second, func() { _ = holder.Unlock(context.WithoutCancel(t.Context())) })
		lease := testkit.Lock(t, m)
		if _, bounded := lease.Context().Deadline(); bounded {
			t.Error("the lease's context has the deadline of the wait")
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		testkit.Held(t, lease)
		testkit.Unlock(t, lease)
	})
}

func TestInspectSeesWhatTheQuorumSees(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5)
		m := c.Mutex("x")
		if in, err := c.Inspect(t.Context(), "x"); err != nil || in.State.Held() || in.State.Token != 0 {
			t.Errorf("a lock nobody had: %+v, %v", in.State, err)
		}
		lease := testkit.Lock(t, m)
		time.Sleep(time.Second)
		in, err := c.Inspect(t.Context(), "x")
		if err != nil || in.State.Owner != lease.Owner() || in.State.HoldCount != 1 || in.State.TTL != 9*time.Second || in.State.Token != lease.Token() {
			t.Errorf("a held lock: %+v, %v", in.State, err)
		}
		servers[0].Redis.Del("x")
		servers[1].Kill()
		if in, err = c.Inspect(t.Context(), "x"); err != nil || in.State.Owner != lease.Owner() {
			t.Errorf("a lock that three nodes know: %+v, %v", in.State, err)
		}
		if in.Nodes[0].State.Held() || in.Nodes[1].Err == nil || in.Nodes[2].State.Owner != lease.Owner() {
			t.Errorf("node by node: %+v", in.Nodes)
		}
		servers[2].Redis.Del("x")
		if in, err = c.Inspect(t.Context(), "x"); err != nil || in.State.Held() {
			t.Errorf("a lock that two nodes know: %+v, %v", in.State, err)
		}
		servers[3].Kill()
		servers[4].Kill()
		_, err = c.Inspect(t.Context(), "x")
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || len(q.Nodes) != 3 {
			t.Errorf("with three nodes dead: %v, want a QuorumError that names them", err)
		}
		_ = lease.Unlock(t.Context())
	})
}

func TestALeaseThatIsOverIsNotValid(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		d, _ := testkit.Another(t, servers)
		lost := testkit.Lock(t, c.Mutex("x"))
		outer, began := testkit.Lock(t, c.Mutex("y")), time.Now()
		inner := testkit.LockIn(t, outer.Context(), c.Mutex("y"))
		time.Sleep(time.Second)
		testkit.Must(t, d.ForceUnlock(t.Context(), "x"), "ForceUnlock")
		testkit.Is(t, lost.Extend(t.Context()), quorumlock.ErrLost, "Extend")
		if until := lost.ValidUntil(); until.After(time.Now()) {
			t.Errorf("a lost lease is valid for another %v", time.Until(until))
		}
		testkit.Unlock(t, inner)
		if until := outer.ValidUntil(); !until.After(time.Now()) {
			t.Errorf("a lease is valid until %v, though only an inner one was unlocked", until)
		}
		testkit.Unlock(t, outer)
		over := time.Now()
		time.Sleep(time.Second)
		if until := outer.ValidUntil(); until.After(over) || until.Before(began) {
			t.Errorf("a lease that was unlocked at %v is valid until %v", over, until)
		}
		_ = lost.Unlock(t.Context())
	})
}

// A copy of a lease is the same lease: its Unlock releases the lock, and its Downgrade shares it.
func TestACopyOfALeaseReleases(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		lease := *testkit.Lock(t, c.Mutex("x"))
		inner := testkit.LockIn(t, lease.Context(), c.Mutex("x"))
		testkit.Unlock(t, inner)
		testkit.Unlock(t, &lease)
		testkit.Unlock(t, testkit.TryLock(t, c.Mutex("x")))

		rw := c.RWMutex("y")
		writer := *testkit.Lock(t, rw)
		testkit.OK(t, rw.Downgrade(t.Context(), &writer), "Downgrade of a copy")
		testkit.Unlock(t, testkit.TryLock(t, rw.RLocker()))
		testkit.Unlock(t, &writer)
	})
}

func TestMaxHoldEndsALeaseThatIsForgotten(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		began := time.Now()
		lease := testkit.Lock(t, c.Mutex("x", quorumlock.WithMaxHold(time.Minute)))
		<-lease.Context().Done()
		testkit.Took(t, began, time.Minute, time.Minute+quorumlock.DefaultTTL, "held")
		time.Sleep(quorumlock.DefaultTTL)
		testkit.Unlock(t, testkit.TryLock(t, c.Mutex("x")))
	})
}

// All callers that entered the hold hear of the loss, and why it was lost.
func TestTheCauseOfALossSaysWhyAndWhichNodes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   []quorumlock.Option
		lose   func(servers []*embedded.Server)
		reason string
		nodes  int
	}{
		{"nodes down", nil, func(s []*embedded.Server) { testkit.Kill(s[:2]...) }, "not renewed in time", 2},
		{"keys gone", nil, func(s []*embedded.Server) { testkit.Each(s[:2], func(s *embedded.Server) { s.Redis.Del("x") }) }, "too many nodes no longer have its key", 0},
		{"not extended", []quorumlock.Option{quorumlock.WithoutRenewal()}, func([]*embedded.Server) {}, "not extended in time", 0},
		{"held for too long", []quorumlock.Option{quorumlock.WithMaxHold(time.Minute)}, func([]*embedded.Server) {}, "WithMaxHold(1m0s)", 0},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3, tt.opts...)
			outer := testkit.Lock(t, c.Mutex("x"))
			inner := testkit.LockIn(t, context.WithoutCancel(outer.Context()), c.Mutex("x"))
			tt.lose(servers)
			testkit.Lost(t, outer, time.Minute+quorumlock.DefaultTTL)
			testkit.Lost(t, inner, 0)
			for _, l := range []*quorumlock.Lease{inner, outer} {
				testkit.Is(t, l.Extend(t.Context()), quorumlock.ErrLost, "Extend")
				for what, err := range map[string]error{"the cause": context.Cause(l.Context()), "Unlock": l.Unlock(t.Context())} {
					lost, ok := errors.AsType[*quorumlock.LostError](err)
					if !ok || !errors.Is(err, quorumlock.ErrLost) {
						t.Errorf("%s: %v, want a LostError", what, err)
					} else if lost.Name != "x" || lost.Owner != l.Owner() || !strings.Contains(lost.Reason, tt.reason) || len(lost.Nodes) != tt.nodes {
						t.Errorf("%s: %+v, want %q and %d nodes", what, lost, tt.reason, tt.nodes)
					}
				}
			}
		})
	}
}

// Goroutines that are started with a lease's context all enter, unless the lock refuses that. Its
// own lease is no obstacle after it has ended.
func TestWithoutReentryRefusesTheContextOfItsOwnLease(t *testing.T) {
	once := quorumlock.WithoutReentry()
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		both, err := multilock.New([]quorumlock.Locker{c.Mutex("a"), c.Mutex("b")}, once)
		testkit.Must(t, err, "New")
		for name, lock := range map[string]quorumlock.Locker{
			"a mutex":    c.Mutex("x", once),
			"a writer":   c.RWMutex("w", once),
			"a reader":   c.RWMutex("r", once).RLocker(),
			"a slot":     c.Semaphore("s", 3, once),
			"two locks":  both,
			"a fake one": public.New("f", once),
		} {
			outer := testkit.Lock(t, lock)
			before := testkit.Ran(servers)
			for call, take := range map[string]func(context.Context) (*quorumlock.Lease, error){"Lock": lock.Lock, "TryLock": lock.TryLock} {
				lease, err := take(outer.Context())
				if !errors.Is(err, quorumlock.ErrDeadlock) || !errors.Is(err, quorumlock.ErrMisuse) || errors.Is(err, quorumlock.ErrHeld) {
					t.Errorf("%s: %s with the context of its lease: %v, %v, want ErrDeadlock", name, call, lease, err)
				} else if !strings.Contains(err.Error(), "a context that does not descend from the lease") {
					t.Errorf("%s: %s: %v, want the fix", name, call, err)
				}
			}
			if n := testkit.Ran(servers) - before; n != 0 || outer.HoldCount() != 1 {
				t.Errorf("%s: %d scripts ran, and the hold count is %d, want none and 1", name, n, outer.HoldCount())
			}
			testkit.Unlock(t, outer)
			testkit.Unlock(t, testkit.LockIn(t, context.WithoutCancel(outer.Context()), lock))
		}
		outer := testkit.Lock(t, c.Mutex("x")) // the option is of the call that would enter
		testkit.Is(t, testkit.Err(c.Mutex("x", once).TryLock(outer.Context())), quorumlock.ErrDeadlock, "a lease without the option is entered")
		testkit.Unlock(t, testkit.LockIn(t, outer.Context(), c.Mutex("x")))
		testkit.Unlock(t, outer)
		testkit.Is(t, testkit.Err(c.Mutex("x", once, quorumlock.WithOwner(quorumlock.NewOwner())).TryLock(t.Context())), quorumlock.ErrMisuse, "with an owner")
	})
}

func TestDifferentLocksNest(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other, _ := testkit.Another(t, servers)
		a := testkit.Lock(t, c.Mutex("a"))
		b := testkit.LockIn(t, a.Context(), c.Mutex("b"))
		again := testkit.LockIn(t, b.Context(), c.Mutex("a")) // past b, the hold of a
		if again.Owner() != a.Owner() || b.Owner() == a.Owner() {
			t.Error("want the hold of a to be entered, and b to be one of its own")
		}
		testkit.Is(t, testkit.Err(other.Mutex("a").TryLock(a.Context())), quorumlock.ErrHeld, "TryLock at another client, within the lease")
		testkit.Unlock(t, a)
		if b.Context().Err() == nil {
			t.Error("the lease of b, whose context descends from that of a, must end with it")
		}
		testkit.Refused(t, c.Mutex("a"))
		testkit.Refused(t, c.Mutex("b"))
		testkit.Unlock(t, again)
		testkit.Unlock(t, b)
	})
}

func TestReentryOfAGoodLeaseRidesOutAnOutage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithTTL(10*time.Second))
		l := testkit.MustLock(t, c.Mutex("x"))
		testkit.Kill(servers...)
		time.Sleep(8 * time.Second)
		ctx, cancel := context.WithTimeout(l.Context(), time.Second)
		defer cancel()
		inner, err := c.Mutex("x").Lock(ctx)
		testkit.Must(t, err, "Lock within a lease that is valid for %v", time.Until(l.ValidUntil()))
		_ = inner.Unlock(t.Context())
		testkit.Restart(servers...)
		_ = l.Unlock(t.Context()) // go-redis may take a second to find out that the nodes are back
	})
}

// WithOwner enters a hold without its context.
func TestSharedOwnerEntersTheHoldAcrossContexts(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		o := quorumlock.NewOwner()
		first := testkit.Lock(t, c.Mutex("x", quorumlock.WithOwner(o)))
		second := testkit.TryLock(t, c.Mutex("x", quorumlock.WithOwner(o)))
		third := testkit.TryLock(t, c.Mutex("x", quorumlock.WithOwner(first.Owner())))
		if first.HoldCount() != 3 || second.Token() != first.Token() || third.Token() != first.Token() {
			t.Errorf("hold count %d, tokens %d, %d, %d: want one hold of three", first.HoldCount(), first.Token(), second.Token(), third.Token())
		}
		testkit.Refused(t, c.Mutex("x"))
		testkit.Refused(t, c.Mutex("x", quorumlock.WithOwner(quorumlock.NewOwner())))
		other := testkit.TryLock(t, c.Mutex("y", quorumlock.WithOwner(o)))
		if other.Token() == 0 || other.Owner() == first.Owner() {
			t.Error("an owner's hold of one lock was taken for that of another")
		}
		testkit.UnlockAll(t, first, second, third, other)
		again := testkit.Lock(t, c.Mutex("x", quorumlock.WithOwner(o)))
		testkit.Rises(t, first, again)
		testkit.Unlock(t, again)
	})
}

// Callers with a named owner check each grant in their process: it may be their owner's. If it is
// not, they keep their turns, and ask no node.
func TestCallersWhoNameAnOwnerKeepTheirTurnsWhileOtherOwnersAcquire(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 3)
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
		c := clients[0]
		holder := testkit.Lock(t, clients[1].Mutex("x"))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				lease := testkit.MustLock(t, c.Mutex("x", quorumlock.WithOwner(quorumlock.NewOwner())))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				testkit.MustUnlock(t, lease)
			})
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		before := servers[0].Ran("acquire")
		const others = 20
		for range others {
			testkit.Unlock(t, testkit.Lock(t, c.Mutex("y", quorumlock.WithOwner(quorumlock.NewOwner()))))
		}
		testkit.Equal(t, servers[0].Ran("acquire")-before, others, "attempts at a node while %d other locks were acquired", others)
		testkit.Unlock(t, holder)
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 8 {
			t.Errorf("served in the order %v, want that of the calls", order)
		}
		testkit.Nothing(t, servers)
	})
}

// Many share an owner, and wait while somebody else holds: they come in together.
func TestSharedOwnerWaitsTogether(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		o := quorumlock.NewOwner()
		holder := testkit.Lock(t, c.Mutex("x"))
		leases := make(chan *quorumlock.Lease)
		for i := range 6 {
			opts := []quorumlock.Option{quorumlock.WithOwner(o)}
			if i == 2 {
				opts = nil // one who does not belong to them, in their midst
			}
			go func() { leases <- testkit.MustLock(t, c.Mutex("x", opts...)) }()
			time.Sleep(time.Millisecond)
		}
		testkit.Unlock(t, holder)
		var together []*quorumlock.Lease
		for len(together) < 5 {
			select {
			case l := <-leases:
				together = append(together, l)
			case <-time.After(time.Minute):
				t.Errorf("only %d of 5 with one owner have entered its hold: the others wait for it to end", len(together))
				testkit.UnlockAll(t, together...)
				for range 6 - len(together) {
					testkit.Unlock(t, <-leases)
				}
				return
			}
		}
		testkit.UnlockAll(t, together...)
		testkit.Unlock(t, <-leases)
	})
}

// The validity counts from before the first request, whether the grants or the raise of the token
// take long. A caller never gets an expired lease. The drift of a TTL of 1 s is 12 ms.
func TestAPauseWhileAcquiringCountsAgainstTheValidity(t *testing.T) {
	for _, script := range []string{"acquire", "raise"} {
		for pause, granted := range map[time.Duration]bool{0: true, 500 * time.Millisecond: true, 980 * time.Millisecond: true, 988 * time.Millisecond: false} {
			testkit.Run(t, script+" takes "+pause.String(), func(t *testing.T) {
				// With 1 ms left, a renewal is due at once, and would set another end.
				c, servers := testkit.Client(t, 5, quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(time.Second), quorumlock.WithoutRenewal())
				testkit.Warm(t, c)
				if script == "raise" {
					testkit.SetCounters(t, servers, "x", testkit.Ahead(3), testkit.Ahead(4), testkit.Ahead(5), testkit.Ahead(1), testkit.Ahead(2))
					// Otherwise three may agree without a raise.
					testkit.Each(servers[3:], func(s *embedded.Server) { s.Delay(time.Millisecond) })
				}
				testkit.Each(servers, func(s *embedded.Server) {
					s.After(func(r embedded.Run) {
						if r.Script == script {
							time.Sleep(pause)
						}
					})
				})
				start := time.Now()
				lease, err := c.Mutex("x").TryLock(t.Context())
				if (err == nil) != granted || !granted && !errors.Is(err, quorumlock.ErrTooLate) {
					t.Fatalf("granted: %v, want %v, or ErrTooLate", err, granted)
				}
				if err == nil {
					if want := start.Add(988 * time.Millisecond); !lease.ValidUntil().Equal(want) {
						t.Errorf("valid until %v, want %v: what the nodes took must count", lease.ValidUntil(), want)
					}
					testkit.Unlock(t, lease)
				}
				testkit.Nothing(t, servers)
			})
		}
	}
}

// Code within code that takes the lock for itself must not prolong a hold that its options end.
func TestReentryProlongsNoHoldThatItsOptionsEnd(t *testing.T) {
	const limit = 3 * quorumlock.DefaultTTL
	for name, tt := range map[string]struct {
		option quorumlock.Option
		most   time.Duration // that the hold lasts
	}{
		"WithMaxHold":    {quorumlock.WithMaxHold(limit), limit + quorumlock.DefaultTTL},
		"WithoutRenewal": {quorumlock.WithoutRenewal(), quorumlock.DefaultTTL},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			c, _ := testkit.Client(t, 3)
			lock := c.Mutex("x", tt.option)
			lease, began := testkit.Lock(t, lock), time.Now()
			for lease.Context().Err() == nil && time.Since(began) <= tt.most {
				if inner, err := lock.TryLock(lease.Context()); err == nil {
					testkit.OK(t, inner.Unlock(t.Context()), "Unlock of the inner lease")
				}
				time.Sleep(time.Second)
			}
			testkit.Is(t, context.Cause(lease.Context()), quorumlock.ErrLost, "after %v", time.Since(began))
			testkit.Is(t, lease.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
		})
	}
}

// However many callers extend one lease at one time, the nodes renew it a few times.
func TestManyExtendsOfOneLeaseShareRenewals(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		lease := testkit.Lock(t, c.Mutex("x"))
		servers[0].Delay(time.Millisecond)
		var all sync.WaitGroup
		for range 2000 {
			all.Go(func() { testkit.OK(t, lease.Extend(t.Context()), "Extend") })
		}
		all.Wait()
		if n := testkit.Ran(servers, "renew"); n > 300 {
			t.Errorf("%d renewals at three nodes for 2,000 calls of Extend at one time", n)
		}
		// The end of the hold ends those that wait for the next renewal.
		testkit.Each(servers, (*embedded.Server).Stall)
		var over sync.WaitGroup
		for range 100 {
			over.Go(func() {
				if lease.Extend(t.Context()) == nil {
					t.Error("extended while all nodes stand still")
				}
			})
		}
		over.Wait()
		testkit.Lost(t, lease, time.Minute)
		testkit.Is(t, lease.Extend(t.Context()), quorumlock.ErrLost, "Extend of a lost lease")
		testkit.Each(servers, (*embedded.Server).Resume)
		_ = lease.Unlock(t.Context())
	})
}
