package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/proof/redisson"
)

// How a client of Redisson's locks.
const (
	byLock = "RLock"
	byPoll = "tryLock each ms"
	bySpin = "RSpinLock"
	byFair = "RFairLock"
)

// mixed compares fleets of Java and Go with fleets of Java alone on one lock. The Java half is
// package redisson.
func mixed(_ context.Context, p plan, f *fleet) ([]*contest, error) {
	// The promises are about the order of grants, not about disks.
	if f.store != inMemory {
		return nil, nil
	}
	var all []*contest
	scene := func(servers int, hold time.Duration) *contest {
		name := fmt.Sprintf("%v held, %s", hold, label(servers, "node", "nodes"))
		c := &contest{scene: name, columns: []metric{goShare, grants, javaWorst, goWorst}}
		all = append(all, c)
		return c
	}
	add := func(c *contest, name, by string, java, golang, servers int, hold time.Duration) {
		j := job{Kind: mixedJob, Design: ours, Addrs: f.redis.addrs[:servers], Callers: golang, Java: java, By: by, Hold: hold, Warm: p.time, Time: 8 * p.time}
		c.entries = append(c.entries, entry{name: name, job: j})
	}
	share := func(c *contest, name string, least, most float64) {
		c.promises = append(c.promises, atLeast(least, name, goShare), atMost(most, name, goShare))
	}
	for _, hold := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		c := scene(1, hold)
		for _, n := range []int{1, 6} {
			alone, both := fmt.Sprintf("%d Java", 2*n), fmt.Sprintf("%d Java + %d Go", n, n)
			add(c, alone, byLock, 2*n, 0, 1, hold)
			add(c, both, byLock, n, n, 1, hold)
			share(c, both, 35, 65)
			if n > 1 {
				c.promises = append(c.promises, atMost(1.5, both, javaWorst).times(alone))
			}
		}
	}
	hold := time.Millisecond
	c := scene(1, hold)
	c.scene += ", other ways to lock"
	for _, by := range []string{byPoll, bySpin, byFair} {
		name := by + " + 6 Go"
		add(c, name, by, 1, 6, 1, hold)
		share(c, name, 0, map[string]float64{byPoll: 95, bySpin: 99.9, byFair: 99}[by])
	}
	c = scene(3, hold)
	for _, n := range []int{1, 6} {
		name := fmt.Sprintf("%d Java + %d Go", n, n)
		add(c, name, byLock, n, n, 3, hold)
		share(c, name, 35, 65)
	}
	return all, nil
}

// javaClient is one JVM, with a client at each server.
type javaClient struct {
	by      string
	pools   []*redis.Client
	clients []*redisson.Client
}

func openJava(addrs []string, by string) *javaClient {
	c := &javaClient{by: by}
	for _, a := range addrs {
		pool := redis.NewClient(&redis.Options{Addr: a, MaxRetries: -1})
		c.pools, c.clients = append(c.pools, pool), append(c.clients, redisson.New(pool))
	}
	return c
}

func (c *javaClient) close() error {
	var errs []error
	for i := range c.pools {
		c.clients[i].Close()
		errs = append(errs, c.pools[i].Close())
	}
	return errors.Join(errs...)
}

func (c *javaClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	if len(c.clients) > 1 {
		members := make([]*redisson.Lock, len(c.clients))
		for i, m := range c.clients {
			members[i] = m.Lock(name)
		}
		l := redisson.NewRedLock(members...)
		return func(ctx context.Context) error { l.Unlock(ctx); return nil }, l.Lock(ctx)
	}
	l := c.clients[0].Lock(name)
	switch c.by {
	case bySpin:
		l = c.clients[0].SpinLock(name)
	case byFair:
		l = c.clients[0].FairLock(name)
	case byPoll:
		for {
			if won, err := l.TryLock(ctx); won || err != nil {
				return l.Unlock, err
			}
			if err := pause(ctx, time.Millisecond); err != nil {
				return nil, err
			}
		}
	}
	return l.Unlock, l.Lock(ctx)
}

// mixed has clients of both kinds contend for one lock.
func (j job) mixed(ctx context.Context) (answer, error) {
	ctx, stop := context.WithTimeout(ctx, j.Warm+j.Time+time.Minute)
	defer stop()
	var takers []func(context.Context, string) (func(context.Context) error, error)
	var closers []func() error
	for range j.Java {
		c := openJava(j.Addrs, j.By)
		takers, closers = append(takers, c.lock), append(closers, c.close)
	}
	for range j.Callers {
		c, err := openQuorumlock(j.Addrs, 1)
		if err != nil {
			return answer{}, err
		}
		takers, closers = append(takers, c.lock), append(closers, c.close)
	}
	defer func() {
		for _, end := range closers {
			_ = end()
		}
	}()
	a := arena{name: "mixed", hold: j.Hold, stop: stop}
	results := make([]contender, len(takers))
	var running sync.WaitGroup
	for i, lock := range takers {
		running.Go(func() { results[i].run(ctx, &a, taker(lock), 0) })
	}
	if err := pause(ctx, j.Warm); err != nil {
		return answer{}, cmp.Or(a.failure(), err)
	}
	from := time.Now()
	err := pause(ctx, j.Time)
	to := time.Now()
	stop()
	running.Wait()
	if err := cmp.Or(a.failure(), err); err != nil {
		return answer{}, err
	}
	f := measure(results, from, to, 0)
	count := func(all []contender) (n int, worst time.Duration) {
		for _, r := range all {
			for _, g := range r.grants {
				if !g.got.Before(from) && !g.got.After(to) {
					n++
				}
				if g.got.After(from) && g.asked.Before(to) {
					worst = max(worst, g.got.Sub(g.asked))
				}
			}
			if !r.waiting.IsZero() {
				worst = max(worst, to.Sub(r.waiting))
			}
		}
		return n, worst
	}
	java, javaWait := count(results[:j.Java])
	golang, goWait := count(results[j.Java:])
	own := figures{goShare: 100 * float64(golang) / float64(max(java+golang, 1)), grants: f[grants]}
	if j.Java > 0 {
		own[javaWorst] = millis(javaWait)
	}
	if j.Callers > 0 {
		own[goWorst] = millis(goWait)
	}
	return answer{Figures: own}, nil
}

// taker is a client that can only lock.
type taker func(context.Context, string) (func(context.Context) error, error)

func (t taker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	return t(ctx, name)
}

func (t taker) close() error { return nil }
