package kinds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// process is one process that uses the lock x.
type process struct {
	lock  quorumlock.Locker
	force func(context.Context) error // nil: the kind has no ForceUnlock
	free  func(context.Context, quorumlock.Owner) error
	paths []*embedded.Server
}

type maker = func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process

func ofClient(of func(c *redlock.Client, opts []quorumlock.Option) quorumlock.Locker) maker {
	return func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		c, paths := testkit.Another(t, servers)
		force := func(ctx context.Context) error { return c.ForceUnlock(ctx, "x") }
		free := func(ctx context.Context, o quorumlock.Owner) error { return c.ForceUnlockOwner(ctx, "x", o) }
		return process{of(c, opts), force, free, paths}
	}
}

func ofNode(of func(n *node.Node, opts []quorumlock.Option) quorumlock.Locker) maker {
	return func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		paths, nodes := testkit.Paths(t, servers[:1])
		n := nodes[0]
		force := func(ctx context.Context) error { return n.ForceUnlock(ctx, "x") }
		free := func(ctx context.Context, o quorumlock.Owner) error { return n.ForceUnlockOwner(ctx, "x", o) }
		return process{of(n, opts), force, free, paths}
	}
}

// alone are the kinds of locks that one holder has alone. Each makes one more process.
var alone = map[string]maker{
	"mutex":  ofClient(func(c *redlock.Client, opts []quorumlock.Option) quorumlock.Locker { return c.Mutex("x", opts...) }),
	"writer": ofClient(func(c *redlock.Client, opts []quorumlock.Option) quorumlock.Locker { return c.RWMutex("x", opts...) }),
	"semaphore": ofClient(func(c *redlock.Client, opts []quorumlock.Option) quorumlock.Locker {
		return c.Semaphore("x", 1, opts...)
	}),
	"permits": ofClient(func(c *redlock.Client, opts []quorumlock.Option) quorumlock.Locker {
		return several{c.Semaphore("x", 3, opts...), 3}
	}),
	"MultiLock": func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		c, paths := testkit.Another(t, servers)
		m, err := multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("y")}, opts...)
		testkit.Must(t, err, "New")
		return process{m, nil, nil, paths}
	},
	"node's mutex": ofNode(func(n *node.Node, opts []quorumlock.Option) quorumlock.Locker { return n.Mutex("x", opts...) }),
}

// each runs a test for each kind, with one process and one more.
func each(t *testing.T, test func(t *testing.T, kind string, servers []*embedded.Server, a, b process), opts ...quorumlock.Option) {
	for kind, more := range alone {
		testkit.Run(t, kind, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 3)
			test(t, kind, servers, more(t, servers, opts...), more(t, servers, opts...))
		})
	}
}

// Only a context of a lease enters its hold. The last Unlock gives the lock to the waiter at once.
func TestAHoldIsEnteredByItsContextAndHandedOverAtItsEnd(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		outer := testkit.Lock(t, a.lock)
		before := testkit.Ran(servers)
		inner := testkit.LockIn(t, context.WithoutCancel(outer.Context()), a.lock)
		if n := testkit.Ran(servers) - before; n > 0 || inner.Owner() != outer.Owner() || inner.Token() != outer.Token() || inner.Slot() != outer.Slot() || outer.HoldCount() != 2 {
			t.Errorf("entering took %d scripts; owner %s, token %d, slot %d, count %d", n, inner.Owner(), inner.Token(), inner.Slot(), outer.HoldCount())
		}
		testkit.Refused(t, a.lock)
		testkit.Refused(t, b.lock)
		waiting := testkit.Call(t, t.Context(), b.lock.Lock)
		time.Sleep(2 * quorumlock.DefaultTTL)
		testkit.Unlock(t, outer)
		if testkit.Has(waiting) {
			t.Error("the lock was handed over, and an inner lease has it")
		}
		testkit.Held(t, inner)
		freed := time.Now()
		testkit.Unlock(t, inner)
		next := <-waiting
		if took := time.Since(freed); took > 10*time.Millisecond || next.Token() <= outer.Token() || next.Owner() == outer.Owner() {
			t.Errorf("handed over after %v: token %d after %d, owner %s after %s", took, next.Token(), outer.Token(), next.Owner(), outer.Owner())
		}
		testkit.Unlock(t, next)
		testkit.Nothing(t, servers)
	})
}

func TestAHoldIsEnteredByItsOwner(t *testing.T) {
	each(t, func(t *testing.T, kind string, servers []*embedded.Server, a, b process) {
		if kind == "permits" { // each has an owner of its own
			testkit.Is(t, testkit.Err(a.lock.Lock(t.Context())), quorumlock.ErrMisuse, "Lock")
			return
		}
		first := testkit.Lock(t, a.lock)
		second := testkit.TryLock(t, a.lock)
		if second.Token() != first.Token() || second.HoldCount() != 2 {
			t.Errorf("token %d beside %d, count %d", second.Token(), first.Token(), second.HoldCount())
		}
		testkit.Unlock(t, first)
		testkit.Refused(t, b.lock) // the owner of another process's call is another hold
		testkit.Unlock(t, second)
		testkit.Nothing(t, servers)
	}, quorumlock.WithOwner("me:1"))
}

// A holder that is cut off learns of the loss at its deadline. The lock is free for others at the
// TTL, no earlier and little later. Late calls of the former holder take nothing from the next.
func TestADeadHoldersLockIsPassedOnAtItsTTL(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		dead := testkit.Lock(t, a.lock)
		time.Sleep(time.Minute) // it is renewed meanwhile
		testkit.Held(t, dead)
		testkit.Kill(a.paths...)
		deadline, last := dead.ValidUntil(), time.Duration(0)
		for _, s := range dead.Slots() { // the permits of one lease are renewed at different times
			last = max(last, s.TTL)
		}
		free := time.Now().Add(last)
		waiting := testkit.Call(t, t.Context(), b.lock.Lock)
		testkit.Lost(t, dead, time.Minute)
		testkit.Took(t, deadline, 0, 0, "the loss, from the deadline")
		next := <-waiting
		if late := time.Since(free); late <= 0 || late > 300*time.Millisecond || next.Token() <= dead.Token() {
			t.Errorf("passed on %v after the deadline, with token %d after %d", late, next.Token(), dead.Token())
		}
		testkit.Restart(a.paths...)
		for _, want := range []error{quorumlock.ErrLost, quorumlock.ErrNotHeld} {
			testkit.Is(t, dead.Unlock(t.Context()), want, "Unlock")
		}
		time.Sleep(time.Minute)
		testkit.Held(t, next)
		testkit.Refused(t, a.lock)
		testkit.Unlock(t, next)
		testkit.Nothing(t, servers)
	})
}

// A node that lost the key, its counter, or both, has them back after a renewal, and tokens rise.
func TestANodeThatForgotGetsTheHoldBack(t *testing.T) {
	for name, forget := range map[string]func(s *embedded.Server){
		"key":              func(s *embedded.Server) { s.Redis.Del("x") },
		"counter":          func(s *embedded.Server) { s.Redis.Del("redisson_lock_token:{x}") },
		"everything":       func(s *embedded.Server) { s.Redis.FlushAll() },
		"all, by its time": func(s *embedded.Server) { s.StepClock(time.Hour) },
		"all, at a start":  func(s *embedded.Server) { s.Restart(false) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, kind string, servers []*embedded.Server, a, b process) {
				if len(a.paths) == 1 {
					return // there is no other node
				}
				lease := testkit.Lock(t, a.lock)
				for _, s := range servers {
					forget(s)
					testkit.Refused(t, b.lock)
					// A renewal that misses the key, and one that counts.
					time.Sleep(quorumlock.DefaultTTL * 4 / 5)
					if !s.Redis.Exists("x") {
						t.Errorf("%s has not taken the hold back", s.Name)
					}
				}
				testkit.Held(t, lease)
				testkit.Unlock(t, lease)
				next := testkit.Lock(t, b.lock)
				testkit.Rises(t, lease, next)
				testkit.Unlock(t, next)
				testkit.NoLocks(t, servers)
			})
		})
	}
}

// A lock freed by force goes to the waiter. The holder learns of it at its next renewal.
func TestForceUnlockPassesTheLockOnAndIsToldAtTheNextRenewal(t *testing.T) {
	each(t, func(t *testing.T, kind string, servers []*embedded.Server, a, b process) {
		if a.force == nil {
			return
		}
		lease := testkit.Lock(t, a.lock)
		testkit.LockIn(t, lease.Context(), a.lock) // however often it was entered
		waiting := testkit.Call(t, t.Context(), b.lock.Lock)
		forced := time.Now()
		testkit.OK(t, b.force(t.Context()), "ForceUnlock")
		next := <-waiting
		if took := time.Since(forced); took > 100*time.Millisecond || next.Token() <= lease.Token() {
			t.Errorf("the waiter has the lock after %v, with token %d after %d", took, next.Token(), lease.Token())
		}
		testkit.Lost(t, lease, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
		testkit.Is(t, lease.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
		if kind == "mutex" { // a node that was forced last refused the next holder: one renewal finds that out, and another restores it
			time.Sleep(quorumlock.DefaultTTL)
			testkit.HoldsAll(t, servers, next)
		}
		testkit.Unlock(t, next)
		testkit.OK(t, a.force(t.Context()), "ForceUnlock of a free lock")
		testkit.Nothing(t, servers)
	})
}

// The hold that was seen is freed, and no later one, nor anybody else's.
func TestForceUnlockOwnerFreesTheHoldThatWasSeen(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		if a.free == nil {
			return
		}
		lease := testkit.Lock(t, a.lock)
		seen := lease.Owner()
		testkit.Is(t, b.free(t.Context(), seen+"0"), quorumlock.ErrNotHeld, "of another owner")
		waiting := testkit.Call(t, t.Context(), b.lock.Lock)
		testkit.OK(t, b.free(t.Context(), seen), "free")
		next := <-waiting
		testkit.Lost(t, lease, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
		testkit.Is(t, a.free(t.Context(), seen), quorumlock.ErrNotHeld, "late")
		testkit.OK(t, next.Extend(t.Context()), "a late call has freed the next holder")
		for name, err := range map[string]error{"no owner": a.free(t.Context(), ""), "no context": a.free(nil, seen)} { //nolint:staticcheck // it is refused
			testkit.Is(t, err, quorumlock.ErrMisuse, "%s", name)
		}
		_ = lease.Unlock(t.Context())
		testkit.Unlock(t, next)
		testkit.Nothing(t, servers)
	})
}

func TestAWaiterThatGivesUpLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		for i, p := range b.paths {
			p.Delay(time.Duration(i+1) * time.Millisecond)
		}
		for after := range 12 { // ms from its call; the lock is released after 5
			lease := testkit.Lock(t, a.lock)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(after)*time.Millisecond, cancel)
			time.AfterFunc(5*time.Millisecond, func() { testkit.MustUnlock(t, lease) })
			if next, err := b.lock.Lock(ctx); err == nil {
				testkit.MustUnlock(t, next)
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			testkit.Unlock(t, testkit.TryLock(t, a.lock))
			cancel()
		}
		testkit.Nothing(t, servers)
	})
}

func TestASemaphoreLetsInAsManyAsItHasPermits(t *testing.T) {
	for _, k := range []int{1, 3, 100} {
		for _, n := range []int{1, 3} {
			testkit.Run(t, fmt.Sprint(k, " permits, ", n, " nodes"), func(t *testing.T) {
				c, servers := testkit.Client(t, n)
				d, _ := testkit.Another(t, servers)
				slots := map[int]bool{}
				var leases []*quorumlock.Lease
				for i := range k {
					l := testkit.TryLock(t, []*redlock.Client{c, d}[i%2].Semaphore("x", k))
					if l.Slot() < 0 || l.Slot() >= k || slots[l.Slot()] {
						t.Errorf("slot %d of %d, after %v", l.Slot(), k, slots)
					}
					slots[l.Slot()] = true
					leases = append(leases, l)
				}
				began := time.Now()
				_, err := d.Semaphore("x", k).TryLock(t.Context())
				if held, ok := errors.AsType[*quorumlock.HeldError](err); !ok || held.Holder == "" || held.TTL <= 0 {
					t.Errorf("TryLock of a full semaphore: %v, want a HeldError with a holder and the TTL", err)
				}
				testkit.Took(t, began, 0, 10*time.Millisecond, "the refusal")
				in, err := c.Inspect(t.Context(), "x")
				if err != nil || len(in.State.Slots) != k || !in.State.Held() {
					t.Errorf("%+v, %v: want %d slots", in.State, err, k)
				}
				for i, s := range in.State.Slots {
					if s.Number != i || s.Owner == "" || s.TTL <= 0 || s.Token == 0 {
						t.Errorf("slot %d is %+v", i, s)
					}
				}
				time.Sleep(25 * time.Second)
				slot := leases[0].Slot()
				testkit.Held(t, leases[0])
				testkit.Unlock(t, leases[0])
				leases[0] = testkit.TryLock(t, d.Semaphore("x", k))
				testkit.Equal(t, leases[0].Slot(), slot, "the slot of the lease, with one free slot")
				testkit.UnlockAll(t, leases...)
				testkit.Nothing(t, servers)
			})
		}
	}
}

func TestASemaphoreServesInTheOrderOfTheCalls(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		clients := []*redlock.Client{c, d}
		var in []*quorumlock.Lease
		for range 3 {
			in = append(in, testkit.Lock(t, c.Semaphore("x", 3)))
		}
		var waiting []<-chan *quorumlock.Lease
		for i := range 9 {
			waiting = append(waiting, testkit.Call(t, t.Context(), clients[i%2].Semaphore("x", 3).Lock))
		}
		testkit.Refused(t, d.Semaphore("x", 3))
		for i, w := range waiting {
			slot := in[0].Slot()
			testkit.Unlock(t, in[0])
			began := time.Now()
			l := <-w
			testkit.Took(t, began, 0, 10*time.Millisecond, "the handoff to waiter %d", i)
			testkit.Equal(t, l.Slot(), slot, "the slot of waiter %d", i)
			for j, later := range waiting[i+1:] {
				if len(later) > 0 {
					t.Fatalf("waiter %d has overtaken waiter %d", i+1+j, i)
				}
			}
			in = append(in[1:], l)
		}
		for _, l := range in {
			testkit.Held(t, l)
			testkit.Unlock(t, l)
		}
	})
}

// A node that has lost its data takes held slots for free. A TryLock is still refused soon, and the
// node gets each slot back.
func TestANodeThatForgotGetsTheSlotsBack(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		a := testkit.Lock(t, c.Semaphore("x", 2))
		b := testkit.Lock(t, d.Semaphore("x", 2))
		servers[1].Redis.FlushAll()
		began := time.Now()
		testkit.Refused(t, d.Semaphore("x", 2))
		testkit.Took(t, began, 0, 50*time.Millisecond, "the refusal")
		time.Sleep(5 * time.Second)
		in, err := c.Inspect(t.Context(), "x")
		testkit.Must(t, err, "Inspect")
		for i, n := range in.Nodes {
			testkit.Equal(t, len(n.State.Slots), 2, "slots at node %d", i)
			for _, s := range n.State.Slots {
				if l := map[quorumlock.Owner]*quorumlock.Lease{a.Owner(): a, b.Owner(): b}[s.Owner]; l == nil || l.Slot() != s.Number {
					t.Errorf("node %d has %+v", i, s)
				}
			}
		}
		for _, l := range []*quorumlock.Lease{a, b} {
			testkit.Held(t, l)
			testkit.Unlock(t, l)
		}
	})
}

// While a semaphore is in use, a caller or waiter with another number of permits gets an error with
// both numbers, from the nodes' answers. Once all holds are over, another number is possible.
func TestDifferentNumbersOfPermits(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		few, many := c.Semaphore("x", 1), d.Semaphore("x", 3)
		for _, s := range []struct {
			used, other *redlock.Semaphore
			want        string
		}{{few, many, "3 here, and 1 at the node"}, {many, few, "1 here, and 3 at the node"}} {
			l := testkit.TryLock(t, s.used)
			both, err := multilock.New([]quorumlock.Locker{s.other, d.Mutex("y")})
			testkit.Must(t, err, "New")
			for name, lock := range map[string]func(context.Context) (*quorumlock.Lease, error){
				"TryLock": s.other.TryLock, "Lock": s.other.Lock, "a member": both.Lock,
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if _, err := lock(ctx); !errors.Is(err, quorumlock.ErrMismatch) || !strings.Contains(err.Error(), s.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v, want ErrMismatch with %q", name, err, s.want)
				}
			}
			in, err := d.Inspect(t.Context(), "x")
			testkit.Must(t, err, "Inspect")
			testkit.Equal(t, len(in.State.Slots)+in.State.Waiting, 1, "slots and waiters")
			testkit.Held(t, l)
			testkit.Unlock(t, l)
		}
		first := testkit.Lock(t, few)
		waiting := testkit.Go(func() error { _, err := few.Lock(t.Context()); return err })
		time.Sleep(10 * time.Millisecond)
		for _, s := range servers {
			if _, err := s.Redis.ZAdd("x", 1e15+3, "quorumlock_semaphore"); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-waiting; !errors.Is(err, quorumlock.ErrMismatch) {
			t.Errorf("the waiter: %v, want ErrMismatch", err)
		}
		testkit.Unlock(t, first)
	})
}

// A minority of nodes with another number of permits keeps no client out: these nodes count as
// failed. The restore of a hold gives them the majority's number.
func TestAMinorityHasAnotherNumberOfPermits(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		s := c.Semaphore("x", 2)
		look := func() redlock.Inspection {
			in, err := c.Inspect(t.Context(), "x")
			testkit.Must(t, err, "Inspect")
			testkit.Equal(t, in.State.Permits, 2, "permits at most nodes")
			return in
		}
		confuse := func() {
			_, err := servers[1].Redis.ZAdd("x", 1e15+5, "quorumlock_semaphore")
			testkit.Must(t, err, "ZADD")
		}
		a := testkit.Lock(t, s)
		confuse()
		look()
		b := testkit.TryLock(t, s)
		testkit.Refused(t, s)
		time.Sleep(5 * time.Second) // renewals
		for i, n := range look().Nodes {
			testkit.Equal(t, n.State.Permits, 2, "permits at node %d", i)
			testkit.Equal(t, len(n.State.Slots), 2, "slots at node %d", i)
		}
		testkit.UnlockAll(t, a, b)
	})
}

// A called waiter asks at once, for the slot that the message names, if there is such a slot.
func TestAWaiterThatIsCalledForASlotAsksForIt(t *testing.T) {
	const name, permits = "two words", 8
	for said, want := range map[string]int{"5": 5, "0": 0, "8": -1, "-1": -1, "99999999999": -1, "1.5": -1, "": -1} {
		testkit.Run(t, said, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			for range permits {
				testkit.TryLock(t, c.Semaphore(name, permits))
			}
			d, _ := testkit.Another(t, servers)
			done := testkit.Go(func() *quorumlock.Lease { return testkit.Lock(t, d.Semaphore(name, permits)) })
			time.Sleep(10 * time.Millisecond)
			for _, s := range servers { // this tells nobody
				s.Redis.Del(name)
				s.Redis.Del(wire.SlotsKey(name))
			}
			for _, s := range servers {
				queue, err := s.Redis.ZMembers(wire.QueueKey(name))
				if err != nil || len(queue) != 1 {
					t.Fatalf("control: %v %v", queue, err)
				}
				client, _, _ := strings.Cut(queue[0], ":")
				if s.Redis.Publish(wire.WakeChannel(client), fmt.Sprintf("slot %s %s %s", queue[0], said, name)) != 1 {
					t.Fatal("control: nobody listens")
				}
			}
			began := time.Now()
			l := <-done
			testkit.Took(t, began, 0, 100*time.Millisecond, "it came")
			if want >= 0 && l.Slot() != want {
				t.Errorf("it has slot %d, want %d", l.Slot(), want)
			}
		})
	}
}
