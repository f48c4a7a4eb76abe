package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

// goroutines is what many leases of one client cost while they are held and renewed.
type goroutines struct {
	before       int // with no client
	median, most int // over more than one TTL
	lost         int // leases that were not kept
}

// measureGoroutines holds so many leases of one client for a little more than one TTL.
func measureGoroutines(ctx context.Context, srv *servers, leases int) (goroutines, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := srv.clear(ctx); err != nil {
		return goroutines{}, err
	}
	g := goroutines{before: runtime.NumGoroutine()}
	nodes, err := dialNodes(srv.addrs())
	if err != nil {
		return g, err
	}
	c, err := redlock.New(nodes)
	if err != nil {
		return g, err
	}
	held, err := lockMany(ctx, c, leases)
	if err != nil {
		return g, errors.Join(err, c.Close())
	}

	var counts []int
	for from := time.Now(); time.Since(from) < quorumlock.DefaultTTL*6/5; {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return g, errors.Join(err, c.Close())
		}
		counts = append(counts, runtime.NumGoroutine())
	}
	slices.Sort(counts)
	g.median, g.most = counts[len(counts)/2], counts[len(counts)-1]
	for _, l := range held {
		if l.Context().Err() != nil {
			g.lost++
		}
	}
	if err := srv.clear(ctx); err != nil { // sooner than to unlock them all
		return g, errors.Join(err, c.Close())
	}
	return g, c.Close()
}

// lockMany takes names of which nobody has heard, some at a time.
func lockMany(ctx context.Context, c *redlock.Client, n int) ([]*quorumlock.Lease, error) {
	const callers = 16
	held := make([]*quorumlock.Lease, n)
	errs := make([]error, callers)
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			for i := caller; i < n && errs[caller] == nil; i += callers {
				held[i], errs[caller] = c.Mutex(fmt.Sprintf("lease:%d", i)).Lock(ctx)
			}
		})
	}
	running.Wait()
	return held, cmp.Or(errs...) // one says it all
}
