package hold

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	memory "github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// detach detaches a lease and returns its text.
func detach(t *testing.T, lease *quorumlock.Lease, d time.Duration) string {
	t.Helper()
	text, err := lease.Detach(t.Context(), d)
	testkit.Must(t, err, "Detach")
	return text
}

func attach(t *testing.T, c *redlock.Client, text string) *quorumlock.Lease {
	t.Helper()
	lease, err := c.Attach(t.Context(), text)
	testkit.Must(t, err, "Attach")
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

// A renewal waits for others, but not for a part of the time left that counts.
func TestAHoldThatIsAttachedLateIsRenewedAtOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, _ := testkit.Fleet(t, 2, 5)
		text := detach(t, testkit.Lock(t, clients[0].Mutex("x")), 3*time.Second)
		time.Sleep(2980 * time.Millisecond)
		lease := attach(t, clients[1], text)
		time.Sleep(time.Millisecond)
		if left := time.Until(lease.ValidUntil()); left < 5*time.Second {
			t.Errorf("%v are left a millisecond after a late Attach, want a whole TTL", left)
		}
		testkit.Unlock(t, lease)
	})
}

func TestAHoldGoesOnInAnotherProcess(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 3, 5)
		a, b, other := clients[0], clients[1], clients[2]
		first := testkit.Lock(t, a.Mutex("x"))
		text := detach(t, first, time.Minute)
		testkit.Is(t, context.Cause(first.Context()), quorumlock.ErrDetached, "the lease's context ends for")
		testkit.Is(t, first.Unlock(t.Context()), quorumlock.ErrNotHeld, "Unlock")
		testkit.Is(t, testkit.Err(first.Detach(t.Context(), time.Minute)), quorumlock.ErrNotHeld, "a second Detach")
		time.Sleep(55 * time.Second)
		testkit.Refused(t, other.Mutex("x"))
		second := attach(t, b, text)
		if second.Token() != first.Token() || second.Name() != "x" {
			t.Errorf("%v after %v", second, first)
		}
		testkit.HoldsAll(t, servers, second)
		late(t, other, text)
		late(t, b, text)
		time.Sleep(time.Minute) // it is renewed
		testkit.Held(t, second)
		again := attach(t, a, detach(t, second, time.Second)) // and on
		testkit.Equal(t, again.Token(), first.Token(), "the token")
		testkit.Unlock(t, again)
		late(t, other, text)
		next := testkit.Lock(t, other.Mutex("x"))
		testkit.Rises(t, first, next)
		late(t, b, text)
		testkit.Held(t, next)
		testkit.Unlock(t, next)
		testkit.Nothing(t, servers)
	})
}

// The time of a text is that of the Detach, with any TTL.
func TestATextEnds(t *testing.T) {
	for _, d := range []time.Duration{time.Second, time.Minute} {
		testkit.Run(t, d.String(), func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 3)
			text := detach(t, testkit.Lock(t, clients[0].Mutex("x")), d)
			began := time.Now()
			next := testkit.Lock(t, clients[1].Mutex("x"))
			testkit.Took(t, began, d-time.Second/10, d+2*time.Second, "the lock was free")
			late(t, clients[0], text)
			testkit.Held(t, next)
			testkit.Unlock(t, next)
			testkit.Nothing(t, servers)
		})
	}
}

func TestAFreedHoldCannotBeAttached(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 3)
		text := detach(t, testkit.Lock(t, clients[0].Mutex("x")), time.Minute)
		testkit.OK(t, clients[1].ForceUnlock(t.Context(), "x"), "ForceUnlock")
		late(t, clients[1], text)
		testkit.NoLocks(t, servers)
	})
}

// A waiter gets the lock when the attached lease is unlocked.
func TestAnAttachedLeaseIsHandedOver(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 3, 3)
		text := detach(t, testkit.Lock(t, clients[0].RWMutex("x")), time.Minute)
		waiting := testkit.Call(t, t.Context(), clients[2].Mutex("x").Lock)
		lease := attach(t, clients[1], text)
		testkit.Unlock(t, lease)
		next := <-waiting
		testkit.Rises(t, lease, next)
		testkit.Unlock(t, next)
		testkit.Nothing(t, servers)
	})
}

// An Attach without a quorum changes nothing: another one gets the hold later.
func TestAnAttachWithoutAQuorumKeepsTheText(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, paths := testkit.Another(t, servers)
		lease := testkit.Lock(t, c.Mutex("x"))
		text := detach(t, lease, time.Minute)
		for _, cut := range [][]*embedded.Server{paths[:2], paths} {
			testkit.Each(cut, (*embedded.Server).Stall)
			if _, err := d.Attach(t.Context(), text); !errors.Is(err, quorumlock.ErrNoQuorum) || errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Attach: %v, want ErrNoQuorum", err)
			}
			testkit.Is(t, testkit.Err(d.Attach(testkit.Within(t, 10*time.Millisecond), text)), context.DeadlineExceeded, "Attach")
			testkit.Each(cut, (*embedded.Server).Resume)
			time.Sleep(5 * time.Second)
		}
		next := attach(t, d, text)
		testkit.Equal(t, next.Token(), lease.Token(), "the token")
		testkit.Unlock(t, next)
		time.Sleep(2 * time.Second)
	})
}

// A Detach without a quorum releases the lock.
func TestADetachWithoutAQuorumReleases(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		d, paths := testkit.Another(t, servers)
		lease := testkit.Lock(t, d.Mutex("x"))
		testkit.Each(paths[1:], (*embedded.Server).Stall)
		text, err := lease.Detach(t.Context(), time.Hour)
		if text != "" || !errors.Is(err, quorumlock.ErrNoQuorum) {
			t.Errorf("Detach: %q, %v, want ErrNoQuorum", text, err)
		}
		testkit.Each(paths[1:], (*embedded.Server).Resume)
		time.Sleep(2 * time.Second)
		testkit.Nothing(t, servers)
		testkit.Unlock(t, testkit.TryLock(t, c.Mutex("x")))
	})
}

// A minority that was away during the Detach or the Attach does no harm, and is clean in the end.
func TestAMinorityThatWasAwayIsCleanInTheEnd(t *testing.T) {
	for name, away := range map[string][2]bool{"detach": {true, false}, "attach": {false, true}, "both": {true, true}} {
		testkit.Run(t, name, func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 3)
			lease := testkit.Lock(t, clients[0].Mutex("x"))
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
			testkit.HoldsAll(t, servers, lease)
			testkit.Unlock(t, lease)
			testkit.Warm(t, clients[0]) // which takes a connection that came late
			time.Sleep(2 * time.Second)
			testkit.Nothing(t, servers)
		})
	}
}

// A refused Detach leaves the hold as it is.
func TestWhatCannotBeDetached(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithRestartGuard(time.Minute))
		_, nodes := testkit.Paths(t, servers[:1])
		time.Sleep(2 * time.Minute) // the quarantine
		var noCtx context.Context
		done, cancel := context.WithCancel(t.Context())
		cancel()
		refuse := func(what string, l quorumlock.Locker, ctx context.Context, d time.Duration, want error, before ...func(*quorumlock.Lease)) {
			t.Helper()
			lease := testkit.Lock(t, l)
			for _, do := range before {
				do(lease)
			}
			text, err := lease.Detach(ctx, d)
			if text != "" || !errors.Is(err, want) {
				t.Errorf("%s: %q, %v, want %v", what, text, err, want)
			}
			testkit.OK(t, lease.Extend(t.Context()), "%s: the lease does not go on", what)
			testkit.Unlock(t, lease)
		}
		m, rw, misuse := c.Mutex("x"), c.RWMutex("x"), quorumlock.ErrMisuse
		refuse("no context", m, noCtx, time.Second, quorumlock.ErrNilContext)
		for what, d := range map[string]time.Duration{"no time": 0, "a negative time": -time.Hour, "too little": quorumlock.MinTTL - 1, "more than the guard expects": time.Minute + 1} {
			refuse(what, m, t.Context(), d, misuse)
		}
		for what, l := range map[string]quorumlock.Locker{
			"a reader": rw.RLocker(), "a slot": c.Semaphore("s", 2), "a MultiLock": testkit.Multi(t, m, c.Mutex("y")),
			"a node's Mutex": nodes[0].Mutex("z"), "a Locker in memory": memory.New("x"),
		} {
			refuse(what, l, t.Context(), time.Second, misuse)
		}
		refuse("a downgraded writer", rw, t.Context(), time.Second, misuse, func(l *quorumlock.Lease) {
			testkit.OK(t, rw.Downgrade(t.Context(), l), "Downgrade")
		})
		lease, err := m.TryLock(t.Context())
		testkit.Must(t, err, "TryLock")
		text, err := lease.Detach(done, time.Second) // at once: nodes may not have answered yet
		testkit.Must(t, err, "a context that is done")
		testkit.Unlock(t, attach(t, c, text))
		refuse("a hold that was kept", m, t.Context(), time.Second, misuse, func(l *quorumlock.Lease) {
			testkit.OK(t, testkit.LockIn(t, l.Context(), m).UnlockAfter(t.Context(), 2*time.Second), "UnlockAfter")
		})
		time.Sleep(3 * time.Second)
		refuse("a hold that was entered twice", m, t.Context(), time.Second, misuse, func(l *quorumlock.Lease) {
			inner := testkit.LockIn(t, l.Context(), m)
			time.AfterFunc(0, func() { testkit.MustUnlock(t, inner) })
		})
		synctest.Wait()
		testkit.NoLocks(t, servers)

		for _, twice := range []bool{false, true} { // lost, and entered twice or not
			lost := []*quorumlock.Lease{testkit.Lock(t, m)}
			if twice {
				lost = append(lost, testkit.LockIn(t, lost[0].Context(), m))
			}
			testkit.Each(servers, (*embedded.Server).Stall)
			time.Sleep(time.Minute)
			for _, l := range lost {
				if text, err := l.Detach(t.Context(), time.Second); text != "" || !errors.Is(err, quorumlock.ErrLost) {
					t.Errorf("a lost lease of %d: %q, %v, want ErrLost", len(lost), text, err)
				}
			}
			testkit.Each(servers, (*embedded.Server).Resume)
			time.Sleep(2 * time.Second)
		}
	})
}

func TestAttachRefusesWhatIsNoTextOfItsLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		other, _ := testkit.Another(t, servers, quorumlock.WithPrefix("other:"))
		strict, _ := testkit.Another(t, servers, quorumlock.WithQuorum(3))
		elsewhere, _ := testkit.Client(t, 3)
		fewer, _ := testkit.Client(t, 1)
		lease := testkit.Lock(t, c.Mutex("x"))
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
			testkit.Is(t, tt[0], tt[1], "%s", what)
		}
		d, _ := testkit.Another(t, servers)
		testkit.OK(t, d.Shutdown(ctx), "Shutdown")
		testkit.Is(t, attempt(d, ctx, text), quorumlock.ErrClosed, "after Shutdown")
		testkit.Unlock(t, attach(t, c, text))
		testkit.NoLocks(t, servers)
	})
}

// A client that ends leaves its detached holds, and a pending Attach of it leaves the text.
func TestDetachedHoldsOutliveTheirClient(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 4, 3)
		lease := testkit.Lock(t, clients[0].Mutex("x"))
		text := detach(t, lease, time.Minute)
		testkit.OK(t, clients[0].Shutdown(t.Context()), "Shutdown")
		for c, end := range map[*redlock.Client]func() error{clients[1]: clients[1].Close, clients[2]: func() error { return clients[2].Shutdown(t.Context()) }} {
			testkit.Each(servers, (*embedded.Server).Stall)
			attempt := testkit.Go(func() error { return testkit.Err(c.Attach(t.Context(), text)) })
			synctest.Wait()
			testkit.Go(end)
			if err := <-attempt; !errors.Is(err, quorumlock.ErrClosed) && !errors.Is(err, quorumlock.ErrNoQuorum) {
				t.Errorf("Attach: %v, want ErrClosed", err)
			}
			testkit.Each(servers, (*embedded.Server).Resume)
			time.Sleep(3 * time.Second)
		}
		next := attach(t, clients[3], text)
		testkit.Equal(t, next.Token(), lease.Token(), "the token")
		testkit.Unlock(t, next)
	})
}

// Under the restart guard, a server restarted with an old snapshot does not accept a late text.
func TestAQuarantinedNodePassesNothingOn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithRestartGuard(time.Minute))
		time.Sleep(2 * time.Minute)
		text := detach(t, testkit.Lock(t, c.Mutex("x")), time.Minute)
		for _, s := range servers[1:] {
			s.Kill()
			s.Restart(true)
		}
		if _, err := c.Attach(t.Context(), text); !errors.Is(err, quorumlock.ErrQuarantined) || !errors.Is(err, quorumlock.ErrNoQuorum) {
			t.Errorf("Attach: %v, want ErrQuarantined", err)
		}
	})
}

// inOrder returns a client of the servers in an order, and its paths in the order of the servers.
func inOrder(t *testing.T, servers []*embedded.Server, order []int) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	paths, nodes := testkit.Paths(t, servers)
	moved := make([]*node.Node, len(nodes))
	for i, j := range order {
		moved[i] = nodes[j]
	}
	c := testkit.Of(t, moved)
	testkit.Warm(t, c)
	return c, paths
}

func TestTheNodesOfAnAttachMayBeInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{1, 0, 2, 3, 4}, {4, 3, 2, 1, 0}, {1, 2, 3, 4, 0}} {
		testkit.Run(t, fmt.Sprint(order), func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 5)
			text := detach(t, testkit.Lock(t, clients[0].Mutex("x")), time.Hour)
			c, _ := inOrder(t, servers, order)
			next := attach(t, c, text)
			time.Sleep(10 * time.Second)
			testkit.HoldsAll(t, servers, next)
			late(t, clients[1], text)
			text = detach(t, next, time.Hour)
			testkit.Unlock(t, attach(t, clients[1], text))
			testkit.Nothing(t, servers)
		})
	}
}

// Nothing stays parked at a node that was away while the hold was attached and unlocked.
func TestANodeThatWasAwayKeepsNothingParked(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {2, 1, 0}} {
		for how, harm := range map[string]func(*embedded.Server){"frozen": (*embedded.Server).Stall, "dead": (*embedded.Server).Kill} {
			testkit.Run(t, fmt.Sprint(order, how), func(t *testing.T) {
				clients, servers := testkit.Fleet(t, 1, 3)
				text := detach(t, testkit.Lock(t, clients[0].Mutex("x")), 5*time.Minute)
				c, _ := inOrder(t, servers, order)
				harm(servers[2])
				testkit.MustUnlock(t, testkit.Lock(t, c.Mutex("y"))) // the client notices
				time.Sleep(time.Second)
				testkit.MustUnlock(t, attach(t, c, text))
				time.Sleep(3 * time.Second)
				servers[2].Resume()
				if how == "dead" {
					servers[2].Restart(true)
				}
				time.Sleep(2 * time.Second)
				testkit.Nothing(t, servers)
			})
		}
	}
}

// A node whose number differs has counted a token that is late for another cell. Another Attach has
// it for a moment.
func TestATokenIsLateByTheLimitOfItsOwnCell(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {2, 3, 0, 1}} {
		testkit.Run(t, fmt.Sprint(order), func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 1, 4)
			deaf, paths := testkit.Another(t, servers)
			testkit.Warm(t, deaf)
			lease := testkit.Lock(t, clients[0].Mutex("x"))
			testkit.SetCounters(t, servers, "x", lease.Token(), lease.Token(), lease.Token()+2, lease.Token()+2)
			text := detach(t, lease, time.Minute)
			c, slow := inOrder(t, servers, order)
			testkit.Each(slow[2:], func(s *embedded.Server) { s.Delay(3 * time.Millisecond) })
			testkit.Kill(paths[:2]...)
			testkit.Each(paths[2:], (*embedded.Server).Mute)
			ctx := testkit.Within(t, 100*time.Millisecond)
			ended := make(chan struct{})
			go func() { defer close(ended); _, _ = deaf.Attach(ctx, text) }()
			time.AfterFunc(150*time.Millisecond, func() { testkit.Each(paths[2:], (*embedded.Server).Resume) })
			time.Sleep(10 * time.Millisecond)
			testkit.Unlock(t, attach(t, c, text))
			<-ended
			time.Sleep(2 * time.Second)
		})
	}
}

// Somebody has a quorum of the nodes, does not know it, and passes them back.
func TestAQuorumThatIsPassedBackIsAttached(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 3)
		deaf, paths := testkit.Another(t, servers)
		testkit.Warm(t, deaf)
		text := detach(t, testkit.Lock(t, clients[0].Mutex("x")), time.Minute)
		testkit.Each(paths, (*embedded.Server).Mute)
		ctx := testkit.Within(t, 20*time.Millisecond)
		attempt := testkit.Go(func() error { return testkit.Err(deaf.Attach(ctx, text)) })
		time.Sleep(10 * time.Millisecond)
		time.AfterFunc(20*time.Millisecond, func() { testkit.Each(paths, (*embedded.Server).Resume) })
		testkit.Unlock(t, attach(t, clients[1], text))
		testkit.Is(t, <-attempt, context.DeadlineExceeded, "Attach without answers")
		time.Sleep(2 * time.Second)
		testkit.Nothing(t, servers)
	})
}

// A process that has died while attaching has two nodes of five, and another node is silent.
func TestADeadAttacherIsNamedSoon(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5)
		dead, paths := testkit.Another(t, servers)
		testkit.Warm(t, dead)
		text := detach(t, testkit.Lock(t, c.Mutex("x")), time.Minute)
		testkit.Each(paths[:2], (*embedded.Server).Mute)
		testkit.Kill(paths[2:]...)
		attempt := testkit.Go(func() error { return testkit.Err(dead.Attach(t.Context(), text)) })
		time.Sleep(time.Millisecond)
		testkit.Kill(paths...)
		<-attempt
		servers[4].Stall()
		began := time.Now()
		_, err := c.Attach(t.Context(), text)
		if held, ok := errors.AsType[*quorumlock.HeldError](err); !ok || held.Holder == "" || !errors.Is(err, quorumlock.ErrNoQuorum) {
			t.Errorf("Attach: %v, want who is in the way, and the silent node", err)
		}
		testkit.Took(t, began, 0, 3*time.Second, "Attach")
		servers[4].Resume()
		time.Sleep(2 * time.Second)
		testkit.Unlock(t, attach(t, c, text)) // three nodes have it
	})
}

// A text that is delivered twice is late also while the hold moves on from process to process.
func TestAHoldThatMovesOnQuicklyIsLost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, _ := testkit.Fleet(t, 2, 3)
		text := detach(t, testkit.Lock(t, clients[0].Mutex("x")), time.Minute)
		stop := make(chan struct{})
		moves := testkit.Go(func() error {
			for next := text; ; {
				lease, err := clients[0].Attach(t.Context(), next)
				if err != nil {
					return err
				}
				select {
				case <-stop:
					return lease.Unlock(t.Context())
				case <-time.After(50 * time.Millisecond):
				}
				if next, err = lease.Detach(t.Context(), time.Minute); err != nil {
					return err
				}
			}
		})
		time.Sleep(time.Second)
		late(t, clients[1], text)
		close(stop)
		testkit.OK(t, <-moves, "the moves")
		time.Sleep(time.Second)
	})
}

// An Attach that wins in the moment of a Shutdown, or of a Close, leaves the hold to others, for as
// long as it was to be kept.
func TestAnAttachThatNobodyWantsAnyMore(t *testing.T) {
	for how, end := range map[string]func(*redlock.Client) error{
		"Shutdown": func(c *redlock.Client) error { return c.Shutdown(context.Background()) }, "Close": (*redlock.Client).Close,
	} {
		testkit.Run(t, how, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			lease := testkit.Lock(t, c.Mutex("x"))
			for range 60 {
				d, paths := testkit.Another(t, servers)
				testkit.Warm(t, d)
				testkit.Each(paths, func(s *embedded.Server) { s.Delay(time.Millisecond) })
				text := detach(t, lease, time.Hour)
				ended := testkit.Go(func() error { time.Sleep(2 * time.Millisecond); return end(d) })
				next, err := d.Attach(t.Context(), text)
				if err == nil {
					if text, err = next.Detach(t.Context(), time.Hour); err != nil { // it was closed
						<-ended
						time.Sleep(time.Minute)
						lease = testkit.Lock(t, c.Mutex("x"))
						continue
					}
				} else if !errors.Is(err, quorumlock.ErrClosed) {
					t.Fatal("Attach:", err)
				}
				testkit.OK(t, <-ended, "the end of the client")
				time.Sleep(time.Minute)
				lease = attach(t, c, text)
			}
			testkit.Unlock(t, lease)
			testkit.Nothing(t, servers)
		})
	}
}

// A Park that runs late, when the attached hold has been released, stays nowhere for its whole
// time.
func TestALateParkDoesNotStay(t *testing.T) {
	for name, delay := range map[string]time.Duration{"on its way": 80 * time.Millisecond, "after the node timeout": 200 * time.Millisecond, "frozen": 0} {
		testkit.Run(t, name, func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 1, 3)
			far, paths := testkit.Another(t, servers)
			lease := testkit.Lock(t, far.Mutex("x"))
			if paths[2].Delay(delay); delay == 0 {
				servers[2].Stall()
			}
			text := detach(t, lease, time.Hour)
			testkit.MustUnlock(t, attach(t, clients[0], text))
			time.Sleep(time.Second)
			servers[2].Resume()
			time.Sleep(3 * time.Second)
			testkit.NoLocks(t, servers)
		})
	}
}

// A Detach for a short time does not wait for a silent node until that is over.
func TestAShortDetachDoesNotWaitForASilentNode(t *testing.T) {
	for _, d := range []time.Duration{300 * time.Millisecond, time.Second} {
		testkit.Run(t, d.String(), func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 3)
			lease := testkit.Lock(t, clients[0].Mutex("x"))
			servers[2].Stall()
			text := detach(t, lease, d)
			testkit.MustUnlock(t, attach(t, clients[1], text))
			servers[2].Resume()
			time.Sleep(5 * time.Second)
			testkit.Nothing(t, servers)
		})
	}
}

func TestADetachAndAnUnlockAfterCloseAreOneEvent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var events testkit.Events
		c, _ := testkit.Client(t, 3, quorumlock.WithObserver(&events))
		lease := testkit.Lock(t, c.Mutex("x"))
		testkit.OK(t, c.Close(), "Close")
		testkit.Is(t, testkit.Err(lease.Detach(t.Context(), time.Minute)), quorumlock.ErrLost, "Detach")
		testkit.Is(t, lease.Unlock(t.Context()), quorumlock.ErrNotHeld, "Unlock")
		testkit.Equal(t, events.Of(quorumlock.EventReleased), 1, "events Released")
	})
}
