package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
)

// The ways to have many readers and few writers.
const (
	readersName = "RWMutex, readers of one name"
	rwName      = "RWMutex"
	mutexName   = "Mutex"
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

// readers compares those who read one name with those who lock names of their own: no reader waits for another.
func readers(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	var all []*contest
	for _, n := range p.callers {
		c := &contest{scene: label(n, "reader", "readers"), columns: loadColumns}
		c.entries = append(c.entries, f.entry(ctx, ours, p.load(n)))
		e := f.entry(ctx, ours, p.load(n))
		e.name, e.job.Design, e.job.Names = readersName, readersName, 1
		c.entries = append(c.entries, e)
		c.promises = []promise{atLeast(0.7, readersName, pairs).times(ours)}
		all = append(all, c)
	}
	const clients = 64
	c := &contest{scene: "64 clients, one call of ten writes, 1 ms each", columns: []metric{grants, readWait, writeWait}}
	for _, name := range []string{rwName, mutexName} {
		e := f.entry(ctx, ours, job{Kind: mixJob, Callers: clients, Hold: time.Millisecond, Warm: p.time, Time: 3 * p.time})
		e.name, e.job.Alone = name, name == mutexName
		c.entries = append(c.entries, e)
	}
	c.promises = []promise{atLeast(2, rwName, grants).times(mutexName), atMost(1, rwName, writeWait).times(mutexName)}
	return append(all, c), nil
}

// mix has clients read and write one name, and measures how long readers and writers wait for it.
func (j job) mix(ctx context.Context) (answer, error) {
	ctx, stop := context.WithTimeout(ctx, j.Warm+j.Time+time.Minute)
	defer stop()
	clients := make([]client, j.Callers)
	for i := range clients {
		c, err := openQuorumlock(j.Addrs, 1)
		if err != nil {
			return answer{}, errors.Join(err, closeAll(clients[:i]))
		}
		clients[i] = c
	}
	if err := connect(ctx, clients); err != nil {
		return answer{}, errors.Join(err, closeAll(clients))
	}
	var mu sync.Mutex
	var waits [2]sample // of readers, and of writers
	var failure error
	inside := [2]int{}
	from := time.Now().Add(j.Warm)
	to := from.Add(j.Time)
	var running sync.WaitGroup
	for _, c := range clients {
		rw := c.(*quorumlockClient).locks.RWMutex("mixed")
		running.Go(func() {
			for time.Now().Before(to) {
				kind := 0
				if rand.IntN(10) == 0 {
					kind = 1
				}
				var lock quorumlock.Locker = rw
				if kind == 0 && !j.Alone {
					lock = rw.RLocker()
				}
				asked := time.Now()
				lease, err := lock.Lock(ctx)
				got := time.Now()
				mu.Lock()
				if failure == nil {
					failure = err
				}
				if err == nil {
					inside[kind]++
					if inside[1] > 1 || inside[1] == 1 && inside[0] > 0 {
						failure = fmt.Errorf("%d readers and %d writers have the lock at once", inside[0], inside[1])
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
				if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
					mu.Lock()
					failure = err
					mu.Unlock()
					return
				}
			}
		})
	}
	running.Wait()
	a := answer{Figures: figures{
		grants:   float64(len(waits[0])+len(waits[1])) / j.Time.Seconds(),
		readWait: millis(waits[0].quantile(0.99)), writeWait: millis(waits[1].quantile(0.99)),
	}}
	return a, errors.Join(failure, closeAll(clients))
}
