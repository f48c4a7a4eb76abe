//go:build unix

package multilock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest/dbserver"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

// BenchmarkContended has callers of eight clients take a MultiLock, or one of its members, on Redis
// servers. An operation is a grant.
func BenchmarkContended(b *testing.B) {
	var urls []string
	for range 5 {
		s, err := dbserver.Redis()
		if err != nil {
			b.Skip(err)
		}
		defer s.Close() //nolint:errcheck // ends the server
		urls = append(urls, "redis://"+s.Addr)
	}
	var clients []*redlock.Client
	for range 8 {
		c, err := redlock.Dial(urls)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // of no interest here
		clients = append(clients, c)
	}
	type lockers = []quorumlock.Locker
	kinds := map[string]func(*redlock.Client) lockers{
		"one mutex":            func(c *redlock.Client) lockers { return lockers{c.Mutex("b")} },
		"two mutexes":          func(c *redlock.Client) lockers { return lockers{c.Mutex("a"), c.Mutex("b")} },
		"a reader and a mutex": func(c *redlock.Client) lockers { return lockers{c.RWMutex("a").RLocker(), c.Mutex("b")} },
		"a mutex and a slot":   func(c *redlock.Client) lockers { return lockers{c.Semaphore("s", 2), c.Mutex("b")} },
		"a mutex, a slot, a reader": func(c *redlock.Client) lockers {
			return lockers{c.Mutex("b"), c.Semaphore("s", 2), c.RWMutex("a").RLocker()}
		},
	}
	for _, crowd := range []struct {
		what    string
		callers int
		gives   time.Duration
	}{{"4 callers", 4, 0}, {"40 callers", 40, 0}, {"24 callers who give up", 24, 50 * time.Millisecond}} {
		for what, kind := range kinds {
			b.Run(what+", "+crowd.what, func(b *testing.B) {
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				for i := range crowd.callers {
					l, err := multilock.New(kind(clients[i%len(clients)]))
					if err != nil {
						b.Fatal(err)
					}
					all.Go(func() {
						for left.Load() > 0 {
							ctx, stop := context.WithTimeout(b.Context(), time.Minute)
							if crowd.gives > 0 {
								stop()
								ctx, stop = context.WithTimeout(b.Context(), rand.N(crowd.gives))
							}
							if lease, err := l.Lock(ctx); err == nil {
								left.Add(-1)
								lease.Unlock(context.WithoutCancel(ctx)) //nolint:errcheck // a lost lease is no grant less
							}
							stop()
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
			})
		}
	}
}
