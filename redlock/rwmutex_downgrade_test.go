package redlock_test

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
	"github.com/quorumlock/quorumlock/redlock"
)

// A Lock that enters a writer's hold asks the nodes first if little of the lease is left. If the hold is downgraded meanwhile,
// it must not return a writer's lease.
func TestAWriterThatEntersWhileTheHoldIsDowngraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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

// A TryLock waits for nobody, so it is no waiting writer: it must not keep a reader out while only readers hold. Nor must that of a
// MultiLock, which has another member meanwhile and tries again.
func TestATryLockKeepsNoReaderOut(t *testing.T) {
	for name, tt := range map[string]struct {
		lock  func(c *redlock.Client) quorumlock.Locker
		delay time.Duration
		tries int
	}{
		"of one lock":    {func(c *redlock.Client) quorumlock.Locker { return c.RWMutex("x") }, 20 * time.Millisecond, 1},
		"of a MultiLock": {freeAnd, 2 * time.Millisecond, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				d, paths := locktest.Another(t, servers)
				r := rlock(t, c.RWMutex("x"))
				writer := tt.lock(d)
				_, _ = writer.TryLock(t.Context()) // connects
				locktest.Each(paths, func(s *embedded.Server) { s.Delay(tt.delay) })
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					for range tt.tries {
						if _, err := writer.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
							t.Error(err)
						}
					}
				}()
				for range 200 {
					time.Sleep(time.Millisecond)
					s, err := c.RWMutex("x").TryRLock(t.Context())
					if err != nil {
						t.Errorf("TryRLock beside a reader and a TryLock: %v", err)
						break
					}
					locktest.Unlock(t, s)
				}
				<-gone
				locktest.Unlock(t, r)
			})
		})
	}
}

// freeAnd is a MultiLock of a free lock and the writer of x.
func freeAnd(c *redlock.Client) quorumlock.Locker {
	both, err := multilock.New([]quorumlock.Locker{c.Mutex("free"), c.RWMutex("x")})
	if err != nil {
		panic(err)
	}
	return both
}

// A writer that dies far back in the queue has an entry of up to 100 s. When all readers before it have the lock, it must not
// keep new readers out for so long.
func TestAWriterThatDiedFarBackInTheQueueKeepsReadersOutForSecondsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		_ = come(t, ctx, d.RWMutex("x").Lock)
		time.Sleep(time.Second)
		kill(paths...) // the writer
		locktest.Unlock(t, first)
		var leases []*quorumlock.Lease
		for _, r := range readers {
			leases = append(leases, <-r)
		}
		began := time.Now()
		late := rlock(t, c.RWMutex("x"))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a reader beside readers waited %v for a dead writer", took)
		}
		cancel()
		for _, l := range append(leases, late) {
			locktest.Unlock(t, l)
		}
	})
}
