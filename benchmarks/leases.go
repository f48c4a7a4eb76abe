package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
)

// besideLeases runs the load while the first client holds leases and renews them. It leaves the
// client open: a release of all leases would take seconds, the process ends, and the servers are
// emptied.
func (j job) besideLeases(ctx context.Context, clients []client) (answer, error) {
	leases, err := holdLeases(ctx, clients[0], j.Leases)
	if err != nil {
		return answer{}, err
	}
	idle := quietGoroutines(ctx)
	a, err := j.run(ctx, clients)
	if err != nil {
		return a, err
	}
	a.Figures[goroutines], a.Figures[lost] = float64(idle), float64(lostOf(leases))
	return a, nil
}

// quietGoroutines returns the usual number of goroutines while no call is under way.
func quietGoroutines(ctx context.Context) int {
	var counts []float64
	for range 50 {
		if pause(ctx, 5*time.Millisecond) != nil {
			break
		}
		counts = append(counts, float64(runtime.NumGoroutine()))
	}
	return int(median(counts))
}

// holdLeases takes so many names for the client, some at a time. Only quorumlock's client can.
func holdLeases(ctx context.Context, c client, n int) ([]*quorumlock.Lease, error) {
	q, ok := c.(*quorumlockClient)
	if !ok {
		return nil, fmt.Errorf("%T has no leases that are renewed", c)
	}
	const together = 16
	leases := make([]*quorumlock.Lease, n)
	errs := make([]error, together)
	var running sync.WaitGroup
	for first := range together {
		running.Go(func() {
			for i := first; i < n && errs[first] == nil; i += together {
				leases[i], errs[first] = q.locks.Mutex(fmt.Sprintf("lease:%d", i)).Lock(ctx)
			}
		})
	}
	running.Wait()
	return leases, cmp.Or(errs...) // one is enough
}

func lostOf(leases []*quorumlock.Lease) (n int) {
	for _, l := range leases {
		if l.Context().Err() != nil {
			n++
		}
	}
	return n
}
