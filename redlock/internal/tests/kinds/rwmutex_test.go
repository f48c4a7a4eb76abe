package kinds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

// One reader, or one slot, is freed. The others keep theirs.
func TestForceUnlockOwnerFreesOneOfSeveral(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		for _, lock := range []quorumlock.Locker{c.RWMutex("x").RLocker(), c.Semaphore("pool", 3)} {
			a, b := testkit.Lock(t, lock), testkit.Lock(t, lock)
			testkit.OK(t, c.ForceUnlockOwner(t.Context(), lock.Name(), a.Owner()), "ForceUnlockOwner")
			testkit.Lost(t, a, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
			testkit.OK(t, b.Extend(t.Context()), "the other one")
			_ = a.Unlock(t.Context())
			testkit.Unlock(t, b)
		}
	})
}

func TestReadersShareTheLockAndAWriterHasItAlone(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		var readers []*quorumlock.Lease
		for i := range 6 {
			readers = append(readers, testkit.Lock(t, []*redlock.Client{c, d}[i%2].RWMutex("x").RLocker()))
		}
		for _, l := range []quorumlock.Locker{c.RWMutex("x"), d.RWMutex("x"), c.Mutex("x")} {
			began := time.Now()
			_, err := l.TryLock(t.Context())
			held, ok := errors.AsType[*quorumlock.HeldError](err)
			if !ok || held.Holder == "" || held.TTL <= 0 {
				t.Errorf("TryLock beside readers: %v, want a HeldError with the holder and the TTL", err)
			}
			testkit.Took(t, began, 0, 10*time.Millisecond, "the refusal")
		}
		in, err := c.Inspect(t.Context(), "x")
		if err != nil || len(in.State.Readers) != 6 || !in.State.Held() || in.State.Owner != "" || in.State.TTL <= 0 {
			t.Errorf("%+v, %v: want six readers", in.State, err)
		}
		testkit.UnlockAll(t, readers...)
		testkit.NoLocks(t, servers)

		w := testkit.Lock(t, c.RWMutex("x"))
		for _, l := range []quorumlock.Locker{d.RWMutex("x").RLocker(), d.RWMutex("x"), d.Mutex("x")} {
			testkit.Refused(t, l)
		}
		testkit.Unlock(t, w)
		m := testkit.Lock(t, c.Mutex("x"))
		testkit.Refused(t, d.RWMutex("x").RLocker())
		testkit.Unlock(t, m)
		testkit.Unlock(t, testkit.TryLock(t, d.RWMutex("x").RLocker()))
	})
}

// Java's way of downgrading: write, read, unlock the write. Here the reader has entered the writer's
// hold, which stays exclusive.
func TestAReaderInAWritersHoldIsNoDowngrade(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		rw := c.RWMutex("x")
		w := testkit.Lock(t, rw)
		r := testkit.LockIn(t, w.Context(), rw.RLocker())
		testkit.OK(t, w.Unlock(t.Context()), "Unlock of the writer")
		testkit.Equal(t, r.Context().Err() != nil, true, "the reader's context is done")
		testkit.Refused(t, d.RWMutex("x").RLocker())
		testkit.Unlock(t, r)
		testkit.Unlock(t, testkit.TryLock(t, d.RWMutex("x").RLocker()))
	})
}

// A reader that comes after a waiting writer waits. When the writer has gone, all readers before
// the next writer have the lock at once.
func TestReadersAndWritersAreServedInTheOrderInWhichTheyCalled(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		clients := []*redlock.Client{c, d}
		first := testkit.Lock(t, c.RWMutex("x").RLocker())
		w1 := testkit.Call(t, t.Context(), d.RWMutex("x").Lock)
		testkit.Refused(t, c.RWMutex("x").RLocker()) // a writer waits
		var readers []<-chan *quorumlock.Lease
		for i := range 5 {
			readers = append(readers, testkit.Call(t, t.Context(), clients[i%2].RWMutex("x").RLock))
		}
		w2 := testkit.Call(t, t.Context(), c.RWMutex("x").Lock)
		last := testkit.Call(t, t.Context(), d.RWMutex("x").RLock)
		for i, r := range readers {
			if testkit.Has(r) {
				t.Errorf("reader %d has overtaken the writer", i)
			}
		}
		testkit.Unlock(t, first)
		writer := <-w1
		testkit.Unlock(t, writer)
		freed := time.Now()
		var leases []*quorumlock.Lease
		for _, r := range readers {
			leases = append(leases, <-r)
		}
		testkit.Took(t, freed, 0, 20*time.Millisecond, "the time until all readers had the lock")
		if testkit.Has(w2) || testkit.Has(last) {
			t.Error("the second writer, or the reader behind it, has the lock beside the readers")
		}
		for _, l := range leases {
			if l.Token() < writer.Token() {
				t.Errorf("a reader's token is %d, after a writer's %d", l.Token(), writer.Token())
			}
			testkit.Unlock(t, l)
		}
		second := <-w2
		for _, l := range leases {
			testkit.Rises(t, l, second)
		}
		testkit.Unlock(t, second)
		testkit.Unlock(t, <-last)
	})
}

// A release hands the lock to all leading readers, and calls readers with entries that were not
// refreshed lately.
func TestAReleaseHandsTheLockToAllLeadingReaders(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		writer := testkit.Lock(t, c.RWMutex("x"))
		var readers []<-chan *quorumlock.Lease
		many := testkit.Thorough(150, 40)
		for range many {
			readers = append(readers, testkit.Call(t, t.Context(), c.RWMutex("x").RLock))
		}
		time.Sleep(600 * time.Millisecond)
		before, freed := testkit.Ran(servers), time.Now()
		testkit.Unlock(t, writer)
		for _, r := range readers {
			defer testkit.Unlock(t, <-r)
		}
		testkit.Took(t, freed, 0, 20*time.Millisecond, "the time until all had the lock")
		// One attempt of each reader that was only called, and a renewal of each.
		if n := testkit.Ran(servers) - before; n > 3+2*3*many {
			t.Errorf("to hand the lock to %d readers took %d scripts", many, n)
		}
	})
}

// A dead reader delays a writer by at most the reader's TTL, even if other readers come and go.
func TestADeadReaderDelaysAWriterByItsTTLOnly(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		d, _ := testkit.Another(t, servers)
		const ttl = 5 * time.Second
		// It dies.
		testkit.Lock(t, c.RWMutex("x", quorumlock.WithTTL(ttl), quorumlock.WithoutRenewal()).RLocker())
		living := testkit.Lock(t, d.RWMutex("x").RLocker())
		time.Sleep(ttl / 2)
		began := time.Now()
		writer := testkit.Call(t, t.Context(), d.RWMutex("x").Lock)
		time.Sleep(ttl)
		testkit.Unlock(t, living) // the dead one's share is over by now
		testkit.Unlock(t, <-writer)
		testkit.Took(t, began, 0, ttl+100*time.Millisecond, "the writer waited")

		testkit.Lock(t, c.RWMutex("x", quorumlock.WithTTL(ttl), quorumlock.WithoutRenewal()).RLocker())
		began = time.Now()
		testkit.Unlock(t, testkit.Lock(t, d.RWMutex("x").RLocker()))
		testkit.Unlock(t, testkit.Lock(t, d.RWMutex("x")))
		testkit.Took(t, began, 0, ttl+200*time.Millisecond, "the writer waited")
	})
}

// A writer that leaves the queue, or dies in it, lets the readers behind it in.
func TestReadersBehindAWriterThatGivesUp(t *testing.T) {
	for _, dies := range []bool{false, true} {
		testkit.Run(t, fmt.Sprint("dies ", dies), func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			d, paths := testkit.Another(t, servers)
			first := testkit.Lock(t, c.RWMutex("x").RLocker())
			ctx, cancel := context.WithCancel(t.Context())
			writer := testkit.Call(t, ctx, d.RWMutex("x").Lock)
			reader := testkit.Call(t, t.Context(), c.RWMutex("x").RLock)
			if testkit.Has(reader) {
				t.Fatal("the reader has overtaken the writer")
			}
			began := time.Now()
			if dies {
				testkit.Kill(paths...)
			}
			cancel()
			r := <-reader
			if took, most := time.Since(began), map[bool]time.Duration{false: 20 * time.Millisecond, true: 2600 * time.Millisecond}[dies]; took > most {
				t.Errorf("the reader waited for %v", took)
			}
			<-writer
			testkit.Unlock(t, r)
			testkit.Unlock(t, first)
		})
	}
}

func TestEachReaderHasADeadlineOfItsOwn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		d, paths := testkit.Another(t, servers)
		living := testkit.Lock(t, c.RWMutex("x").RLocker())
		cut := testkit.Lock(t, d.RWMutex("x").RLocker())
		testkit.Kill(paths...)
		testkit.Lost(t, cut, 11*time.Second)
		time.Sleep(time.Second)
		testkit.Held(t, living)
		in, err := c.Inspect(t.Context(), "x")
		if err != nil || len(in.State.Readers) != 1 || in.State.Readers[0].Owner != living.Owner() {
			t.Errorf("%+v, %v: want the living reader alone", in.State.Readers, err)
		}
		testkit.Unlock(t, living)
		testkit.Unlock(t, testkit.TryLock(t, c.RWMutex("x")))
	})
}

// A writer that dies far back in the queue has an entry of up to 100 s. When all readers before it
// have the lock, it must not keep new readers out for so long.
func TestAWriterThatDiedFarBackInTheQueueKeepsReadersOutForSecondsOnly(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		d, paths := testkit.Another(t, servers)
		first := testkit.Lock(t, c.RWMutex("x"))
		var readers []<-chan *quorumlock.Lease
		for range testkit.Thorough(200, 70) {
			got := testkit.Go(func() *quorumlock.Lease { return testkit.MustLock(t, c.RWMutex("x").RLocker()) })
			readers = append(readers, got)
		}
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		_ = testkit.Call(t, ctx, d.RWMutex("x").Lock)
		time.Sleep(time.Second)
		testkit.Kill(paths...) // the writer
		testkit.Unlock(t, first)
		var leases []*quorumlock.Lease
		for _, r := range readers {
			leases = append(leases, <-r)
		}
		began := time.Now()
		late := testkit.Lock(t, c.RWMutex("x").RLocker())
		testkit.Took(t, began, 0, 5*time.Second, "a reader beside readers waited for a dead writer")
		cancel()
		testkit.UnlockAll(t, append(leases, late)...)
	})
}

// A TryLock is no waiting writer: it keeps no reader out while only readers hold. Nor does the
// TryLock of a MultiLock, which has another member meanwhile and tries again.
func TestATryLockKeepsNoReaderOut(t *testing.T) {
	for name, lock := range map[string]func(t *testing.T, c *redlock.Client) quorumlock.Locker{
		"of one lock": func(_ *testing.T, c *redlock.Client) quorumlock.Locker { return c.RWMutex("x") },
		"of a MultiLock": func(t *testing.T, c *redlock.Client) quorumlock.Locker {
			return testkit.Multi(t, c.Mutex("free"), c.RWMutex("x"))
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			d, paths := testkit.Another(t, servers)
			r := testkit.Lock(t, c.RWMutex("x").RLocker())
			writer := lock(t, d)
			_, _ = writer.TryLock(t.Context()) // connects
			testkit.Each(paths, func(s *embedded.Server) { s.Delay(2 * time.Millisecond) })
			var trying sync.WaitGroup
			trying.Go(func() {
				for range 20 {
					testkit.Is(t, testkit.Err(writer.TryLock(t.Context())), quorumlock.ErrHeld, "TryLock")
				}
			})
			for range 200 {
				time.Sleep(time.Millisecond)
				s, err := c.RWMutex("x").TryRLock(t.Context())
				if err != nil {
					t.Errorf("TryRLock beside a reader and a TryLock: %v", err)
					break
				}
				testkit.Unlock(t, s)
			}
			trying.Wait()
			testkit.Unlock(t, r)
		})
	}
}

func TestReentryOfReadersAndWriters(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		m := c.RWMutex("x")

		w := testkit.Lock(t, m)
		inner := testkit.LockIn(t, w.Context(), m.RLocker())
		testkit.Equal(t, inner.Owner(), w.Owner(), "the owner of a reader within the writer's lease")
		testkit.Unlock(t, w)
		testkit.Refused(t, d.RWMutex("x").RLocker()) // the inner lease still holds for the writer
		testkit.Unlock(t, inner)

		r := testkit.Lock(t, m.RLocker())
		waiting := testkit.Call(t, t.Context(), d.RWMutex("x").Lock)
		inner = testkit.LockIn(t, r.Context(), m.RLocker()) // though a writer waits
		for name, lock := range map[string]func(context.Context) (*quorumlock.Lease, error){"Lock": m.Lock, "TryLock": m.TryLock, "a Mutex": c.Mutex("x").Lock} {
			began := time.Now()
			if _, err := lock(r.Context()); !errors.Is(err, quorumlock.ErrUpgrade) || time.Since(began) > 0 {
				t.Errorf("%s by a reader: %v after %v, want ErrUpgrade at once", name, err, time.Since(began))
			}
		}
		testkit.Unlock(t, r)
		testkit.Unlock(t, inner)
		testkit.Unlock(t, <-waiting)

		me := quorumlock.WithOwner("me:1")
		owned := c.RWMutex("x", me)
		both, err := multilock.New([]quorumlock.Locker{c.RWMutex("x"), c.RWMutex("b")}, me)
		testkit.Must(t, err, "New")
		r = testkit.Lock(t, owned.RLocker())
		for _, l := range []quorumlock.Locker{owned, both} {
			err := testkit.Err(l.Lock(testkit.Within(t, time.Minute)))
			testkit.Is(t, err, quorumlock.ErrUpgrade, "Lock of %q by an owner that reads", l.Name())
		}
		again := testkit.Lock(t, owned.RLocker())
		testkit.Equal(t, again.Owner(), r.Owner(), "the owner of a reader that enters by name")
		testkit.Unlock(t, again)
		testkit.Unlock(t, r)
		w = testkit.Lock(t, owned)
		again = testkit.Lock(t, owned.RLocker())
		testkit.Equal(t, again.Owner(), w.Owner(), "the owner of a reader that enters a writer's hold by name")
		testkit.Unlock(t, again)
		testkit.Unlock(t, w)

		// Two calls of one owner wait, one to read and one to write. The reader is served first.
		other := testkit.Lock(t, d.RWMutex("x"))
		reader := testkit.Call(t, t.Context(), owned.RLock)
		got := testkit.Go(func() error { return testkit.Err(owned.Lock(testkit.Within(t, time.Minute))) })
		time.Sleep(10 * time.Millisecond)
		testkit.Unlock(t, other)
		r = <-reader
		testkit.Is(t, <-got, quorumlock.ErrUpgrade, "Lock behind a reader of the owner")
		testkit.Unlock(t, r)
	})
}

func TestDowngradeLeavesNoGap(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		m := c.RWMutex("x")
		w := testkit.Lock(t, m)
		reader := testkit.Call(t, t.Context(), d.RWMutex("x").RLock)
		other := testkit.Call(t, t.Context(), d.RWMutex("x").Lock)
		token, owner := w.Token(), w.Owner()
		testkit.Must(t, m.Downgrade(t.Context(), w), "Downgrade")
		r := <-reader
		testkit.Equal(t, testkit.Has(other), false, "a writer has the lock beside readers")
		if w.Token() != token || w.Owner() != owner || r.Token() != token {
			t.Errorf("tokens %d and %d, owner %s: want %d and %s", w.Token(), r.Token(), w.Owner(), token, owner)
		}
		testkit.Is(t, testkit.Err(m.Lock(w.Context())), quorumlock.ErrUpgrade, "Lock within what was downgraded")
		testkit.Unlock(t, testkit.LockIn(t, w.Context(), m.RLocker()))
		time.Sleep(35 * time.Second) // it is renewed
		testkit.Held(t, w)
		testkit.Held(t, r)
		testkit.Equal(t, testkit.Has(other), false, "a writer has the lock beside readers that are renewed")
		testkit.Unlock(t, w)
		testkit.Held(t, r)
		testkit.Equal(t, testkit.Has(other), false, "a writer has the lock beside a reader")
		testkit.Unlock(t, r)
		testkit.Unlock(t, <-other)
	})
}

func TestDowngradeOfWhatIsNoWritersLease(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		m := c.RWMutex("x")
		refused := func(what string, lease *quorumlock.Lease, want string) {
			t.Helper()
			if err := m.Downgrade(t.Context(), lease); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Downgrade of %s: %v, want %q", what, err, want)
			}
		}
		refused("nothing", nil, "the lease is nil")
		r := testkit.Lock(t, m.RLocker())
		refused("a reader's", r, "is a reader's")
		testkit.Unlock(t, r)
		y := testkit.Lock(t, c.RWMutex("y"))
		refused("another lock's", y, `of the lock "y"`)
		testkit.Unlock(t, y)
		other, _ := testkit.Another(t, servers)
		theirs := testkit.Lock(t, other.RWMutex("x"))
		refused("another client's", theirs, "of another client")
		testkit.Unlock(t, theirs)
		w := testkit.Lock(t, m)
		var none context.Context
		testkit.Is(t, m.Downgrade(none, w), quorumlock.ErrNilContext, "with a nil context")
		inner := testkit.LockIn(t, w.Context(), m)
		refused("one of two", w, "2 leases")
		testkit.Unlock(t, inner)
		testkit.Refused(t, c.RWMutex("x").RLocker())
		testkit.Unlock(t, w)
		testkit.Is(t, m.Downgrade(t.Context(), w), quorumlock.ErrNotHeld, "Downgrade of an unlocked lease")
		w = testkit.Lock(t, m)
		testkit.Kill(servers...)
		testkit.Lost(t, w, 15*time.Second)
		testkit.Is(t, m.Downgrade(t.Context(), w), quorumlock.ErrLost, "Downgrade of a lost lease")
	})
}

// The acquire of a writer reaches a node after the Downgrade, and is granted. The node must not be
// taken for a second address of another one: it gets the downgrade, and gets its share back when it
// forgets.
func TestANodeThatGrantsAfterTheDowngrade(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		m := c.RWMutex("x")
		testkit.Unlock(t, testkit.Lock(t, m)) // connects
		var late atomic.Bool
		late.Store(true)
		servers[2].Before(func(r embedded.Run) {
			if r.Script == "acquire" && late.CompareAndSwap(true, false) {
				time.Sleep(20 * time.Millisecond)
			}
		})
		w := testkit.MustLock(t, m)
		testkit.Must(t, m.Downgrade(t.Context(), w), "Downgrade")
		time.Sleep(100 * time.Millisecond)
		testkit.Equal(t, servers[2].Redis.HGet("x", "mode"), "shared", "the mode at the node")
		time.Sleep(5 * time.Second)
		servers[2].Redis.FlushAll()
		time.Sleep(5 * time.Second)
		testkit.HoldsAll(t, servers, w)
		testkit.Unlock(t, w)
	})
}
