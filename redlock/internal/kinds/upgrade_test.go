package kinds

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/multilock"
)

func TestReentryOfReadersAndWriters(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		m := c.RWMutex("x")

		w := locktest.Lock(t, m)
		inner := locktest.LockIn(t, w.Context(), m.RLocker())
		if inner.Owner() != w.Owner() {
			t.Error("a reader within the writer's lease has a hold of its own")
		}
		locktest.Unlock(t, w)
		locktest.Refused(t, d.RWMutex("x").RLocker()) // the inner lease still holds for the writer
		locktest.Unlock(t, inner)

		r := locktest.Lock(t, m.RLocker())
		waiting := locktest.Call(t, t.Context(), d.RWMutex("x").Lock)
		inner = locktest.LockIn(t, r.Context(), m.RLocker()) // though a writer waits
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
		r = locktest.Lock(t, owned.RLocker())
		if _, err := owned.Lock(t.Context()); !errors.Is(err, quorumlock.ErrUpgrade) {
			t.Errorf("Lock of an owner that reads: %v, want ErrUpgrade", err)
		}
		again := locktest.Lock(t, owned.RLocker())
		if again.Owner() != r.Owner() {
			t.Error("a named owner has two holds")
		}
		locktest.Unlock(t, again)
		locktest.Unlock(t, r)
		w = locktest.Lock(t, owned)
		again = locktest.Lock(t, owned.RLocker())
		if again.Owner() != w.Owner() {
			t.Error("a named owner that writes does not read within its hold")
		}
		locktest.Unlock(t, again)
		locktest.Unlock(t, w)
		locktest.Nothing(t, servers)
	})
}

func TestDowngradeLeavesNoGap(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		m := c.RWMutex("x")
		w := locktest.Lock(t, m)
		reader := locktest.Call(t, t.Context(), d.RWMutex("x").RLock)
		other := locktest.Call(t, t.Context(), d.RWMutex("x").Lock)
		token, owner := w.Token(), w.Owner()
		if err := m.Downgrade(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		r := <-reader
		if locktest.Has(other) {
			t.Fatal("a writer has the lock beside readers")
		}
		if w.Token() != token || w.Owner() != owner || r.Token() != token {
			t.Errorf("tokens %d and %d, owner %s: want %d and %s", w.Token(), r.Token(), w.Owner(), token, owner)
		}
		if _, err := m.Lock(w.Context()); !errors.Is(err, quorumlock.ErrUpgrade) {
			t.Errorf("Lock within what was downgraded: %v, want ErrUpgrade", err)
		}
		locktest.Unlock(t, locktest.LockIn(t, w.Context(), m.RLocker()))
		time.Sleep(35 * time.Second) // it is renewed
		locktest.Held(t, w)
		locktest.Held(t, r)
		if locktest.Has(other) {
			t.Fatal("a writer has the lock beside readers that are renewed")
		}
		locktest.Unlock(t, w)
		locktest.Held(t, r)
		if locktest.Has(other) {
			t.Fatal("a writer has the lock beside a reader")
		}
		locktest.Unlock(t, r)
		locktest.Unlock(t, <-other)
		locktest.Nothing(t, servers)
	})
}

func TestDowngradeOfWhatIsNoWritersLease(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		m := c.RWMutex("x")
		refused := func(what string, lease *quorumlock.Lease, want string) {
			t.Helper()
			if err := m.Downgrade(t.Context(), lease); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Downgrade of %s: %v, want %q", what, err, want)
			}
		}
		refused("nothing", nil, "the lease is nil")
		r := locktest.Lock(t, m.RLocker())
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
		inner := locktest.LockIn(t, w.Context(), m)
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

// A Lock that enters a writer's hold asks the nodes first if little of the lease is left. If the
// hold is downgraded meanwhile, it must not return a writer's lease.
func TestAWriterThatEntersWhileTheHoldIsDowngraded(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		m := c.RWMutex("x", quorumlock.WithoutRenewal())
		w := locktest.Lock(t, m)
		time.Sleep(6 * time.Second)
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(5 * time.Millisecond) })
		type entered struct {
			lease *quorumlock.Lease
			err   error
		}
		got := make(chan entered, 1)
		go func() {
			lease, err := m.Lock(w.Context())
			got <- entered{lease, err}
		}()
		time.Sleep(time.Millisecond)
		if err := m.Downgrade(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		reader := locktest.TryLock(t, d.RWMutex("x").RLocker())
		e := <-got
		if e.lease != nil {
			t.Error("Lock has returned a writer's lease beside a reader")
			locktest.Unlock(t, e.lease)
		} else if !errors.Is(e.err, quorumlock.ErrUpgrade) {
			t.Errorf("Lock: %v, want ErrUpgrade", e.err)
		}
		locktest.Unlock(t, w)
		locktest.Unlock(t, reader)
		locktest.Nothing(t, servers)
	})
}

// The acquire of a writer reaches a node after the Downgrade, and is granted. The node must not be
// taken for a second address of another one: it gets the downgrade, and gets its share back when it
// forgets.
func TestANodeThatGrantsAfterTheDowngrade(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		m := c.RWMutex("x")
		locktest.Unlock(t, locktest.Lock(t, m)) // connects
		var late atomic.Bool
		late.Store(true)
		servers[2].Before(func(r embedded.Run) {
			if r.Script == "acquire" && late.CompareAndSwap(true, false) {
				time.Sleep(20 * time.Millisecond)
			}
		})
		w := locktest.MustLock(t, m)
		if err := m.Downgrade(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if mode := servers[2].Redis.HGet("x", "mode"); mode != "shared" {
			t.Errorf("the node's mode is %q", mode)
		}
		time.Sleep(5 * time.Second)
		servers[2].Redis.FlushAll()
		time.Sleep(5 * time.Second)
		locktest.HoldsAll(t, servers, w)
		locktest.Unlock(t, w)
	})
}

// A reader of a named owner cannot write the same lock in a MultiLock: it would wait for itself.
func TestUpgradeOfANamedOwnerByAMultiLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		me := quorumlock.WithOwner("me:1")
		r := locktest.Lock(t, c.RWMutex("a", me).RLocker())
		both, err := multilock.New([]quorumlock.Locker{c.RWMutex("a"), c.RWMutex("b")}, me)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := both.Lock(ctx); !errors.Is(err, quorumlock.ErrUpgrade) {
			t.Errorf("Lock: %v, want ErrUpgrade", err)
		}
		locktest.Unlock(t, r)
		locktest.Nothing(t, servers)
	})
}

// Two calls of one named owner wait, one to read and one to write. The reader is served first.
func TestUpgradeOfANamedOwnerThatWaits(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		m := c.RWMutex("a", quorumlock.WithOwner("me:1"))
		other := locktest.Lock(t, d.RWMutex("a"))
		reader := locktest.Call(t, t.Context(), m.RLock)
		got := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			_, err := m.Lock(ctx)
			got <- err
		}()
		time.Sleep(10 * time.Millisecond)
		locktest.Unlock(t, other)
		r := <-reader
		if err := <-got; !errors.Is(err, quorumlock.ErrUpgrade) {
			t.Errorf("Lock: %v, want ErrUpgrade", err)
		}
		locktest.Unlock(t, r)
		locktest.Nothing(t, servers)
	})
}
