package kinds

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/multilock"
)

// process is one process that uses the lock x.
type process struct {
	lock  quorumlock.Locker
	force func(context.Context) error // nil: the kind has no ForceUnlock
	free  func(context.Context, quorumlock.Owner) error
	paths []*embedded.Server
}

// alone are the kinds of locks that one holder has alone. Each makes one more process.
var alone = map[string]func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process{
	"mutex": func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		c, paths := locktest.Another(t, servers)
		m := c.Mutex("x", opts...)
		return process{m, m.ForceUnlock, m.ForceUnlockOwner, paths}
	},
	"writer": func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		c, paths := locktest.Another(t, servers)
		m := c.RWMutex("x", opts...)
		return process{m, m.ForceUnlock, m.ForceUnlockOwner, paths}
	},
	"semaphore": func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		c, paths := locktest.Another(t, servers)
		s := c.Semaphore("x", 1, opts...)
		return process{s, s.ForceUnlock, s.ForceUnlockOwner, paths}
	},
	"MultiLock": func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		c, paths := locktest.Another(t, servers)
		m, err := multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("y")}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return process{m, nil, nil, paths}
	},
	"node's mutex": func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		paths, nodes := locktest.Paths(t, servers[:1])
		m := nodes[0].Mutex("x", opts...)
		return process{m, m.ForceUnlock, m.ForceUnlockOwner, paths}
	},
	"node's semaphore": func(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) process {
		paths, nodes := locktest.Paths(t, servers[:1])
		s := nodes[0].Semaphore("x", 1, opts...)
		return process{s, s.ForceUnlock, s.ForceUnlockOwner, paths}
	},
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

// A named owner enters its hold without the context of a lease.
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
		if now := time.Now(); !now.Equal(deadline) {
			t.Errorf("told %v after the deadline", now.Sub(deadline))
		}
		next := <-waiting
		if late := time.Since(deadline); late <= 0 || late > 300*time.Millisecond || next.Token() <= dead.Token() {
			t.Errorf("passed on %v after the deadline, with token %d after %d", late, next.Token(), dead.Token())
		}
		locktest.Restart(a.paths...)
		for _, want := range []error{quorumlock.ErrLost, quorumlock.ErrNotHeld} {
			if err := dead.Unlock(t.Context()); !errors.Is(err, want) {
				t.Errorf("Unlock: %v, want %v", err, want)
			}
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
				if next.Token() <= lease.Token() {
					t.Errorf("token %d after %d", next.Token(), lease.Token())
				}
				locktest.Unlock(t, next)
				locktest.NoLocks(t, servers)
			})
		})
	}
}

// A lock freed by force goes to the waiter. The holder learns of it at its next renewal.
func TestForceUnlockPassesTheLockOnAndIsToldAtTheNextRenewal(t *testing.T) {
	each(t, func(t *testing.T, _ string, servers []*embedded.Server, a, b process) {
		if a.force == nil {
			return
		}
		lease := locktest.Lock(t, a.lock)
		locktest.LockIn(t, lease.Context(), a.lock) // however often it was entered
		waiting := locktest.Call(t, t.Context(), b.lock.Lock)
		forced := time.Now()
		if err := b.force(t.Context()); err != nil {
			t.Error("ForceUnlock:", err)
		}
		next := <-waiting
		if took := time.Since(forced); took > 100*time.Millisecond || next.Token() <= lease.Token() {
			t.Errorf("the waiter has the lock after %v, with token %d after %d", took, next.Token(), lease.Token())
		}
		locktest.Lost(t, lease, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		locktest.Unlock(t, next)
		if err := a.force(t.Context()); err != nil {
			t.Error("ForceUnlock of a free lock:", err)
		}
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
		if err := b.free(t.Context(), seen+"0"); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("of another owner: %v, want ErrNotHeld", err)
		}
		waiting := locktest.Call(t, t.Context(), b.lock.Lock)
		if err := b.free(t.Context(), seen); err != nil {
			t.Error(err)
		}
		next := <-waiting
		locktest.Lost(t, lease, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
		if err := a.free(t.Context(), seen); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("late: %v, want ErrNotHeld", err)
		}
		if err := next.Extend(t.Context()); err != nil {
			t.Error("a late call has freed the next holder:", err)
		}
		for name, err := range map[string]error{"no owner": a.free(t.Context(), ""), "no context": a.free(nil, seen)} { //nolint:staticcheck // it is refused
			if !errors.Is(err, quorumlock.ErrMisuse) {
				t.Errorf("%s: %v, want ErrMisuse", name, err)
			}
		}
		_ = lease.Unlock(t.Context())
		locktest.Unlock(t, next)
		locktest.Nothing(t, servers)
	})
}

// A waiter that gives up leaves the queue, whenever it does.
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
