package hold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	memory "github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// detach detaches a lease and returns its text.
func detach(t *testing.T, lease *quorumlock.Lease, d time.Duration) string {
	t.Helper()
	text, err := lease.Detach(t.Context(), d)
	if err != nil {
		t.Fatal("Detach:", err)
	}
	return text
}

func attach(t *testing.T, c *redlock.Client, text string) *quorumlock.Lease {
	t.Helper()
	lease, err := c.Attach(t.Context(), text)
	if err != nil {
		t.Fatal("Attach:", err)
	}
	return lease
}

// late checks that nobody can attach with the text.
func late(t *testing.T, c *redlock.Client, text string) {
	t.Helper()
	lease, err := c.Attach(t.Context(), text)
	if _, ok := errors.AsType[*quorumlock.LostError](err); lease != nil || !ok || !errors.Is(err, quorumlock.ErrLost) {
		t.Errorf("a late Attach: %v, %v, want a LostError", lease, err)
	}
}

func TestAHoldGoesOnInAnotherProcess(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 3, 5)
		a, b, other := clients[0], clients[1], clients[2]
		first := locktest.Lock(t, a.Mutex("x"))
		text := detach(t, first, time.Minute)
		if !errors.Is(context.Cause(first.Context()), quorumlock.ErrDetached) {
			t.Errorf("the lease's context ends for %v", context.Cause(first.Context()))
		}
		if err := first.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("Unlock: %v, want ErrNotHeld", err)
		}
		if _, err := first.Detach(t.Context(), time.Minute); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("a second Detach: %v, want ErrNotHeld", err)
		}
		time.Sleep(55 * time.Second)
		locktest.Refused(t, other.Mutex("x"))
		second := attach(t, b, text)
		if second.Token() != first.Token() || second.Name() != "x" {
			t.Errorf("%v after %v", second, first)
		}
		locktest.HoldsAll(t, servers, second)
		late(t, other, text)
		late(t, b, text)
		time.Sleep(time.Minute) // it is renewed
		locktest.Held(t, second)
		again := attach(t, a, detach(t, second, time.Second)) // and on
		if again.Token() != first.Token() {
			t.Errorf("token %d, want %d", again.Token(), first.Token())
		}
		locktest.Unlock(t, again)
		late(t, other, text)
		next := locktest.Lock(t, other.Mutex("x"))
		if next.Token() <= first.Token() {
			t.Errorf("token %d after %d", next.Token(), first.Token())
		}
		late(t, b, text)
		locktest.Held(t, next)
		locktest.Unlock(t, next)
		locktest.Nothing(t, servers)
	})
}

// The time of a text is that of the Detach, with any TTL.
func TestATextEnds(t *testing.T) {
	for _, d := range []time.Duration{time.Second, time.Minute} {
		locktest.Run(t, d.String(), func(t *testing.T) {
			clients, servers := locktest.Fleet(t, 2, 3)
			text := detach(t, locktest.Lock(t, clients[0].Mutex("x")), d)
			began := time.Now()
			next := locktest.Lock(t, clients[1].Mutex("x"))
			if took := time.Since(began); took < d-time.Second/10 || took > d+2*time.Second {
				t.Errorf("the lock was free after %v, want %v", took, d)
			}
			late(t, clients[0], text)
			locktest.Held(t, next)
			locktest.Unlock(t, next)
			locktest.Nothing(t, servers)
		})
	}
}

func TestAFreedHoldCannotBeAttached(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		text := detach(t, locktest.Lock(t, clients[0].Mutex("x")), time.Minute)
		if err := clients[1].Mutex("x").ForceUnlock(t.Context()); err != nil {
			t.Error(err)
		}
		late(t, clients[1], text)
		locktest.NoLocks(t, servers)
	})
}

// A waiter gets the lock when the attached lease is unlocked.
func TestAnAttachedLeaseIsHandedOver(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 3, 3)
		text := detach(t, locktest.Lock(t, clients[0].RWMutex("x")), time.Minute)
		waiting := locktest.Call(t, t.Context(), clients[2].Mutex("x").Lock)
		lease := attach(t, clients[1], text)
		locktest.Unlock(t, lease)
		next := <-waiting
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		locktest.Unlock(t, next)
		locktest.Nothing(t, servers)
	})
}

// Of several concurrent Attach calls, one gets the hold, even if each reaches another node first.
func TestOneOfSeveralAttaches(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		locktest.Run(t, fmt.Sprint(n), func(t *testing.T) {
			c, servers := locktest.Client(t, n)
			text := detach(t, locktest.Lock(t, c.Mutex("x")), time.Minute)
			var mu sync.Mutex
			var leases []*quorumlock.Lease
			var g sync.WaitGroup
			for i := range n {
				d, paths := locktest.Another(t, servers)
				locktest.Warm(t, d)
				for j, p := range paths {
					p.Delay(time.Duration((i+j)%n) * time.Millisecond)
				}
				g.Go(func() {
					lease, err := d.Attach(t.Context(), text)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						leases = append(leases, lease)
					} else if !errors.Is(err, quorumlock.ErrLost) {
						t.Errorf("Attach: %v", err)
					}
				})
			}
			g.Wait()
			if len(leases) != 1 {
				t.Fatalf("%d have attached", len(leases))
			}
			time.Sleep(10 * time.Second) // it gets the nodes back that the others had
			locktest.HoldsAll(t, servers, leases[0])
			locktest.Unlock(t, leases[0])
			synctest.Wait()
			locktest.Nothing(t, servers)
		})
	}
}

// An Attach without a quorum changes nothing: another one gets the hold later.
func TestAnAttachWithoutAQuorumKeepsTheText(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, paths := locktest.Another(t, servers)
		lease := locktest.Lock(t, c.Mutex("x"))
		text := detach(t, lease, time.Minute)
		for _, cut := range [][]*embedded.Server{paths[:2], paths} {
			locktest.Each(cut, (*embedded.Server).Stall)
			if _, err := d.Attach(t.Context(), text); !errors.Is(err, quorumlock.ErrNoQuorum) || errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Attach: %v, want ErrNoQuorum", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if _, err := d.Attach(ctx, text); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Attach: %v, want its ctx's error", err)
			}
			cancel()
			locktest.Each(cut, (*embedded.Server).Resume)
			time.Sleep(5 * time.Second)
		}
		next := attach(t, d, text)
		if next.Token() != lease.Token() {
			t.Errorf("token %d, want %d", next.Token(), lease.Token())
		}
		locktest.Unlock(t, next)
		time.Sleep(2 * time.Second)
		locktest.Nothing(t, servers)
	})
}

// A Detach without a quorum releases the lock.
func TestADetachWithoutAQuorumReleases(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, paths := locktest.Another(t, servers)
		lease := locktest.Lock(t, d.Mutex("x"))
		locktest.Each(paths[1:], (*embedded.Server).Stall)
		text, err := lease.Detach(t.Context(), time.Hour)
		if text != "" || !errors.Is(err, quorumlock.ErrNoQuorum) {
			t.Errorf("Detach: %q, %v, want ErrNoQuorum", text, err)
		}
		locktest.Each(paths[1:], (*embedded.Server).Resume)
		time.Sleep(2 * time.Second)
		locktest.Nothing(t, servers)
		locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
	})
}

// A minority that was away during the Detach or the Attach does no harm, and is clean in the end.
func TestAMinorityThatWasAwayIsCleanInTheEnd(t *testing.T) {
	for name, away := range map[string][2]bool{"detach": {true, false}, "attach": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T) {
				clients, servers := locktest.Fleet(t, 2, 3)
				lease := locktest.Lock(t, clients[0].Mutex("x"))
				freeze := func(away bool) {
					if servers[2].Resume(); away {
						servers[2].Stall()
					}
				}
				freeze(away[0])
				text := detach(t, lease, 5*time.Minute)
				freeze(away[1])
				lease = attach(t, clients[1], text)
				time.Sleep(time.Second)
				freeze(false)
				time.Sleep(20 * time.Second)
				locktest.HoldsAll(t, servers, lease)
				locktest.Unlock(t, lease)
				locktest.Warm(t, clients[0]) // which takes a connection that came late
				time.Sleep(2 * time.Second)
				locktest.Nothing(t, servers)
			})
		})
	}
}

// A refused Detach leaves the hold as it is.
func TestWhatCannotBeDetached(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithRestartGuard(time.Minute))
		_, nodes := locktest.Paths(t, servers[:1])
		time.Sleep(2 * time.Minute) // the quarantine
		var noCtx context.Context
		done, cancel := context.WithCancel(t.Context())
		cancel()
		refuse := func(what string, l quorumlock.Locker, ctx context.Context, d time.Duration, want error, before ...func(*quorumlock.Lease)) {
			t.Helper()
			lease := locktest.Lock(t, l)
			for _, do := range before {
				do(lease)
			}
			text, err := lease.Detach(ctx, d)
			if text != "" || !errors.Is(err, want) {
				t.Errorf("%s: %q, %v, want %v", what, text, err, want)
			}
			if err := lease.Extend(t.Context()); err != nil {
				t.Errorf("%s: the lease does not go on: %v", what, err)
			}
			locktest.Unlock(t, lease)
		}
		m, rw, misuse := c.Mutex("x"), c.RWMutex("x"), quorumlock.ErrMisuse
		refuse("no context", m, noCtx, time.Second, quorumlock.ErrNilContext)
		for what, d := range map[string]time.Duration{"no time": 0, "a negative time": -time.Hour, "too little": quorumlock.MinTTL - 1, "more than the guard expects": time.Minute + 1} {
			refuse(what, m, t.Context(), d, misuse)
		}
		refuse("a reader", rw.RLocker(), t.Context(), time.Second, misuse)
		refuse("a slot", c.Semaphore("s", 2), t.Context(), time.Second, misuse)
		refuse("a MultiLock", locktest.Multi(t, m, c.Mutex("y")), t.Context(), time.Second, misuse)
		refuse("a node's Mutex", nodes[0].Mutex("z"), t.Context(), time.Second, misuse)
		refuse("a Locker in memory", memory.New("x"), t.Context(), time.Second, misuse)
		refuse("a downgraded writer", rw, t.Context(), time.Second, misuse, func(l *quorumlock.Lease) {
			if err := rw.Downgrade(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
		lease, err := m.TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text, err := lease.Detach(done, time.Second) // at once: nodes may not have answered yet
		if err != nil {
			t.Fatalf("a context that is done: %v", err)
		}
		if attached, err := c.Attach(t.Context(), text); err != nil {
			t.Errorf("after a Detach with a context that is done: %v", err)
		} else {
			locktest.Unlock(t, attached)
		}
		var inner *quorumlock.Lease
		refuse("a hold that was kept", m, t.Context(), time.Second, misuse, func(l *quorumlock.Lease) {
			inner = locktest.LockIn(t, l.Context(), m)
			if err := inner.UnlockAfter(t.Context(), 2*time.Second); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(3 * time.Second)
		refuse("a hold that was entered twice", m, t.Context(), time.Second, misuse, func(l *quorumlock.Lease) {
			inner = locktest.LockIn(t, l.Context(), m)
			time.AfterFunc(0, func() { locktest.MustUnlock(t, inner) })
		})
		synctest.Wait()
		locktest.NoLocks(t, servers)

		lease = locktest.Lock(t, m)
		locktest.Each(servers, (*embedded.Server).Stall)
		time.Sleep(time.Minute)
		if text, err := lease.Detach(t.Context(), time.Second); text != "" || !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("a lost lease: %q, %v, want ErrLost", text, err)
		}
		locktest.Each(servers, (*embedded.Server).Resume)
		time.Sleep(2 * time.Second)

		lease = locktest.Lock(t, m) // lost, and entered twice
		inner = locktest.LockIn(t, lease.Context(), m)
		locktest.Each(servers, (*embedded.Server).Stall)
		time.Sleep(time.Minute)
		for _, l := range []*quorumlock.Lease{lease, inner} {
			if text, err := l.Detach(t.Context(), time.Second); text != "" || !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("a lost lease of two: %q, %v, want ErrLost", text, err)
			}
		}
		locktest.Each(servers, (*embedded.Server).Resume)
	})
}

func TestAttachRefusesWhatIsNoTextOfItsLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		other, _ := locktest.Another(t, servers, quorumlock.WithPrefix("other:"))
		strict, _ := locktest.Another(t, servers, quorumlock.WithQuorum(3))
		elsewhere, _ := locktest.Client(t, 3)
		fewer, _ := locktest.Client(t, 1)
		lease := locktest.Lock(t, c.Mutex("x"))
		text := detach(t, lease, time.Minute)
		var noCtx context.Context
		done, cancel := context.WithCancel(t.Context())
		cancel()
		attempt := func(c *redlock.Client, ctx context.Context, text string, opts ...quorumlock.Option) error {
			lease, err := c.Attach(ctx, text, opts...)
			if lease != nil {
				t.Error("it has attached")
			}
			return err
		}
		ctx := t.Context()
		for what, tt := range map[string][2]error{
			"no context":             {attempt(c, noCtx, text), quorumlock.ErrNilContext},
			"a context that is done": {attempt(c, done, text), context.Canceled},
			"no text":                {attempt(c, ctx, ""), quorumlock.ErrMisuse},
			"another text":           {attempt(c, ctx, "x"), quorumlock.ErrMisuse},
			"another version":        {attempt(c, ctx, "qlh2."+text[5:]), quorumlock.ErrMisuse},
			"half a text":            {attempt(c, ctx, text[:len(text)/2]), quorumlock.ErrMisuse},
			"a changed text":         {attempt(c, ctx, text[:9]+"A"+text[10:]), quorumlock.ErrMisuse},
			"a bad option":           {attempt(c, ctx, text, quorumlock.WithTTL(-1)), quorumlock.ErrMisuse},
			"another prefix":         {attempt(other, ctx, text), quorumlock.ErrMisuse},
			"another quorum":         {attempt(strict, ctx, text), quorumlock.ErrMisuse},
			"fewer nodes":            {attempt(fewer, ctx, text), quorumlock.ErrMisuse},
			"other nodes":            {attempt(elsewhere, ctx, text), quorumlock.ErrLost},
		} {
			if !errors.Is(tt[0], tt[1]) {
				t.Errorf("%s: %v, want %v", what, tt[0], tt[1])
			}
		}
		d, _ := locktest.Another(t, servers)
		if err := d.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := attempt(d, ctx, text); !errors.Is(err, quorumlock.ErrClosed) {
			t.Errorf("after Shutdown: %v, want ErrClosed", err)
		}
		locktest.Unlock(t, attach(t, c, text))
		locktest.NoLocks(t, servers)
	})
}

// A client that ends leaves its detached holds, and a pending Attach of it leaves the text.
func TestDetachedHoldsOutliveTheirClient(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 4, 3)
		lease := locktest.Lock(t, clients[0].Mutex("x"))
		text := detach(t, lease, time.Minute)
		if err := clients[0].Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		for _, c := range clients[1:3] {
			locktest.Each(servers, (*embedded.Server).Stall)
			attempt := make(chan error)
			go func() { _, err := c.Attach(t.Context(), text); attempt <- err }()
			synctest.Wait()
			end := map[bool]func() error{true: c.Close, false: func() error { return c.Shutdown(t.Context()) }}[c == clients[1]]
			go func() { _ = end() }()
			if err := <-attempt; !errors.Is(err, quorumlock.ErrClosed) && !errors.Is(err, quorumlock.ErrNoQuorum) {
				t.Errorf("Attach: %v, want ErrClosed", err)
			}
			locktest.Each(servers, (*embedded.Server).Resume)
			time.Sleep(3 * time.Second)
		}
		next := attach(t, clients[3], text)
		if next.Token() != lease.Token() {
			t.Errorf("token %d, want %d", next.Token(), lease.Token())
		}
		locktest.Unlock(t, next)
	})
}

// Under the restart guard, a server restarted with an old snapshot does not accept a late text.
func TestAQuarantinedNodePassesNothingOn(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithRestartGuard(time.Minute))
		time.Sleep(2 * time.Minute)
		text := detach(t, locktest.Lock(t, c.Mutex("x")), time.Minute)
		for _, s := range servers[1:] {
			s.Kill()
			s.Restart(true)
		}
		if _, err := c.Attach(t.Context(), text); !errors.Is(err, quorumlock.ErrQuarantined) || !errors.Is(err, quorumlock.ErrNoQuorum) {
			t.Errorf("Attach: %v, want ErrQuarantined", err)
		}
	})
}
