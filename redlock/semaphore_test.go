package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

// pool checks that every slot has one holder at most, and that the tokens of each slot rise.
type pool struct {
	t      testing.TB
	mu     sync.Mutex
	in     map[int]quorumlock.Owner
	tokens map[int]uint64
	most   int
	grants int
}

func newPool(t testing.TB) *pool {
	return &pool{t: t, in: map[int]quorumlock.Owner{}, tokens: map[int]uint64{}}
}

func (p *pool) enter(l *quorumlock.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := l.Slot()
	if other, taken := p.in[slot]; taken {
		p.t.Errorf("slot %d is given to %s while %s has it", slot, l.Owner(), other)
	}
	if l.Token() <= p.tokens[slot] {
		p.t.Errorf("slot %d has token %d after %d", slot, l.Token(), p.tokens[slot])
	}
	p.in[slot], p.tokens[slot] = l.Owner(), l.Token()
	p.most, p.grants = max(p.most, len(p.in)), p.grants+1
}

func (p *pool) leave(l *quorumlock.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.in, l.Slot())
}

func TestASemaphoreLetsInAsManyAsItHasPermits(t *testing.T) {
	for _, k := range []int{1, 2, 3, 8, 100} {
		for _, n := range []int{1, 3, 5} {
			t.Run(fmt.Sprint(k, " permits, ", n, " nodes"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := locktest.Client(t, n)
					d, _ := locktest.Another(t, servers)
					p := newPool(t)
					var leases []*quorumlock.Lease
					for i := range k {
						l := locktest.TryLock(t, []*redlock.Client{c, d}[i%2].Semaphore("x", k))
						p.enter(l)
						if l.Slot() < 0 || l.Slot() >= k {
							t.Errorf("slot %d of %d", l.Slot(), k)
						}
						leases = append(leases, l)
					}
					began := time.Now()
					_, err := d.Semaphore("x", k).TryLock(t.Context())
					if held, ok := errors.AsType[*quorumlock.HeldError](err); !ok || held.Holder == "" || held.TTL <= 0 {
						t.Errorf("TryLock of a full semaphore: %v, want a HeldError with a holder and the TTL", err)
					}
					if took := time.Since(began); took > 10*time.Millisecond {
						t.Errorf("the refusal took %v", took)
					}
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
					l := locktest.TryLock(t, d.Semaphore("x", k))
					if l.Slot() != slot {
						t.Errorf("the only free slot is %d, and the lease has %d", slot, l.Slot())
					}
					leases[0] = l
					for _, l := range leases {
						locktest.Unlock(t, l)
					}
					locktest.Nothing(t, servers)
				})
			})
		}
	}
}

func TestASemaphoreServesInTheOrderOfTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		clients := []*redlock.Client{c, d}
		var in []*quorumlock.Lease
		for range 3 {
			in = append(in, locktest.Lock(t, c.Semaphore("x", 3)))
		}
		var waiting []<-chan *quorumlock.Lease
		for i := range 9 {
			waiting = append(waiting, come(t, t.Context(), clients[i%2].Semaphore("x", 3).Lock))
		}
		locktest.Refused(t, d.Semaphore("x", 3))
		for i, w := range waiting {
			slot := in[0].Slot()
			locktest.Unlock(t, in[0])
			began := time.Now()
			l := <-w
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("the handoff to waiter %d took %v", i, took)
			}
			if l.Slot() != slot {
				t.Errorf("slot %d was released, and waiter %d has %d", slot, i, l.Slot())
			}
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
		locktest.Nothing(t, servers)
	})
}

// Many callers contend. No slot has two holders, all slots are used, and the semaphore gives about k times as many grants as the mutex.
func TestManyContendersOfASemaphore(t *testing.T) {
	t.Parallel()
	for _, n := range locktest.Thorough([]int{1, 5}, []int{1}) {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				grants := func(lock func(*redlock.Client) quorumlock.Locker, name string) int {
					c, servers := locktest.Client(t, n)
					p := newPool(t)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					var running sync.WaitGroup
					for i := range 4 {
						d, _ := locktest.Another(t, servers)
						l := lock(d)
						for j := range 16 {
							running.Go(func() {
								for ctx.Err() == nil {
									lease, err := l.Lock(ctx)
									if err != nil {
										continue
									}
									p.enter(lease)
									time.Sleep(10*time.Millisecond + time.Duration(i*16+j)*37*time.Microsecond)
									p.leave(lease)
									if err := lease.Unlock(t.Context()); err != nil {
										t.Error(err)
									}
								}
							})
						}
					}
					running.Wait()
					locktest.NoLocks(t, servers)
					_ = c
					t.Logf("%s: %d grants, at most %d in", name, p.grants, p.most)
					return p.grants
				}
				mutex := grants(func(c *redlock.Client) quorumlock.Locker { return c.Mutex("x") }, "mutex")
				semaphore := grants(func(c *redlock.Client) quorumlock.Locker { return c.Semaphore("s", 8) }, "semaphore")
				if semaphore < 7*mutex {
					t.Errorf("a semaphore of 8 has had %d grants, and the mutex %d", semaphore, mutex)
				}
			})
		})
	}
}

func TestADeadHoldersSlotIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, paths := locktest.Another(t, servers)
		const ttl = 10 * time.Second
		dead := locktest.Lock(t, d.Semaphore("x", 2))
		living := locktest.Lock(t, c.Semaphore("x", 2))
		kill(paths...)
		began := time.Now()
		waiting := come(t, t.Context(), c.Semaphore("x", 2).Lock)
		l := <-waiting
		if took := time.Since(began); took > ttl+2*time.Second {
			t.Errorf("the dead holder's slot was passed on after %v", took)
		}
		if l.Slot() != dead.Slot() {
			t.Errorf("slot %d, and the dead one's was %d", l.Slot(), dead.Slot())
		}
		locktest.Lost(t, dead, time.Second)
		locktest.Held(t, living)
		locktest.Unlock(t, living)
		locktest.Unlock(t, l)
	})
}

func TestANodeThatForgotGetsTheSlotsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		a := locktest.Lock(t, c.Semaphore("x", 3))
		b := locktest.Lock(t, d.Semaphore("x", 3))
		servers[0].Redis.FlushAll()
		time.Sleep(5 * time.Second)
		in, err := c.Semaphore("x", 3).Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range in.Nodes {
			if len(n.State.Slots) != 2 {
				t.Errorf("node %d has %+v", i, n.State.Slots)
			}
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
		locktest.Nothing(t, servers)
	})
}

func TestASemaphoreIsEnteredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		owner := quorumlock.NewOwner()
		s := c.Semaphore("x", 2)
		l := locktest.Lock(t, s)
		inner := lockIn(t, l.Context(), s)
		if inner.Slot() != l.Slot() || inner.Token() != l.Token() || l.HoldCount() != 2 {
			t.Errorf("slot %d, token %d, count %d", inner.Slot(), inner.Token(), l.HoldCount())
		}
		named := locktest.Lock(t, c.Semaphore("x", 2, quorumlock.WithOwner(owner)))
		again := locktest.Lock(t, c.Semaphore("x", 2, quorumlock.WithOwner(owner)))
		if named.Slot() != again.Slot() || named.Slot() == l.Slot() {
			t.Errorf("slots %d, %d beside %d", named.Slot(), again.Slot(), l.Slot())
		}
		locktest.Refused(t, s)
		for _, l := range []*quorumlock.Lease{inner, l, named, again} {
			locktest.Unlock(t, l)
		}
		locktest.Nothing(t, servers)
	})
}

func TestASemaphoreInAMultiLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		of := func(c *redlock.Client) quorumlock.Locker {
			m, err := multilock.New([]quorumlock.Locker{c.RWMutex("a").RLocker(), c.RWMutex("b"), c.Semaphore("s", 2)})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		l := locktest.Lock(t, of(c))
		other := locktest.TryLock(t, d.Semaphore("s", 2))
		if other.Slot() == l.Slot() {
			t.Errorf("both have slot %d", l.Slot())
		}
		waiting := come(t, t.Context(), of(d).Lock)
		time.Sleep(15 * time.Second)
		if has(waiting) {
			t.Fatal("a MultiLock has been acquired while another one writes")
		}
		locktest.Held(t, l)
		locktest.Unlock(t, l)
		l = <-waiting
		locktest.Refused(t, c.Semaphore("s", 2))
		locktest.Unlock(t, l)
		locktest.Unlock(t, other)
		locktest.Nothing(t, servers)
	})
}

func TestBadPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := locktest.Client(t, 3)
		for _, k := range []int{0, -1, 1001} {
			if _, err := c.Semaphore("x", k).Lock(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("permits is %d", k)) {
				t.Errorf("%d permits: %v", k, err)
			}
		}
	})
}

func TestASemaphoreOnTheNameOfAnotherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := locktest.Client(t, 3)
		wrong := func(err error, used, is string) {
			t.Helper()
			if !errors.Is(err, quorumlock.ErrWrongKind) || !strings.Contains(err.Error(), "used as a "+used) || !strings.Contains(err.Error(), "is a "+is) {
				t.Errorf("%v: want ErrWrongKind naming %s and %s", err, used, is)
			}
		}
		try := func(l quorumlock.Locker) error { _, err := l.TryLock(t.Context()); return err }
		for _, held := range []bool{true, false} {
			m := locktest.Lock(t, c.Mutex("m"))
			s := locktest.Lock(t, c.Semaphore("s", 2))
			if !held {
				locktest.Unlock(t, m)
				locktest.Unlock(t, s)
			}
			wrong(try(c.Semaphore("m", 2)), "semaphore", "mutex")
			wrong(try(c.Mutex("s")), "mutex", "semaphore")
			wrong(try(c.RWMutex("s").RLocker()), "mutex", "semaphore")
			if held {
				wrong(c.Latch("s", 2).Done(t.Context(), "a"), "latch", "semaphore")
				_, err := c.Mutex("s").Inspect(t.Context())
				wrong(err, "mutex", "semaphore")
				_, err = c.Semaphore("m", 2).Inspect(t.Context())
				wrong(err, "semaphore", "mutex")
				locktest.Held(t, m)
				locktest.Held(t, s)
				locktest.Unlock(t, m)
				locktest.Unlock(t, s)
			}
		}
		if err := c.Latch("l", 2).Done(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		wrong(try(c.Semaphore("l", 2)), "semaphore", "latch")
	})
}
