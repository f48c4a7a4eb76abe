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
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// process is one process that uses the lock x.
type process struct {
	lock  quorumlock.Locker
	force func(context.Context) error // nil: the kind has no ForceUnlock
	free  func(context.Context, quorumlock.Owner) error
	paths []*embedded.Server
}

// forcible is a lock that can be freed by force.
type forcible interface {
	quorumlock.Locker
	ForceUnlock(ctx context.Context) error
	ForceUnlockOwner(ctx context.Context, owner quorumlock.Owner) error
}

type maker = func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process

func ofClient(of func(c *redlock.Client, opts []quorumlock.Option) forcible) maker {
	return func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		c, paths := locktest.Another(t, servers)
		l := of(c, opts)
		return process{l, l.ForceUnlock, l.ForceUnlockOwner, paths}
	}
}

func ofNode(of func(n *node.Node, opts []quorumlock.Option) forcible) maker {
	return func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		paths, nodes := locktest.Paths(t, servers[:1])
		l := of(nodes[0], opts)
		return process{l, l.ForceUnlock, l.ForceUnlockOwner, paths}
	}
}

// alone are the kinds of locks that one holder has alone. Each makes one more process.
var alone = map[string]maker{
	"mutex":     ofClient(func(c *redlock.Client, opts []quorumlock.Option) forcible { return c.Mutex("x", opts...) }),
	"writer":    ofClient(func(c *redlock.Client, opts []quorumlock.Option) forcible { return c.RWMutex("x", opts...) }),
	"semaphore": ofClient(func(c *redlock.Client, opts []quorumlock.Option) forcible { return c.Semaphore("x", 1, opts...) }),
	"MultiLock": func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		c, paths := locktest.Another(t, servers)
		m, err := multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("y")}, opts...)
		locktest.Must(t, err, "New")
		return process{m, nil, nil, paths}
	},
	"node's mutex": ofNode(func(n *node.Node, opts []quorumlock.Option) forcible { return n.Mutex("x", opts...) }),
}

// each runs a test for each kind, with one process and one more.
func each(t *testing.T, test func(t *testing.T, kind string, servers []*embedded.Server, a, b process), opts ...quorumlock.Option) {
	for kind, more := range alone {
		locktest.Run(t, kind, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 3)
			test(t, kind, servers, more(t, servers, opts...), more(t, servers, opts...))
		})
	}
}

// Only a context of a lease enters its hold. The last Unlock gives the lock to the waiter at once.
func TestAHoldIsEnteredByItsContextAndHandedOverAtItsEnd(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		outer := locktest.Lock(t, a.lock)
		before := locktest.Ran(servers)
		inner := locktest.LockIn(t, context.WithoutCancel(outer.Context()), a.lock)
		if n := locktest.Ran(servers) - before; n > 0 || inner.Owner() != outer.Owner() || inner.Token() != outer.Token() || inner.Slot() != outer.Slot() || outer.HoldCount() != 2 {
			t.Errorf("entering took %d scripts; owner %s, token %d, slot %d, count %d", n, inner.Owner(), inner.Token(), inner.Slot(), outer.HoldCount())
		}
		locktest.Refused(t, a.lock)
		locktest.Refused(t, b.lock)
		waiting := locktest.Call(t, t.Context(), b.lock.Lock)
		time.Sleep(2 * quorumlock.DefaultTTL)
		locktest.Unlock(t, outer)
		if locktest.Has(waiting) {
			t.Error("the lock was handed over, and an inner lease has it")
		}
		locktest.Held(t, inner)
		freed := time.Now()
		locktest.Unlock(t, inner)
		next := <-waiting
		if took := time.Since(freed); took > 10*time.Millisecond || next.Token() <= outer.Token() || next.Owner() == outer.Owner() {
			t.Errorf("handed over after %v: token %d after %d, owner %s after %s", took, next.Token(), outer.Token(), next.Owner(), outer.Owner())
		}
		locktest.Unlock(t, next)
		locktest.Nothing(t, servers)
	})
}

func TestAHoldIsEnteredByItsOwner(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		first := locktest.Lock(t, a.lock)
		second := locktest.TryLock(t, a.lock)
		if second.Token() != first.Token() || second.HoldCount() != 2 {
			t.Errorf("token %d beside %d, count %d", second.Token(), first.Token(), second.HoldCount())
		}
		locktest.Unlock(t, first)
		locktest.Refused(t, b.lock) // the owner of another process's call is another hold
		locktest.Unlock(t, second)
		locktest.Nothing(t, servers)
	}, quorumlock.WithOwner("me:1"))
}

// A holder that is cut off learns of the loss at its deadline. The lock is free for others at the
// TTL, no earlier and little later. Late calls of the former holder take nothing from the next.
func TestADeadHoldersLockIsPassedOnAtItsTTL(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		dead := locktest.Lock(t, a.lock)
		time.Sleep(time.Minute) // it is renewed meanwhile
		locktest.Held(t, dead)
		locktest.Kill(a.paths...)
		deadline := dead.ValidUntil()
		waiting := locktest.Call(t, t.Context(), b.lock.Lock)
		locktest.Lost(t, dead, time.Minute)
		locktest.Took(t, deadline, 0, 0, "the loss, from the deadline")
		next := <-waiting
		if late := time.Since(deadline); late <= 0 || late > 300*time.Millisecond || next.Token() <= dead.Token() {
			t.Errorf("passed on %v after the deadline, with token %d after %d", late, next.Token(), dead.Token())
		}
		locktest.Restart(a.paths...)
		for _, want := range []error{quorumlock.ErrLost, quorumlock.ErrNotHeld} {
			locktest.Is(t, dead.Unlock(t.Context()), want, "Unlock")
		}
		time.Sleep(time.Minute)
		locktest.Held(t, next)
		locktest.Refused(t, a.lock)
		locktest.Unlock(t, next)
		locktest.Nothing(t, servers)
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
				lease := locktest.Lock(t, a.lock)
				for _, s := range servers {
					forget(s)
					locktest.Refused(t, b.lock)
					// A renewal that misses the key, and one that counts.
					time.Sleep(quorumlock.DefaultTTL * 4 / 5)
					if !s.Redis.Exists("x") {
						t.Errorf("%s has not taken the hold back", s.Name)
					}
				}
				locktest.Held(t, lease)
				locktest.Unlock(t, lease)
				next := locktest.Lock(t, b.lock)
				locktest.Rises(t, lease, next)
				locktest.Unlock(t, next)
				locktest.NoLocks(t, servers)
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
		lease := locktest.Lock(t, a.lock)
		locktest.LockIn(t, lease.Context(), a.lock) // however often it was entered
		waiting := locktest.Call(t, t.Context(), b.lock.Lock)
		forced := time.Now()
		locktest.OK(t, b.force(t.Context()), "ForceUnlock")
		next := <-waiting
		if took := time.Since(forced); took > 100*time.Millisecond || next.Token() <= lease.Token() {
			t.Errorf("the waiter has the lock after %v, with token %d after %d", took, next.Token(), lease.Token())
		}
		locktest.Lost(t, lease, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
		locktest.Is(t, lease.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
		if kind == "mutex" { // a node that was forced last refused the next holder: one renewal finds that out, and another restores it
			time.Sleep(quorumlock.DefaultTTL)
			locktest.HoldsAll(t, servers, next)
		}
		locktest.Unlock(t, next)
		locktest.OK(t, a.force(t.Context()), "ForceUnlock of a free lock")
		locktest.Nothing(t, servers)
	})
}

// The hold that was seen is freed, and no later one, nor anybody else's.
func TestForceUnlockOwnerFreesTheHoldThatWasSeen(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		if a.free == nil {
			return
		}
		lease := locktest.Lock(t, a.lock)
		seen := lease.Owner()
		locktest.Is(t, b.free(t.Context(), seen+"0"), quorumlock.ErrNotHeld, "of another owner")
		waiting := locktest.Call(t, t.Context(), b.lock.Lock)
		locktest.OK(t, b.free(t.Context(), seen), "free")
		next := <-waiting
		locktest.Lost(t, lease, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
		locktest.Is(t, a.free(t.Context(), seen), quorumlock.ErrNotHeld, "late")
		locktest.OK(t, next.Extend(t.Context()), "a late call has freed the next holder")
		for name, err := range map[string]error{"no owner": a.free(t.Context(), ""), "no context": a.free(nil, seen)} { //nolint:staticcheck // it is refused
			locktest.Is(t, err, quorumlock.ErrMisuse, "%s", name)
		}
		_ = lease.Unlock(t.Context())
		locktest.Unlock(t, next)
		locktest.Nothing(t, servers)
	})
}

func TestAWaiterThatGivesUpLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		for i, p := range b.paths {
			p.Delay(time.Duration(i+1) * time.Millisecond)
		}
		for after := range 12 { // ms from its call; the lock is released after 5
			lease := locktest.Lock(t, a.lock)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(after)*time.Millisecond, cancel)
			time.AfterFunc(5*time.Millisecond, func() { locktest.MustUnlock(t, lease) })
			if next, err := b.lock.Lock(ctx); err == nil {
				locktest.MustUnlock(t, next)
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			locktest.Unlock(t, locktest.TryLock(t, a.lock))
			cancel()
		}
		locktest.Nothing(t, servers)
	})
}

func TestASemaphoreLetsInAsManyAsItHasPermits(t *testing.T) {
	for _, k := range []int{1, 3, 100} {
		for _, n := range []int{1, 3} {
			locktest.Run(t, fmt.Sprint(k, " permits, ", n, " nodes"), func(t *testing.T) {
				c, servers := locktest.Client(t, n)
				d, _ := locktest.Another(t, servers)
				slots := map[int]bool{}
				var leases []*quorumlock.Lease
				for i := range k {
					l := locktest.TryLock(t, []*redlock.Client{c, d}[i%2].Semaphore("x", k))
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
				locktest.Took(t, began, 0, 10*time.Millisecond, "the refusal")
				in, err := c.Semaphore("x", k).Inspect(t.Context())
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
				locktest.Held(t, leases[0])
				locktest.Unlock(t, leases[0])
				leases[0] = locktest.TryLock(t, d.Semaphore("x", k))
				locktest.Equal(t, leases[0].Slot(), slot, "the slot of the lease, with one free slot")
				locktest.UnlockAll(t, leases...)
				locktest.Nothing(t, servers)
			})
		}
	}
}

func TestASemaphoreServesInTheOrderOfTheCalls(t *testing.T) {
	locktest.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := locktest.Another(t, servers)
		clients := []*redlock.Client{c, d}
		var in []*quorumlock.Lease
		for range 3 {
			in = append(in, locktest.Lock(t, c.Semaphore("x", 3)))
		}
		var waiting []<-chan *quorumlock.Lease
		for i := range 9 {
			waiting = append(waiting, locktest.Call(t, t.Context(), clients[i%2].Semaphore("x", 3).Lock))
		}
		locktest.Refused(t, d.Semaphore("x", 3))
		for i, w := range waiting {
			slot := in[0].Slot()
			locktest.Unlock(t, in[0])
			began := time.Now()
			l := <-w
			locktest.Took(t, began, 0, 10*time.Millisecond, "the handoff to waiter %d", i)
			locktest.Equal(t, l.Slot(), slot, "the slot of waiter %d", i)
			for j, later := range waiting[i+1:] {
				if len(later) > 0 {
					t.Fatalf("waiter %d has overtaken waiter %d", i+1+j, i)
				}
			}
			in = append(in[1:], l)
		}
		for _, l := range in {
			locktest.Held(t, l)
			locktest.Unlock(t, l)
		}
	})
}

// A node that has lost its data takes held slots for free. A TryLock is still refused soon, and the
// node gets each slot back.
func TestANodeThatForgotGetsTheSlotsBack(t *testing.T) {
	locktest.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := locktest.Another(t, servers)
		a := locktest.Lock(t, c.Semaphore("x", 2))
		b := locktest.Lock(t, d.Semaphore("x", 2))
		servers[1].Redis.FlushAll()
		began := time.Now()
		locktest.Refused(t, d.Semaphore("x", 2))
		locktest.Took(t, began, 0, 50*time.Millisecond, "the refusal")
		time.Sleep(5 * time.Second)
		in, err := c.Semaphore("x", 2).Inspect(t.Context())
		locktest.Must(t, err, "Inspect")
		for i, n := range in.Nodes {
			locktest.Equal(t, len(n.State.Slots), 2, "slots at node %d", i)
			for _, s := range n.State.Slots {
				if l := map[quorumlock.Owner]*quorumlock.Lease{a.Owner(): a, b.Owner(): b}[s.Owner]; l == nil || l.Slot() != s.Number {
					t.Errorf("node %d has %+v", i, s)
				}
			}
		}
		third := locktest.TryLock(t, d.Semaphore("x", 3))
		locktest.Refused(t, c.Semaphore("x", 3))
		for _, l := range []*quorumlock.Lease{a, b, third} {
			locktest.Held(t, l)
			locktest.Unlock(t, l)
		}
	})
}

// Two clients with different numbers of permits: neither gets a slot beyond its own number, and the
// one with more can have the rest.
func TestDifferentNumbersOfPermits(t *testing.T) {
	locktest.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := locktest.Another(t, servers)
		few, many := c.Semaphore("x", 2), d.Semaphore("x", 4)
		var in []*quorumlock.Lease
		for i, s := range []quorumlock.Locker{few, few, many, many} {
			l := locktest.TryLock(t, s)
			locktest.Equal(t, l.Slot() < 2, i < 2, "lease %d has one of the first two slots", i)
			in = append(in, l)
			if i%2 == 1 {
				locktest.Refused(t, s)
			}
		}
		waiting := locktest.Call(t, t.Context(), few.Lock)
		locktest.Unlock(t, in[3]) // not one of the first two
		if locktest.Has(waiting) {
			t.Fatal("the one with 2 permits has a third slot")
		}
		locktest.Unlock(t, in[0])
		l := <-waiting
		locktest.Equal(t, l.Slot(), in[0].Slot(), "the slot of the waiter")
		locktest.UnlockAll(t, l, in[1], in[2])
	})
}

// A called waiter asks at once, for the slot that the message names, if there is such a slot.
func TestAWaiterThatIsCalledForASlotAsksForIt(t *testing.T) {
	const name, permits = "two words", 8
	for said, want := range map[string]int{"5": 5, "0": 0, "8": -1, "-1": -1, "99999999999": -1, "1.5": -1, "": -1} {
		locktest.Run(t, said, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			for range permits {
				locktest.TryLock(t, c.Semaphore(name, permits))
			}
			d, _ := locktest.Another(t, servers)
			done := locktest.Go(func() *quorumlock.Lease { return locktest.Lock(t, d.Semaphore(name, permits)) })
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
			locktest.Took(t, began, 0, 100*time.Millisecond, "it came")
			if want >= 0 && l.Slot() != want {
				t.Errorf("it has slot %d, want %d", l.Slot(), want)
			}
		})
	}
}
