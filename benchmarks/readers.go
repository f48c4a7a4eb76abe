package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/proof/redisson"
)

// The ways to have many readers and few writers.
const (
	readersName = "RWMutex, readers of one name"
	rwName      = "RWMutex"
	mutexName   = "Mutex"

	byReadWriteLock = "Redisson's RReadWriteLock, one node"
	semaphoreName   = "Semaphore of 8"
	permits         = 8
)

// kinds are designs of this library that only some parts measure.
var kinds = []design{{readersName, onRedis, nodes, scriptCommands, openReaders}}

// readersClient has readers in the place of locks.
type readersClient struct{ *quorumlockClient }

func openReaders(addrs []string, callers int) (client, error) {
	c, err := openQuorumlock(addrs, callers)
	if err != nil {
		return nil, err
	}
	return readersClient{c.(*quorumlockClient)}, nil
}

func (c readersClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	lease, err := c.locks.RWMutex(name).RLock(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

// readers compares readers of one name with callers of names of their own: readers do not wait.
func readers(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	var all []*contest
	for _, n := range p.callers {
		c := &contest{scene: label(n, "reader", "readers"), columns: loadColumns}
		c.entries = append(c.entries, f.entry(ctx, ours, p.load(n)))
		e := f.entry(ctx, ours, p.load(n))
		e.name, e.job.Design, e.job.Names = readersName, readersName, 1
		c.entries = append(c.entries, e)
		// A reader costs the servers twice as much as a mutex, and the client hardly more.
		c.promises = []promise{atLeast(0.5, readersName, pairs).times(ours)}
		all = append(all, c)
	}
	const clients = 64
	add := func(c *contest, hold time.Duration, by ...string) {
		for _, by := range by {
			e := f.entry(ctx, ours, job{Kind: mixJob, By: by, Callers: clients, Hold: hold, Warm: p.time, Time: 3 * p.time})
			e.name = by
			if by == byReadWriteLock {
				e.job.Addrs, e.job.Redis = e.job.Addrs[:1], e.job.Redis[:1]
			}
			c.entries = append(c.entries, e)
		}
	}
	c := &contest{scene: "64 clients, one call in ten writes, 1 ms each", columns: []metric{grants, readWait, writeWait, scriptsAGrant}}
	add(c, time.Millisecond, rwName, mutexName, byReadWriteLock)
	c.promises = []promise{atLeast(1, rwName, grants).times(mutexName), atMost(1, rwName, writeWait).times(mutexName)}
	all = append(all, c)
	for _, hold := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
		c = &contest{scene: fmt.Sprintf("64 clients, %d ms each", hold.Milliseconds()), columns: []metric{grants, writeWait, scriptsAGrant}}
		add(c, hold, semaphoreName, mutexName)
		c.promises = []promise{atMost(16, semaphoreName, scriptsAGrant)}
		if hold > time.Millisecond { // with shorter holds the processors are the limit
			c.promises = append(c.promises, atLeast(7, semaphoreName, grants).times(mutexName))
		}
		all = append(all, c)
	}
	return all, nil
}

// way is how a client takes part in a mix.
type way struct {
	read, write func(context.Context) (unlock func(context.Context) error, err error)
	room        int // how many may write at once
}

func takes(l quorumlock.Locker) func(context.Context) (func(context.Context) error, error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		lease, err := l.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return lease.Unlock, nil
	}
}

// way returns the nth client, and the function that closes it.
func (j job) way(ctx context.Context, n int) (way, func() error, error) {
	const name = "mixed"
	if j.By == byReadWriteLock {
		c := openJava(j.Addrs, j.By)
		java := func(l *redisson.Lock) func(context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) (func(context.Context) error, error) { return l.Unlock, l.Lock(ctx) }
		}
		return way{java(c.clients[0].ReadLock(name)), java(c.clients[0].WriteLock(name)), 1}, c.close, nil
	}
	c, err := openQuorumlock(j.Addrs, 1)
	if err != nil {
		return way{}, nil, err
	}
	if _, err := lockUnlock(ctx, c, fmt.Sprintf("connect:%d", n)); err != nil {
		return way{}, nil, errors.Join(err, c.close())
	}
	locks := c.(*quorumlockClient).locks
	switch j.By {
	case rwName:
		rw := locks.RWMutex(name)
		return way{takes(rw.RLocker()), takes(rw), 1}, c.close, nil
	case semaphoreName:
		slot := takes(locks.Semaphore(name, permits))
		return way{slot, slot, permits}, c.close, nil
	}
	alone := takes(locks.Mutex(name))
	return way{alone, alone, 1}, c.close, nil
}

// mix lets clients read and write one name, and measures the waits of readers and writers. If
// readers do not share the name, all of them write.
func (j job) mix(ctx context.Context, d design) (answer, error) {
	ctx, stop := context.WithTimeout(ctx, j.Warm+j.Time+time.Minute)
	defer stop()
	ways, closers := make([]way, j.Callers), make([]func() error, 0, j.Callers)
	closeAll := func() (err error) {
		for _, end := range closers {
			err = errors.Join(err, end())
		}
		return err
	}
	for i := range ways {
		w, end, err := j.way(ctx, i)
		if err != nil {
			return answer{}, errors.Join(err, closeAll())
		}
		ways[i], closers = w, append(closers, end)
	}
	shares := j.By == rwName || j.By == byReadWriteLock
	var mu sync.Mutex
	var waits [2]sample // of readers, and of writers
	var failure error
	inside := [2]int{}
	from := time.Now().Add(j.Warm)
	to := from.Add(j.Time)
	var running sync.WaitGroup
	for _, w := range ways {
		running.Go(func() {
			for time.Now().Before(to) {
				kind, lock := 1, w.write
				if shares && rand.IntN(10) > 0 {
					kind, lock = 0, w.read
				}
				asked := time.Now()
				unlock, err := lock(ctx)
				got := time.Now()
				mu.Lock()
				failure = cmp.Or(failure, err)
				if err == nil {
					inside[kind]++
					if inside[1] > w.room || inside[1] > 0 && inside[0] > 0 {
						failure = cmp.Or(failure, fmt.Errorf("%d readers and %d writers have the lock at once", inside[0], inside[1]))
					}
					if !got.Before(from) && got.Before(to) {
						waits[kind] = append(waits[kind], got.Sub(asked))
					}
				}
				mu.Unlock()
				if err != nil {
					return
				}
				holdFor(j.Hold)
				mu.Lock()
				inside[kind]--
				mu.Unlock()
				if err := unlock(context.WithoutCancel(ctx)); err != nil {
					mu.Lock()
					failure = cmp.Or(failure, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	_, _, scripts, err := j.watch(ctx, d)
	running.Wait()
	granted := len(waits[0]) + len(waits[1])
	a := answer{Figures: figures{
		grants: float64(granted) / j.Time.Seconds(), writeWait: millis(waits[1].quantile(0.99)),
		scriptsAGrant: float64(scripts) / float64(max(granted, 1)),
	}}
	if shares {
		a.Figures[readWait] = millis(waits[0].quantile(0.99))
	}
	return a, errors.Join(failure, err, closeAll())
}
