package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

func rlock(t testing.TB, m *redlock.RWMutex) *quorumlock.Lease {
	t.Helper()
	return locktest.Lock(t, m.RLocker())
}

// come begins a call, and returns when it waits or has returned. The channel has its lease.
func come(t testing.TB, ctx context.Context, lock func(context.Context) (*quorumlock.Lease, error)) <-chan *quorumlock.Lease {
	t.Helper()
	got := make(chan *quorumlock.Lease, 1)
	go func() {
		lease, err := lock(ctx)
		if err != nil && ctx.Err() == nil {
			t.Errorf("a waiter fails: %v", err)
		}
		if lease != nil {
			got <- lease
		}
		close(got)
	}()
	time.Sleep(20 * time.Millisecond)
	return got
}

func has(got <-chan *quorumlock.Lease) bool { time.Sleep(20 * time.Millisecond); return len(got) > 0 }

func TestReadersShareTheLockAndAWriterHasItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		d, _ := locktest.Another(t, servers)
		var readers []*quorumlock.Lease
		for i := range 6 {
			readers = append(readers, rlock(t, []*redlock.Client{c, d}[i%2].RWMutex("x")))
		}
		for _, l := range []quorumlock.Locker{c.RWMutex("x"), d.RWMutex("x"), c.Mutex("x")} {
			began := time.Now()
			_, err := l.TryLock(t.Context())
			held, ok := errors.AsType[*quorumlock.HeldError](err)
			if !ok || held.Holder == "" || held.TTL <= 0 {
				t.Errorf("TryLock beside readers: %v, want a HeldError with the holder and the TTL", err)
			}
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("the refusal took %v", took)
			}
		}
		in, err := c.RWMutex("x").Inspect(t.Context())
		if err != nil || len(in.State.Readers) != 6 || !in.State.Held() || in.State.Owner != "" || in.State.TTL <= 0 {
			t.Errorf("%+v, %v: want six readers", in.State, err)
		}
		for _, r := range readers {
			locktest.Unlock(t, r)
		}
		locktest.NoLocks(t, servers)

		w := locktest.Lock(t, c.RWMutex("x"))
		for _, l := range []quorumlock.Locker{d.RWMutex("x").RLocker(), d.RWMutex("x"), d.Mutex("x")} {
			locktest.Refused(t, l)
		}
		locktest.Unlock(t, w)
		m := locktest.Lock(t, c.Mutex("x"))
		locktest.Refused(t, d.RWMutex("x").RLocker())
		locktest.Unlock(t, m)
		locktest.Unlock(t, locktest.TryLock(t, d.RWMutex("x").RLocker()))
		locktest.Nothing(t, servers)
	})
}

// A reader that comes after a waiting writer waits; when the writer has gone, all readers before the next writer have the lock
// at once.
func TestReadersAndWritersAreServedInTheOrderInWhichTheyCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		clients := []*redlock.Client{c, d}
		first := rlock(t, c.RWMutex("x"))
		w1 := come(t, t.Context(), d.RWMutex("x").Lock)
		locktest.Refused(t, c.RWMutex("x").RLocker()) // a writer waits
		var readers []<-chan *quorumlock.Lease
		for i := range 5 {
			readers = append(readers, come(t, t.Context(), clients[i%2].RWMutex("x").RLock))
		}
		w2 := come(t, t.Context(), c.RWMutex("x").Lock)
		last := come(t, t.Context(), d.RWMutex("x").RLock)
		for i, r := range readers {
			if has(r) {
				t.Errorf("reader %d has overtaken the writer", i)
			}
		}
		locktest.Unlock(t, first)
		writer := <-w1
		locktest.Unlock(t, writer)
		freed := time.Now()
		var leases []*quorumlock.Lease
		for _, r := range readers {
			leases = append(leases, <-r)
		}
		if took := time.Since(freed); took > 20*time.Millisecond {
			t.Errorf("it took %v until all readers had the lock", took)
		}
		if has(w2) || has(last) {
			t.Error("the second writer, or the reader behind it, has the lock beside the readers")
		}
		for _, l := range leases {
			if l.Token() < writer.Token() {
				t.Errorf("a reader's token is %d, after a writer's %d", l.Token(), writer.Token())
			}
			locktest.Unlock(t, l)
		}
		second := <-w2
		for _, l := range leases {
			if second.Token() <= l.Token() {
				t.Errorf("a writer's token is %d, after a reader's %d", second.Token(), l.Token())
			}
		}
		locktest.Unlock(t, second)
		locktest.Unlock(t, <-last)
		locktest.Nothing(t, servers)
	})
}

// A release hands the lock to all leading readers, and calls those that have not refreshed their entries lately.
func TestAReleaseHandsTheLockToAllLeadingReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		writer := locktest.Lock(t, c.RWMutex("x"))
		var readers []<-chan *quorumlock.Lease
		many := locktest.Thorough(150, 40)
		for range many {
			readers = append(readers, come(t, t.Context(), c.RWMutex("x").RLock))
		}
		time.Sleep(600 * time.Millisecond)
		before, freed := ranAll(servers), time.Now()
		locktest.Unlock(t, writer)
		for _, r := range readers {
			defer locktest.Unlock(t, <-r)
		}
		if took := time.Since(freed); took > 20*time.Millisecond {
			t.Errorf("it took %v until all had the lock", took)
		}
		if n := ranAll(servers) - before; n > 3+2*3*many { // one attempt of those that were not handed it, and a renewal of each
			t.Errorf("to hand the lock to %d readers took %d scripts", many, n)
		}
	})
}

func TestReentryOfReadersAndWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		m := c.RWMutex("x")

		w := locktest.Lock(t, m)
		inner := lockIn(t, w.Context(), m.RLocker())
		if inner.Owner() != w.Owner() {
			t.Error("a reader within the writer's lease has a hold of its own")
		}
		locktest.Unlock(t, w)
		locktest.Refused(t, d.RWMutex("x").RLocker()) // the inner lease still holds for the writer
		locktest.Unlock(t, inner)

		r := rlock(t, m)
		waiting := come(t, t.Context(), d.RWMutex("x").Lock)
		inner = lockIn(t, r.Context(), m.RLocker()) // though a writer waits
		for name, lock := range map[string]func(context.Context) (*quorumlock.Lease, error){"Lock": m.Lock, "TryLock": m.TryLock, "a Mutex": c.Mutex("x").Lock} {
			began := time.Now()
			if _, err := lock(r.Context()); !errors.Is(err, quorumlock.ErrUpgrade) || time.Since(began) > 0 {
				t.Errorf("%s by a reader: %v after %v, want ErrUpgrade at once", name, err, time.Since(began))
			}
		}
		locktest.Unlock(t, r)
		locktest.Unlock(t, inner)
		locktest.Unlock(t, <-waiting)

		owned := c.RWMutex("x", quorumlock.WithOwner("me:1"))
		r = rlock(t, owned)
		if _, err := owned.Lock(t.Context()); !errors.Is(err, quorumlock.ErrUpgrade) {
			t.Errorf("Lock of an owner that reads: %v, want ErrUpgrade", err)
		}
		again := rlock(t, owned)
		if again.Owner() != r.Owner() {
			t.Error("a named owner has two holds")
		}
		locktest.Unlock(t, again)
		locktest.Unlock(t, r)
		w = locktest.Lock(t, owned)
		again = rlock(t, owned)
		if again.Owner() != w.Owner() {
			t.Error("a named owner that writes does not read within its hold")
		}
		locktest.Unlock(t, again)
		locktest.Unlock(t, w)
		locktest.Nothing(t, servers)
	})
}

func TestDowngradeLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		m := c.RWMutex("x")
		w := locktest.Lock(t, m)
		reader := come(t, t.Context(), d.RWMutex("x").RLock)
		other := come(t, t.Context(), d.RWMutex("x").Lock)
		token, owner := w.Token(), w.Owner()
		if err := m.Downgrade(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		r := <-reader
		if has(other) {
			t.Fatal("a writer has the lock beside readers")
		}
		if w.Token() != token || w.Owner() != owner || r.Token() != token {
			t.Errorf("tokens %d and %d, owner %s: want %d and %s", w.Token(), r.Token(), w.Owner(), token, owner)
		}
		if _, err := m.Lock(w.Context()); !errors.Is(err, quorumlock.ErrUpgrade) {
			t.Errorf("Lock within what was downgraded: %v, want ErrUpgrade", err)
		}
		locktest.Unlock(t, lockIn(t, w.Context(), m.RLocker()))
		time.Sleep(35 * time.Second) // it is renewed
		locktest.Held(t, w)
		locktest.Held(t, r)
		if has(other) {
			t.Fatal("a writer has the lock beside readers that are renewed")
		}
		locktest.Unlock(t, w)
		locktest.Held(t, r)
		if has(other) {
			t.Fatal("a writer has the lock beside a reader")
		}
		locktest.Unlock(t, r)
		locktest.Unlock(t, <-other)
		locktest.Nothing(t, servers)
	})
}

func TestDowngradeOfWhatIsNoWritersLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		m := c.RWMutex("x")
		refused := func(what string, lease *quorumlock.Lease, want string) {
			t.Helper()
			if err := m.Downgrade(t.Context(), lease); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Downgrade of %s: %v, want %q", what, err, want)
			}
		}
		refused("nothing", nil, "the lease is nil")
		r := rlock(t, m)
		refused("a reader's", r, "is a reader's")
		locktest.Unlock(t, r)
		y := locktest.Lock(t, c.RWMutex("y"))
		refused("another lock's", y, `of the lock "y"`)
		locktest.Unlock(t, y)
		w := locktest.Lock(t, m)
		var none context.Context
		if err := m.Downgrade(none, w); !errors.Is(err, quorumlock.ErrNilContext) {
			t.Errorf("with a nil context: %v", err)
		}
		inner := lockIn(t, w.Context(), m)
		refused("one of two", w, "2 leases")
		locktest.Unlock(t, inner)
		locktest.Refused(t, c.RWMutex("x").RLocker())
		locktest.Unlock(t, w)
		if err := m.Downgrade(t.Context(), w); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("Downgrade of an unlocked lease: %v, want ErrNotHeld", err)
		}
		w = locktest.Lock(t, m)
		for _, s := range servers {
			s.Kill()
		}
		locktest.Lost(t, w, 15*time.Second)
		if err := m.Downgrade(t.Context(), w); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Downgrade of a lost lease: %v, want ErrLost", err)
		}
	})
}

// A reader that is dead delays a writer by no more than the reader's TTL, whoever else reads and comes and goes meanwhile.
func TestADeadReaderDelaysAWriterByItsTTLOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		const ttl = 5 * time.Second
		rlock(t, c.RWMutex("x", quorumlock.WithTTL(ttl), quorumlock.WithoutRenewal())) // and dies
		living := rlock(t, d.RWMutex("x"))
		time.Sleep(ttl / 2)
		began := time.Now()
		writer := come(t, t.Context(), d.RWMutex("x").Lock)
		time.Sleep(ttl)
		locktest.Unlock(t, living) // the dead one's share is over by now
		locktest.Unlock(t, <-writer)
		if took := time.Since(began); took > ttl+100*time.Millisecond {
			t.Errorf("the writer waited for %v", took)
		}

		rlock(t, c.RWMutex("x", quorumlock.WithTTL(ttl), quorumlock.WithoutRenewal()))
		began = time.Now()
		locktest.Unlock(t, rlock(t, d.RWMutex("x")))
		locktest.Unlock(t, locktest.Lock(t, d.RWMutex("x")))
		if took := time.Since(began); took > ttl+200*time.Millisecond {
			t.Errorf("the writer waited for %v, and the dead reader's TTL is %v", took, ttl)
		}
	})
}

// A writer that leaves the queue, or dies in it, lets the readers behind it in.
func TestReadersBehindAWriterThatGivesUp(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprint("dies ", dies), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				d, paths := locktest.Another(t, servers)
				first := rlock(t, c.RWMutex("x"))
				ctx, cancel := context.WithCancel(t.Context())
				writer := come(t, ctx, d.RWMutex("x").Lock)
				reader := come(t, t.Context(), c.RWMutex("x").RLock)
				if has(reader) {
					t.Fatal("the reader has overtaken the writer")
				}
				began := time.Now()
				if dies {
					kill(paths...)
				}
				cancel()
				r := <-reader
				if took, most := time.Since(began), map[bool]time.Duration{false: 20 * time.Millisecond, true: 2600 * time.Millisecond}[dies]; took > most {
					t.Errorf("the reader waited for %v", took)
				}
				<-writer
				locktest.Unlock(t, r)
				locktest.Unlock(t, first)
			})
		})
	}
}

// A reader's lease is renewed, and lost at its own deadline, whatever the other readers do.
func TestEachReaderHasADeadlineOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, paths := locktest.Another(t, servers)
		living := rlock(t, c.RWMutex("x"))
		cut := rlock(t, d.RWMutex("x"))
		kill(paths...)
		locktest.Lost(t, cut, 11*time.Second)
		time.Sleep(time.Second)
		locktest.Held(t, living)
		in, err := c.RWMutex("x").Inspect(t.Context())
		if err != nil || len(in.State.Readers) != 1 || in.State.Readers[0].Owner != living.Owner() {
			t.Errorf("%+v, %v: want the living reader alone", in.State.Readers, err)
		}
		locktest.Unlock(t, living)
		locktest.Unlock(t, locktest.TryLock(t, c.RWMutex("x")))
	})
}

func TestAMultiLockOfReadersAndWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		mixed, err := multilock.New([]quorumlock.Locker{c.RWMutex("a").RLocker(), c.RWMutex("b")})
		if err != nil {
			t.Fatal(err)
		}
		lease := locktest.Lock(t, mixed)
		a := locktest.TryLock(t, d.RWMutex("a").RLocker())
		locktest.Refused(t, d.RWMutex("a"))
		locktest.Refused(t, d.RWMutex("b").RLocker())
		time.Sleep(15 * time.Second)
		locktest.Held(t, lease)
		locktest.Unlock(t, lease)
		locktest.Unlock(t, a)
		if _, err := multilock.New([]quorumlock.Locker{c.RWMutex("a").RLocker(), c.RWMutex("a")}); err == nil {
			t.Error("a lock and its reader are members of one MultiLock")
		}
		locktest.Nothing(t, servers)
	})
}

// No order of members makes MultiLocks that read and write each other's locks wait for each other for ever.
func TestMixedMultiLocksEndUnderContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		var running sync.WaitGroup
		read := map[string]int{}
		wrote := map[string]bool{}
		var mu sync.Mutex
		for i := range 12 {
			running.Go(func() {
				names := []string{"a", "b", "c"}
				r, w := names[i%3], names[(i+1)%3]
				l, err := multilock.New([]quorumlock.Locker{c.RWMutex(r).RLocker(), c.RWMutex(w)})
				if err != nil {
					t.Error(err)
					return
				}
				for range 5 {
					lease, err := l.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if wrote[r] || wrote[w] || read[w] > 0 {
						t.Error("two have what only one may have")
					}
					read[r]++
					wrote[w] = true
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					read[r]--
					wrote[w] = false
					mu.Unlock()
					if err := lease.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		locktest.Nothing(t, servers)
	})
}

// A node that has lost a reader's share gets it back with a renewal, beside the others that read.
func TestANodeThatForgotGetsTheReaderBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		r := rlock(t, c.RWMutex("x"))
		s := rlock(t, d.RWMutex("x"))
		servers[0].Redis.FlushAll()
		time.Sleep(5 * time.Second)
		for _, l := range []*quorumlock.Lease{r, s} {
			locktest.HoldsAll(t, servers, l)
		}
		locktest.Unlock(t, r)
		locktest.Unlock(t, s)
		locktest.Nothing(t, servers)
	})
}

// Readers and writers of several processes on failing nodes: no writer beside anybody, and tokens that prove the order.
func TestNoWriterBesideAnybodyUnderRandomFaults(t *testing.T) {
	t.Parallel()
	for seed := range locktest.Thorough(uint64(10), 2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { mixedUnderFaults(t, seed) })
		})
	}
}

func mixedUnderFaults(t *testing.T, seed uint64) {
	servers, _ := locktest.Nodes(t, 5)
	rng := rand.New(rand.NewPCG(seed, 77))
	var mu sync.Mutex
	var readers, writers int
	var high uint64 // the highest token of a writer
	var running sync.WaitGroup
	for range 3 {
		c, _ := locktest.Another(t, servers)
		for i := range 3 {
			pause := time.Duration(rng.IntN(30)) * time.Millisecond
			running.Go(func() {
				m := c.RWMutex("x", quorumlock.WithTTL(2*time.Second))
				for n := range 12 {
					time.Sleep(pause)
					reads := (n+i)%3 != 0
					lock := m.Lock
					if reads {
						lock = m.RLock
					}
					lease, err := lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if writers > 0 || !reads && readers > 0 {
						t.Errorf("%d readers and %d writers beside a new one that reads: %v", readers, writers, reads)
					}
					if lease.Token() < high || !reads && lease.Token() == high {
						t.Errorf("token %d after a writer's %d", lease.Token(), high)
					}
					if reads {
						readers++
					} else {
						writers++
						high = lease.Token()
					}
					mu.Unlock()
					time.Sleep(pause)
					mu.Lock()
					if reads {
						readers--
					} else {
						writers--
					}
					mu.Unlock()
					if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, quorumlock.ErrLost) {
						var few *quorumlock.QuorumError
						if !errors.As(err, &few) {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	over := make(chan struct{})
	go func() { running.Wait(); close(over) }()
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(50+rng.IntN(200)) * time.Millisecond):
		}
		s := servers[rng.IntN(len(servers))]
		s.Kill()
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
		s.Restart(true)
	}
}
