package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// load is so many callers of one client, each of whom locks and unlocks a name of its own.
type load struct {
	callers  int
	duration time.Duration
}

// rate is what a load came to.
type rate struct {
	perSecond float64 // lock and unlock pairs, all callers together
	p50, p99  time.Duration
	failed    int   // pairs that were not locked or not unlocked in order
	failure   error // the first such
}

// unlocking is how long after the end a caller may wait for a name whose unlock failed: longer than any
// TTL.
const unlocking = 15 * time.Second

// uncontendedVariants are the locks that are compared when nobody waits.
func uncontendedVariants() []variant {
	return []variant{
		{name: "quorumlock", open: openQuorumlock},
		{name: "redsync", open: openRedsync},
		{name: "plain EVALSHA", open: openPlain},
		{name: "rueidislock", open: openRueidislock},
	}
}

// run loads one client of a variant.
func (l load) run(ctx context.Context, srv *servers, v variant) (rate, error) {
	if err := srv.clear(ctx); err != nil {
		return rate{}, err
	}
	c, err := v.open(srv.addrs())
	if err != nil {
		return rate{}, err
	}
	warm := min(l.duration/4, 500*time.Millisecond)
	bounded, cancel := context.WithTimeout(ctx, warm+l.duration+unlocking)
	defer cancel()
	from := time.Now().Add(warm)
	to := from.Add(l.duration)
	callers := make([]caller, l.callers)
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() { callers[i].run(bounded, c, fmt.Sprintf("free:%d", i), from, to) })
	}
	running.Wait()
	var r rate
	var all sample
	for _, one := range callers {
		all = append(all, one.took...)
		r.failed += one.failed
		r.failure = cmp.Or(r.failure, one.failure)
	}
	r.perSecond, r.p50, r.p99 = float64(len(all))/l.duration.Seconds(), all.quantile(0.5), all.quantile(0.99)
	err = errors.Join(ctx.Err(), c.close())
	if err != nil {
		err = fmt.Errorf("%s, %d callers: %w", v.name, l.callers, err)
	}
	return r, err
}

// caller is what one of them has seen.
type caller struct {
	took    sample
	failed  int
	failure error
}

// run locks and unlocks one name until a time, and measures the pairs that begin in time.
func (c *caller) run(ctx context.Context, cl client, name string, from, to time.Time) {
	for range maxGrants {
		start := time.Now()
		if !start.Before(to) || ctx.Err() != nil {
			return
		}
		took, err := lockUnlock(ctx, cl, name)
		switch {
		case err != nil:
			c.failed++
			c.failure = cmp.Or(c.failure, err)
		case !start.Before(from):
			c.took = append(c.took, took)
		}
	}
}

// lockUnlock returns how long it takes to lock and unlock.
func lockUnlock(ctx context.Context, c client, name string) (time.Duration, error) {
	start := time.Now()
	unlock, err := c.lock(ctx, name)
	if err != nil {
		return 0, err
	}
	if err := unlock(ctx); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}
