package main

import (
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
}

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
	ctx, cancel := context.WithTimeout(ctx, warm+l.duration+10*time.Second)
	defer cancel()
	from := time.Now().Add(warm)
	to := from.Add(l.duration)
	samples := make([]sample, l.callers)
	errs := make([]error, l.callers)
	var running sync.WaitGroup
	for i := range l.callers {
		running.Go(func() { samples[i], errs[i] = call(ctx, c, fmt.Sprintf("free:%d", i), from, to) })
	}
	running.Wait()
	var all sample
	for _, s := range samples {
		all = append(all, s...)
	}
	err = errors.Join(errors.Join(errs...), c.close())
	if err != nil {
		err = fmt.Errorf("%s, %d callers: %w", v.name, l.callers, err)
	}
	return rate{float64(len(all)) / l.duration.Seconds(), all.quantile(0.5), all.quantile(0.99)}, err
}

// call locks and unlocks one name until a time, and returns what each pair took that began in time.
func call(ctx context.Context, c client, name string, from, to time.Time) (sample, error) {
	var s sample
	for range maxGrants {
		start := time.Now()
		if !start.Before(to) {
			return s, nil
		}
		took, err := lockUnlock(ctx, c, name)
		if err != nil {
			return s, err
		}
		if !start.Before(from) {
			s = append(s, took)
		}
	}
	return s, fmt.Errorf("more than %d calls: use a shorter duration", maxGrants)
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
