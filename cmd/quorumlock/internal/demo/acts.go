package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
)

// job is a worker's use of the lock, and that of most programs: it takes the lock, sends its token
// with every write, stops when its context is done, and unlocks in all cases.
func (d *demo) job(ctx context.Context, w int, work func(ctx context.Context) error) error {
	lease, err := d.lock(w).Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx) //nolint:errcheck // a node that does not confirm forgets the key at its TTL

	leave := d.resource.enter(lease)
	defer leave()
	if err := work(lease.Context()); err != nil {
		return err
	}
	return d.resource.write(lease.Token())
}

const (
	jobs     = 3                    // of every worker in an act
	jobTakes = 5 * time.Millisecond // so that holders would overlap if they could
)

// contend lets all workers do their jobs at the same time, and checks that they exclude each other.
// It calls happens in the middle, while one of them holds the lock.
func (d *demo) contend(ctx context.Context, happens func()) error {
	before := d.resource.seen()
	g, working := errgroup.WithContext(ctx)
	var begun atomic.Int64
	for w := range workers {
		g.Go(func() error {
			for range jobs {
				err := d.job(working, w, func(ctx context.Context) error {
					if begun.Add(1) == workers*jobs/2 {
						happens()
					}
					return sleep(ctx, jobTakes)
				})
				if err != nil {
					return fmt.Errorf("worker %d: %w", w+1, err)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	after := d.resource.seen()
	if err != nil {
		d.say("%v", err)
	}
	d.promise(err == nil && after.writes-before.writes == workers*jobs,
		"work went on: %d of %d jobs done", after.writes-before.writes, workers*jobs)
	d.promise(after.overlaps == before.overlaps, "mutual exclusion: never two holders at one time")
	d.promise(after.disorder == before.disorder, "fencing: every grant came with a higher token")
	return nil
}

// contention: all is well.
func (d *demo) contention(ctx context.Context) error {
	d.act("Five workers contend for one lock")
	d.say("each has a client of its own and %d jobs to do, one holder at a time", jobs)
	return d.contend(ctx, func() {})
}

// twoNodesKilled: 1 2 3 are left.
func (d *demo) twoNodesKilled(ctx context.Context) error {
	d.act("Two of five nodes are killed at work")
	d.say("node-4 and node-5 die while a worker holds the lock")
	return d.contend(ctx, func() {
		d.servers[3].Kill()
		d.servers[4].Kill()
	})
}

// oneNodeStalled: 1 2 4 are left.
func (d *demo) oneNodeStalled(ctx context.Context) error {
	d.act("One comes back, another one freezes")
	d.servers[3].Restart(true)
	d.say("node-4 is up again, with the holder and the waiters of that time, whom it forgets in two seconds")
	d.say("node-3 stops answering while a worker holds the lock")
	return d.contend(ctx, d.servers[2].Stall)
}

// quorumLost: 1 2 are left, and that is no quorum.
func (d *demo) quorumLost(ctx context.Context) error {
	d.act("A third node fails: no quorum is left")
	lease, err := d.lock(0).Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx) //nolint:errcheck // it is lost by then
	renewed, err := outlivesTTL(ctx, lease)
	if err != nil {
		return err
	}
	d.promise(renewed, "a lease of %v is renewed for as long as its holder works", d.ttl)

	d.servers[3].Kill()
	d.say("node-4 dies again; the holder's lease ends in %v if nobody can renew it", time.Until(lease.ValidUntil()).Round(time.Millisecond))
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	var rivals sync.WaitGroup
	var acquired atomic.Int64
	failures := make([]error, workers)
	for w := 1; w < workers; w++ {
		rivals.Go(func() {
			l, err := d.lock(w).Lock(waiting)
			if failures[w] = err; err == nil {
				acquired.Add(1)
				_ = l.Unlock(ctx) // no quorum can confirm it
			}
		})
	}

	select {
	case <-lease.Context().Done():
	case <-time.After(2 * d.ttl): // it should have been told long ago
	}
	late := time.Since(lease.ValidUntil())
	err = sleep(ctx, d.ttl/2) // the rivals go on trying when the lease is over
	stopWaiting()
	rivals.Wait()
	if err != nil {
		return err
	}
	d.promise(errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost) && late <= d.late,
		"the holder was told of its loss at its own deadline, by no node")
	d.promise(acquired.Load() == 0, "nobody acquired the lock without a quorum")
	d.explain(failures[1:])
	return nil
}

// explain shows the errors of the calls that have waited in vain: the one with the most nodes,
// since a caller behind the first in the queue need not hear of every failure.
func (d *demo) explain(failures []error) {
	told := 0
	var most []*quorumlock.NodeError
	for _, err := range failures {
		if e, ok := errors.AsType[*quorumlock.QuorumError](err); ok {
			told++
			if len(e.Nodes) > len(most) {
				most = e.Nodes
			}
		}
	}
	d.promise(told == len(failures), "those who waited in vain are told why:")
	for _, n := range most {
		d.say("          %s: %v", n.Node, n.Err)
	}
}

// outlivesTTL reports whether a lease is still good when its present TTL has passed, which takes a
// renewal by a quorum of the nodes.
func outlivesTTL(ctx context.Context, l *quorumlock.Lease) (bool, error) {
	if err := sleep(ctx, time.Until(l.ValidUntil())); err != nil {
		return false, err
	}
	return l.Context().Err() == nil && time.Now().Before(l.ValidUntil()), nil
}

// nodesBack: all five are there again.
func (d *demo) nodesBack(ctx context.Context) error {
	d.act("The nodes come back")
	d.servers[2].Resume()
	d.servers[3].Restart(true)
	d.servers[4].Restart(true)
	d.say("and node-3 now runs what it was sent while it was frozen")
	return d.contend(ctx, func() {})
}

// pausedHolder: the one case that no lock can prevent, and that needs fencing tokens.
func (d *demo) pausedHolder(ctx context.Context) error {
	d.act("A holder is paused for longer than its lease")
	paused, err := d.lock(0, quorumlock.WithTTL(d.ttl/2), quorumlock.WithoutRenewal()).Lock(ctx)
	if err != nil {
		return err
	}
	defer paused.Unlock(ctx) //nolint:errcheck // it is lost, unless the demo ends early
	d.say("worker 1 got token %d for %v, and is paused", paused.Token(), d.ttl/2)

	next, err := d.lock(1).Lock(ctx)
	if err != nil {
		return err
	}
	defer next.Unlock(ctx) //nolint:errcheck // a node that does not confirm forgets the key at its TTL
	d.say("worker 2 got token %d, and writes", next.Token())
	d.promise(time.Now().After(paused.ValidUntil()), "nobody gets the lock before the lease on it is over")
	d.promise(next.Token() > paused.Token() && d.resource.write(next.Token()) == nil, "the next holder writes with a higher token")

	d.say("worker 1 wakes up. It does not look at its context, and writes")
	err = d.resource.write(paused.Token())
	d.promise(errors.Is(err, errStale), "the resource refuses the late write: %v", err)
	err = paused.Unlock(ctx)
	d.promise(errors.Is(err, quorumlock.ErrLost), "so does its unlock: %v", err)
	renewed, err := outlivesTTL(ctx, next)
	if err != nil {
		return err
	}
	d.promise(renewed, "and it leaves the lock of worker 2 alone, who works on")
	return nil
}

// nothingLeft: locks are gone when they are released, or at their TTL from a node that missed that.
func (d *demo) nothingLeft(ctx context.Context) error {
	d.act("All is over")
	gone := time.Now().Add(d.ttl)
	for {
		in, err := d.watcher.Inspect(ctx, d.name)
		if err != nil {
			return err
		}
		held := 0
		for _, n := range in.Nodes {
			if n.State.Held() {
				held++
			}
		}
		if held == 0 || time.Now().After(gone) {
			if held > 0 {
				d.say("%d nodes have it", held)
			}
			d.promise(held == 0, "no node has the lock any more")
			return nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}
