package kinds

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// One reader, or one slot, is freed. The others keep theirs.
func TestForceUnlockOwnerFreesOneOfSeveral(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		rw, pool := c.RWMutex("x"), c.Semaphore("pool", 3)
		for _, kind := range []struct {
			lock quorumlock.Locker
			free func(context.Context, quorumlock.Owner) error
		}{{rw.RLocker(), rw.ForceUnlockOwner}, {pool, pool.ForceUnlockOwner}} {
			a, b := locktest.Lock(t, kind.lock), locktest.Lock(t, kind.lock)
			if err := kind.free(t.Context(), a.Owner()); err != nil {
				t.Error(err)
			}
			locktest.Lost(t, a, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
			if err := b.Extend(t.Context()); err != nil {
				t.Errorf("the other one: %v", err)
			}
			_ = a.Unlock(t.Context())
			locktest.Unlock(t, b)
		}
		locktest.NoLocks(t, servers)
	})
}

func TestReadersShareTheLockAndAWriterHasItAlone(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		d, _ := locktest.Another(t, servers)
		var readers []*quorumlock.Lease
		for i := range 6 {
			readers = append(readers, locktest.Lock(t, []*redlock.Client{c, d}[i%2].RWMutex("x").RLocker()))
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

// A reader that comes after a waiting writer waits. When the writer has gone, all readers before
// the next writer have the lock at once.
func TestReadersAndWritersAreServedInTheOrderInWhichTheyCalled(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		clients := []*redlock.Client{c, d}
		first := locktest.Lock(t, c.RWMutex("x").RLocker())
		w1 := locktest.Call(t, t.Context(), d.RWMutex("x").Lock)
		locktest.Refused(t, c.RWMutex("x").RLocker()) // a writer waits
		var readers []<-chan *quorumlock.Lease
		for i := range 5 {
			readers = append(readers, locktest.Call(t, t.Context(), clients[i%2].RWMutex("x").RLock))
		}
		w2 := locktest.Call(t, t.Context(), c.RWMutex("x").Lock)
		last := locktest.Call(t, t.Context(), d.RWMutex("x").RLock)
		for i, r := range readers {
			if locktest.Has(r) {
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
		if locktest.Has(w2) || locktest.Has(last) {
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

// A release hands the lock to all leading readers, and calls readers with entries that were not
// refreshed lately.
func TestAReleaseHandsTheLockToAllLeadingReaders(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		writer := locktest.Lock(t, c.RWMutex("x"))
		var readers []<-chan *quorumlock.Lease
		many := locktest.Thorough(150, 40)
		for range many {
			readers = append(readers, locktest.Call(t, t.Context(), c.RWMutex("x").RLock))
		}
		time.Sleep(600 * time.Millisecond)
		before, freed := locktest.Ran(servers), time.Now()
		locktest.Unlock(t, writer)
		for _, r := range readers {
			defer locktest.Unlock(t, <-r)
		}
		if took := time.Since(freed); took > 20*time.Millisecond {
			t.Errorf("it took %v until all had the lock", took)
		}
		// One attempt of each reader that was only called, and a renewal of each.
		if n := locktest.Ran(servers) - before; n > 3+2*3*many {
			t.Errorf("to hand the lock to %d readers took %d scripts", many, n)
		}
	})
}

// A dead reader delays a writer by at most the reader's TTL, even if other readers come and go.
func TestADeadReaderDelaysAWriterByItsTTLOnly(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		const ttl = 5 * time.Second
		// It dies.
		locktest.Lock(t, c.RWMutex("x", quorumlock.WithTTL(ttl), quorumlock.WithoutRenewal()).RLocker())
		living := locktest.Lock(t, d.RWMutex("x").RLocker())
		time.Sleep(ttl / 2)
		began := time.Now()
		writer := locktest.Call(t, t.Context(), d.RWMutex("x").Lock)
		time.Sleep(ttl)
		locktest.Unlock(t, living) // the dead one's share is over by now
		locktest.Unlock(t, <-writer)
		if took := time.Since(began); took > ttl+100*time.Millisecond {
			t.Errorf("the writer waited for %v", took)
		}

		locktest.Lock(t, c.RWMutex("x", quorumlock.WithTTL(ttl), quorumlock.WithoutRenewal()).RLocker())
		began = time.Now()
		locktest.Unlock(t, locktest.Lock(t, d.RWMutex("x").RLocker()))
		locktest.Unlock(t, locktest.Lock(t, d.RWMutex("x")))
		if took := time.Since(began); took > ttl+200*time.Millisecond {
			t.Errorf("the writer waited for %v, and the dead reader's TTL is %v", took, ttl)
		}
	})
}

// A writer that leaves the queue, or dies in it, lets the readers behind it in.
func TestReadersBehindAWriterThatGivesUp(t *testing.T) {
	for _, dies := range []bool{false, true} {
		locktest.Run(t, fmt.Sprint("dies ", dies), func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			d, paths := locktest.Another(t, servers)
			first := locktest.Lock(t, c.RWMutex("x").RLocker())
			ctx, cancel := context.WithCancel(t.Context())
			writer := locktest.Call(t, ctx, d.RWMutex("x").Lock)
			reader := locktest.Call(t, t.Context(), c.RWMutex("x").RLock)
			if locktest.Has(reader) {
				t.Fatal("the reader has overtaken the writer")
			}
			began := time.Now()
			if dies {
				locktest.Kill(paths...)
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
	}
}

// A reader's lease is renewed, and lost at its own deadline, independently of other readers.
func TestEachReaderHasADeadlineOfItsOwn(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, paths := locktest.Another(t, servers)
		living := locktest.Lock(t, c.RWMutex("x").RLocker())
		cut := locktest.Lock(t, d.RWMutex("x").RLocker())
		locktest.Kill(paths...)
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

// A writer that dies far back in the queue has an entry of up to 100 s. When all readers before it
// have the lock, it must not keep new readers out for so long.
func TestAWriterThatDiedFarBackInTheQueueKeepsReadersOutForSecondsOnly(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, paths := locktest.Another(t, servers)
		first := locktest.Lock(t, c.RWMutex("x"))
		var readers []<-chan *quorumlock.Lease
		for range locktest.Thorough(200, 70) {
			got := make(chan *quorumlock.Lease, 1)
			go func() {
				lease, err := c.RWMutex("x").RLock(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- lease
			}()
			readers = append(readers, got)
		}
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		_ = locktest.Call(t, ctx, d.RWMutex("x").Lock)
		time.Sleep(time.Second)
		locktest.Kill(paths...) // the writer
		locktest.Unlock(t, first)
		var leases []*quorumlock.Lease
		for _, r := range readers {
			leases = append(leases, <-r)
		}
		began := time.Now()
		late := locktest.Lock(t, c.RWMutex("x").RLocker())
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a reader beside readers waited %v for a dead writer", took)
		}
		cancel()
		for _, l := range append(leases, late) {
			locktest.Unlock(t, l)
		}
	})
}

// A TryLock is no waiting writer: it keeps no reader out while only readers hold. Nor does the
// TryLock of a MultiLock, which has another member meanwhile and tries again.
func TestATryLockKeepsNoReaderOut(t *testing.T) {
	for name, lock := range map[string]func(t *testing.T, c *redlock.Client) quorumlock.Locker{
		"of one lock": func(_ *testing.T, c *redlock.Client) quorumlock.Locker { return c.RWMutex("x") },
		"of a MultiLock": func(t *testing.T, c *redlock.Client) quorumlock.Locker {
			return locktest.Multi(t, c.Mutex("free"), c.RWMutex("x"))
		},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			d, paths := locktest.Another(t, servers)
			r := locktest.Lock(t, c.RWMutex("x").RLocker())
			writer := lock(t, d)
			_, _ = writer.TryLock(t.Context()) // connects
			locktest.Each(paths, func(s *embedded.Server) { s.Delay(2 * time.Millisecond) })
			var trying sync.WaitGroup
			trying.Go(func() {
				for range 20 {
					if _, err := writer.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
						t.Error(err)
					}
				}
			})
			for range 200 {
				time.Sleep(time.Millisecond)
				s, err := c.RWMutex("x").TryRLock(t.Context())
				if err != nil {
					t.Errorf("TryRLock beside a reader and a TryLock: %v", err)
					break
				}
				locktest.Unlock(t, s)
			}
			trying.Wait()
			locktest.Unlock(t, r)
		})
	}
}
