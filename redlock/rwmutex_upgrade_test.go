package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/multilock"
)

// A reader of a named owner whose MultiLock needs to write the same lock waits for itself, and is told nothing.
func TestUpgradeOfANamedOwnerByAMultiLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		m := c.RWMutex("a", quorumlock.WithOwner("me:1"))
		other := locktest.Lock(t, d.RWMutex("a"))
		reader := come(t, t.Context(), m.RLock)
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
