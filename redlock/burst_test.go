//go:build unix

package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit/dbserver"
	"github.com/quorumlock/quorumlock/redlock"
)

// BenchmarkBurst lets callers of eight clients ask for as many free slots of a semaphore at once,
// on Redis servers.
func BenchmarkBurst(b *testing.B) {
	var urls []string
	for range 5 {
		s, err := dbserver.Redis()
		if err != nil {
			b.Skip(err)
		}
		defer s.Close() //nolint:errcheck // ends the server
		urls = append(urls, "redis://"+s.Addr)
	}
	for _, permits := range []int{8, 32, 1000} {
		b.Run(fmt.Sprint(permits, " slots"), func(b *testing.B) {
			var clients []*redlock.Client
			for range 8 {
				c, err := redlock.Dial(urls)
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				for quorumlock.Do(b.Context(), c.Mutex("connected"), func(context.Context) error { return nil }) != nil {
				}
				clients = append(clients, c)
			}
			var last time.Duration
			var lost atomic.Int64
			for n := 0; b.Loop(); n++ {
				var all sync.WaitGroup
				leases := make([]*quorumlock.Lease, permits)
				began := time.Now()
				for i := range leases {
					all.Go(func() {
						lease, err := clients[i%len(clients)].Semaphore(fmt.Sprint("burst:", n), permits).Lock(b.Context())
						if err != nil {
							b.Error(err)
							return
						}
						leases[i] = lease
					})
				}
				all.Wait()
				last += time.Since(began)
				for _, l := range leases {
					all.Go(func() {
						if l == nil || l.Unlock(context.WithoutCancel(b.Context())) != nil {
							lost.Add(1)
						}
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(last.Milliseconds())/float64(b.N), "ms-to-the-last")
			b.ReportMetric(float64(lost.Load())/float64(b.N), "lost")
		})
	}
}
