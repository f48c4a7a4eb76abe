package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// Somebody has had one of two slots for long. Of those who try at the same time, one gets the other slot, though all of them are
// refused by the same holder.
func TestSomebodyWhoTriesGetsTheLastSlot(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		for seed := range locktest.Thorough[uint64](20, 2) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, n)
				holder, _ := locktest.Another(t, servers)
				held := locktest.Lock(t, holder.Semaphore("x", 2))
				all := contenders(t, servers, 5)
				rng := rand.New(rand.NewPCG(seed, 0x1a57))
				spread(all, rng, seed%2 == 0)
				var trying sync.WaitGroup
				got := make([]*quorumlock.Lease, len(all))
				for i, c := range all {
					trying.Go(func() {
						lease, err := c.client.Semaphore("x", 2).TryLock(t.Context())
						if err != nil && !errors.Is(err, quorumlock.ErrHeld) {
							t.Error(err)
						}
						got[i] = lease
					})
				}
				trying.Wait()
				won := 0
				for _, l := range got {
					if l != nil {
						won++
						locktest.Unlock(t, l)
					}
				}
				if won != 1 {
					t.Errorf("%d nodes, seed %d: %d of %d have the last slot", n, seed, won, len(all))
				}
				locktest.Unlock(t, held)
			})
		}
	}
}

// A node that has lost its data has slots that are taken. Whoever tries is refused soon all the same.
func TestANodeThatForgotDoesNotHoldUpARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		a, b := locktest.Lock(t, c.Semaphore("x", 2)), locktest.Lock(t, c.Semaphore("x", 2))
		servers[1].Redis.FlushAll()
		began := time.Now()
		locktest.Refused(t, d.Semaphore("x", 2))
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("the refusal took %v", took)
		}
		locktest.Unlock(t, a)
		locktest.Unlock(t, b)
		locktest.Nothing(t, servers)
	})
}

// Whoever held a slot that is lost learns so from Unlock, which takes nothing from the next holder.
func TestUnlockOfALostSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		s := c.Semaphore("x", 2, quorumlock.WithoutRenewal(), quorumlock.WithTTL(2*time.Second))
		lost := locktest.Lock(t, s)
		other := locktest.Lock(t, c.Semaphore("x", 2))
		waiting := come(t, t.Context(), d.Semaphore("x", 2).Lock)
		locktest.Lost(t, lost, 3*time.Second)
		next := <-waiting
		if next.Slot() != lost.Slot() || next.Token() <= lost.Token() {
			t.Errorf("slot %d with token %d, after slot %d with token %d", next.Slot(), next.Token(), lost.Slot(), lost.Token())
		}
		if err := lost.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock of a lost slot: %v, want ErrLost", err)
		}
		if err := lost.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("Unlock once more: %v, want ErrNotHeld", err)
		}
		locktest.Held(t, next)
		locktest.Held(t, other)
		locktest.Refused(t, c.Semaphore("x", 2))
		locktest.Unlock(t, next)
		locktest.Unlock(t, other)
		locktest.Nothing(t, servers)
	})
}

// The tokens of a slot rise after a day in which nobody used it, whether or not other slots were used meanwhile.
func TestTokensOfASlotRiseAfterAnIdleDay(t *testing.T) {
	for name, busy := range map[string]bool{"the other slot is used": true, "nobody uses the semaphore": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := locktest.Client(t, 3, quorumlock.WithTTL(10*time.Minute)) // few renewals
				p := newPool(t)
				enter := func() *quorumlock.Lease {
					l := locktest.TryLock(t, c.Semaphore("x", 2))
					p.enter(l)
					return l
				}
				leave := func(l *quorumlock.Lease) { p.leave(l); locktest.Unlock(t, l) }
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
		})
	}
}

// A waiter whose ctx is cancelled at any moment of a handoff leaves no slot taken.
func TestCancelledWaitersTakeNoSlot(t *testing.T) {
	for delay := range locktest.Thorough[time.Duration](40, 4) {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			d, paths := locktest.Another(t, servers)
			for i, p := range paths {
				p.Delay(time.Duration(1+i) * time.Millisecond)
			}
			a, b := locktest.Lock(t, c.Semaphore("x", 2)), locktest.Lock(t, c.Semaphore("x", 2))
			ctx, cancel := context.WithCancel(t.Context())
			var leases []<-chan *quorumlock.Lease
			for range 3 {
				leases = append(leases, come(t, ctx, d.Semaphore("x", 2).Lock))
			}
			go locktest.Unlock(t, a)
			time.Sleep(delay * 200 * time.Microsecond)
			cancel()
			for _, l := range leases {
				if lease := <-l; lease != nil {
					locktest.Unlock(t, lease)
				}
			}
			time.Sleep(50 * time.Millisecond)
			l := locktest.TryLock(t, c.Semaphore("x", 2))
			locktest.Unlock(t, l)
			locktest.Unlock(t, b)
			locktest.Nothing(t, servers)
		})
	}
}

// Lost replies take no slot for good.
func TestLostRepliesTakeNoSlot(t *testing.T) {
	for lost := range 6 {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			d, paths := locktest.Another(t, servers)
			locktest.Unlock(t, locktest.Lock(t, d.Semaphore("x", 3)))
			paths[0].LoseReplies(lost)
			paths[1].LoseReplies(lost / 2)
			var got []*quorumlock.Lease
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				l, err := d.Semaphore("x", 3).Lock(ctx)
				if err != nil {
					t.Logf("%d lost: %v", lost, err)
				} else {
					got = append(got, l)
				}
				cancel()
			}
			for _, l := range got {
				_ = l.Unlock(t.Context()) // its reply may be lost
			}
			time.Sleep(5 * time.Second)
			var all []*quorumlock.Lease
			for range 3 {
				all = append(all, locktest.TryLock(t, c.Semaphore("x", 3)))
			}
			for _, l := range all {
				locktest.Unlock(t, l)
			}
			locktest.Nothing(t, servers)
		})
	}
}

func TestBadTTLsOfASemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		const year = 365 * 24 * time.Hour
		for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond, 100*year + 1} {
			if _, err := c.Semaphore("x", 2, quorumlock.WithTTL(ttl)).Lock(t.Context()); err == nil || !strings.Contains(err.Error(), "TTL") {
				t.Errorf("TTL %v: %v, want an error that names the TTL", ttl, err)
			}
		}
		l := locktest.Lock(t, c.Semaphore("x", 2, quorumlock.WithTTL(100*year)))
		locktest.Held(t, l)
		locktest.Unlock(t, l)
		locktest.Nothing(t, servers)
	})
}

// A mutex, a latch and a read-write lock refuse the name of a semaphore, held or idle, and the other way round, whatever the call.
func TestInspectAndForceUnlockOfAnotherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		wrong := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, quorumlock.ErrWrongKind) {
				t.Errorf("%s: %v, want ErrWrongKind", what, err)
			}
		}
		inspect := func(f func(context.Context) (redlock.Inspection, error)) error { _, err := f(t.Context()); return err }
		l := locktest.Lock(t, c.Semaphore("s", 2))
		wrong("Inspect of a mutex", inspect(c.Mutex("s").Inspect))
		wrong("ForceUnlock of a mutex", c.Mutex("s").ForceUnlock(t.Context()))
		wrong("Downgrade", c.RWMutex("s").ForceUnlock(t.Context()))
		locktest.Held(t, l)
		locktest.Unlock(t, l)
		wrong("Inspect of a mutex, idle", inspect(c.Mutex("s").Inspect))
		wrong("Inspect of a read-write lock, idle", inspect(c.RWMutex("s").Inspect))

		m := locktest.Lock(t, c.Mutex("m"))
		wrong("Inspect of a semaphore", inspect(c.Semaphore("m", 2).Inspect))
		wrong("ForceUnlock of a semaphore", c.Semaphore("m", 2).ForceUnlock(t.Context()))
		waiting := come(t, t.Context(), c.Mutex("m").Lock)
		_, err := c.Semaphore("m", 2).TryLock(t.Context())
		wrong("TryLock of a semaphore", err)
		locktest.Held(t, m)
		locktest.Unlock(t, m)
		began := time.Now()
		m = <-waiting
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("the mutex was handed over after %v", took)
		}
		locktest.Unlock(t, m)
		wrong("Inspect of a semaphore, idle", inspect(c.Semaphore("m", 2).Inspect))

		r := rlock(t, c.RWMutex("r"))
		wrong("ForceUnlock of a semaphore", c.Semaphore("r", 2).ForceUnlock(t.Context()))
		locktest.Held(t, r)
		locktest.Unlock(t, r)
		if err := c.Latch("l", 1).Done(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		wrong("Inspect of a semaphore, of a latch", inspect(c.Semaphore("l", 2).Inspect))
		wrong("ForceUnlock of a semaphore, of a latch", c.Semaphore("l", 2).ForceUnlock(t.Context()))
		for _, s := range servers {
			s.Redis.Del("l")
		}
		locktest.NoLocks(t, servers)
	})
}
