package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// unwinding is how long after the end a caller may wait for its last lock: longer than any TTL.
const unwinding = 30 * time.Second

// load lets many callers lock and unlock at once, and measures the pairs that begin in time.
func (j job) load(ctx context.Context, d design) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+j.Warm+j.Time+unwinding)
	defer cancel()
	clients := make([]client, max(j.Clients, 1))
	for i := range clients {
		c, err := d.open(j.Addrs, (j.Callers+len(clients)-1)/len(clients))
		if err != nil {
			return answer{}, errors.Join(err, closeAll(clients[:i]))
		}
		clients[i] = c
	}
	if err := connect(ctx, clients); err != nil {
		return answer{}, errors.Join(err, closeAll(clients))
	}
	if j.Leases > 0 {
		return j.besideLeases(ctx, clients) // which goes without closing
	}
	a, err := j.run(ctx, clients)
	return a, errors.Join(err, closeAll(clients))
}

func (j job) run(ctx context.Context, clients []client) (answer, error) {
	var pairsDone atomic.Int64
	from := time.Now().Add(j.Warm)
	to := from.Add(j.Time)
	callers := make([]caller, j.Callers)
	var running sync.WaitGroup
	for i := range callers {
		c := &callers[i]
		c.names, c.own, c.fresh, c.done = j.Names, i, j.Fresh, &pairsDone
		if j.Rate == 0 {
			running.Go(func() { c.run(ctx, clients[i%len(clients)], from, to) })
		}
	}
	if j.Rate > 0 {
		running.Go(func() { j.arrive(ctx, clients, callers, from, to) })
	}
	spent, err := j.meter(ctx, from, to, &pairsDone)
	running.Wait()

	var all sample
	var a answer
	failures := 0
	for _, c := range callers {
		all = append(all, c.took...)
		failures += c.failed
		if c.failure != nil {
			a.Failure = cmp.Or(a.Failure, c.failure.Error())
		}
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no pair was done; %d failed: %s", failures, a.Failure)
	}
	a.Figures = spent
	if err == nil {
		a.Figures[p50], a.Figures[p99] = millis(all.quantile(0.5)), millis(all.quantile(0.99))
		a.Figures[failed] = float64(failures)
	}
	return a, errors.Join(err, ctx.Err())
}

// arrive begins pairs at random times, like many independent callers (a Poisson process). Callers
// in a closed loop fall into step, which hides how long a call waits for the one before it. The
// i-th pair is the next of the i-th caller, modulo the callers, of which there must be enough.
func (j job) arrive(ctx context.Context, clients []client, callers []caller, from, to time.Time) {
	turns := make([]sync.Mutex, len(callers))
	var running sync.WaitGroup
	defer running.Wait()
	for i, next := 0, time.Now(); next.Before(to); i++ {
		if pause(ctx, time.Until(next)) != nil {
			return
		}
		at, start := i%len(callers), next
		running.Go(func() {
			turns[at].Lock()
			defer turns[at].Unlock()
			callers[at].once(ctx, clients[at%len(clients)], start, from)
		})
		next = next.Add(time.Duration(rand.ExpFloat64() / j.Rate * float64(time.Second)))
		if start.Before(from) && next.After(from) {
			next = from // the arrival process has no memory
		}
	}
}

// meter returns the cost of a pair from one time to the other.
func (j job) meter(ctx context.Context, from, to time.Time, done *atomic.Int64) (spent figures, err error) {
	if err := pause(ctx, time.Until(from)); err != nil {
		return nil, err
	}
	thawAgain, err := j.freeze()
	defer func() { err = errors.Join(err, thawAgain()) }()
	if err != nil {
		return nil, err
	}
	start, before := time.Now(), done.Load()
	used := usageNow(j.Servers)
	if err := pause(ctx, time.Until(to)); err != nil {
		return nil, err
	}
	used = usageNow(j.Servers).since(used)
	n := float64(done.Load() - before)
	spent = used.each(max(n, 1))
	spent[pairs] = n / time.Since(start).Seconds()
	return spent, nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// caller locks and unlocks, and records the results.
type caller struct {
	own, names int
	fresh      bool
	used       int // fresh names
	done       *atomic.Int64

	took    sample
	failed  int
	failure error
}

func (c *caller) name() string {
	if c.fresh {
		c.used++
		return fmt.Sprintf("fresh:%d:%d", c.own, c.used)
	}
	if c.names > 0 {
		return fmt.Sprintf("shared:%d", rand.IntN(c.names))
	}
	return fmt.Sprintf("free:%d", c.own)
}

func (c *caller) run(ctx context.Context, cl client, from, to time.Time) {
	for {
		start := time.Now()
		if !start.Before(to) || ctx.Err() != nil {
			return
		}
		// A lock that fails at once must not count as work.
		if !c.once(ctx, cl, start, from) && pause(ctx, time.Millisecond) != nil {
			return
		}
	}
}

// once does a pair that begins at start, and reports whether it did well.
func (c *caller) once(ctx context.Context, cl client, start, from time.Time) bool {
	if _, err := lockUnlock(ctx, cl, c.name()); err != nil {
		c.failed++
		c.failure = cmp.Or(c.failure, err)
		return false
	}
	c.done.Add(1)
	if !start.Before(from) {
		c.took = append(c.took, time.Since(start))
	}
	return true
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
