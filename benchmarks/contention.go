package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// scene is one contention: so many contenders who want one lock again as soon as they have left it.
type scene struct {
	contenders int
	hold       time.Duration
	duration   time.Duration // what is measured, after a warm-up
}

// warmUp is when waiters subscribe and the first crowd is dispersed.
func (s scene) warmUp() time.Duration { return min(s.duration/2, time.Second) }

// outcome is what came of a scene with one variant.
type outcome struct {
	grants, handoffs float64 // a second; a handoff is a grant to another contender than had the lock before
	perGrant         float64 // scripts, and other commands to acquire and release, over all nodes
	perHandoff       float64
	p50, p99, most   time.Duration
	jain             float64
}

// unwinding is how long contenders have to stop when a scene is over.
const unwinding = 30 * time.Second

// maxGrants ends a contender that a defect makes spin.
const maxGrants = 1_000_000

// grant is one wait and its end.
type grant struct{ asked, got time.Time }

// contend plays a scene. It fails if two contenders are ever in the lock at once.
func contend(ctx context.Context, srv *servers, v variant, s scene, seed uint64) (outcome, error) {
	if err := srv.clear(ctx); err != nil {
		return outcome{}, err
	}
	clients, err := openAll(v, srv.addrs(), s.contenders)
	if err != nil {
		return outcome{}, err
	}
	err = connect(ctx, clients)
	var out outcome
	if err == nil {
		out, err = s.play(ctx, srv, v, clients, seed)
	}
	if err != nil {
		err = fmt.Errorf("%s, %d contenders, hold %v: %w", v.name, s.contenders, s.hold, err)
	}
	return out, errors.Join(err, closeAll(clients))
}

// connect has every client lock a name of its own once, some at a time: how long it takes to connect
// hundreds of clients is not what is measured.
func connect(ctx context.Context, clients []client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	const together = 8
	errs := make([]error, together)
	var running sync.WaitGroup
	for first := range together {
		running.Go(func() {
			for i := first; i < len(clients) && errs[first] == nil; i += together {
				_, errs[first] = lockUnlock(ctx, clients[i], fmt.Sprintf("connect:%d", i))
			}
		})
	}
	running.Wait()
	return cmp.Or(errs...)
}

func (s scene) play(ctx context.Context, srv *servers, v variant, clients []client, seed uint64) (outcome, error) {
	ctx, stop := context.WithTimeout(ctx, s.warmUp()+s.duration+time.Minute)
	defer stop()
	c := contest{name: fmt.Sprintf("contended:%d", seed), hold: s.hold, stop: stop}
	results := make([]contender, len(clients))
	var running sync.WaitGroup
	random := rand.New(rand.NewPCG(seed, uint64(len(clients))))
	for i, cl := range clients {
		late := time.Duration(random.Int64N(int64(20 * time.Millisecond)))
		running.Go(func() { results[i].run(ctx, &c, cl, late) })
	}

	var from, to time.Time
	var before, after commandStats
	statsErr := pause(ctx, s.warmUp())
	if statsErr == nil {
		before, statsErr = srv.commandStats(ctx)
		from = time.Now()
	}
	if statsErr == nil {
		statsErr = pause(ctx, s.duration)
	}
	if statsErr == nil {
		after, statsErr = srv.commandStats(ctx)
		to = time.Now()
	}
	stop()
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(unwinding):
		return outcome{}, fmt.Errorf("some contenders did not stop within %v", unwinding)
	}
	if err := c.failure(); err != nil {
		return outcome{}, err
	}
	if statsErr != nil {
		return outcome{}, statsErr
	}
	return measure(results, from, to, after.since(before, v.commands...).calls), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// contest is what the contenders of a scene share.
type contest struct {
	name   string
	hold   time.Duration
	inside atomic.Int32 // contenders in the lock: 0 or 1
	stop   context.CancelFunc

	mu  sync.Mutex
	err error // the first failure, which ends the scene
}

func (c *contest) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.stop()
}

func (c *contest) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// contender is what one of them has lived through. It is read when its run is over.
type contender struct {
	grants  []grant
	waiting time.Time // since when, if its run ended in a wait; else zero
}

func (r *contender) run(ctx context.Context, c *contest, cl client, late time.Duration) {
	if pause(ctx, late) != nil {
		return
	}
	for range maxGrants {
		asked := time.Now()
		unlock, err := cl.lock(ctx, c.name)
		if err != nil {
			r.waiting = asked
			if ctx.Err() == nil {
				c.fail(err)
			}
			return
		}
		r.grants = append(r.grants, grant{asked, time.Now()})
		if c.inside.Add(1) != 1 {
			c.fail(errors.New("two contenders hold the lock at once"))
		}
		if c.hold > 0 {
			holdFor(c.hold)
		}
		c.inside.Add(-1)
		if err := unlock(context.WithoutCancel(ctx)); err != nil {
			c.fail(fmt.Errorf("unlock: %w", err))
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
	c.fail(fmt.Errorf("a contender was granted the lock %d times: use a shorter duration", maxGrants))
}

// measure counts the grants from one time to the other. Who waits at the end has its wait so far
// counted: otherwise a lock could hide those it starves.
func measure(contenders []contender, from, to time.Time, commands int64) outcome {
	type holder struct {
		grant
		contender int
	}
	var holders []holder
	var waits sample
	served := make([]int, len(contenders))
	for i, r := range contenders {
		for _, g := range r.grants {
			holders = append(holders, holder{g, i})
			switch {
			case !g.got.Before(from) && !g.got.After(to):
				served[i]++
				waits = append(waits, g.got.Sub(g.asked))
			case g.asked.Before(to) && g.got.After(to):
				waits = append(waits, to.Sub(g.asked))
			}
		}
		if !r.waiting.IsZero() && r.waiting.Before(to) {
			waits = append(waits, to.Sub(r.waiting))
		}
	}
	slices.SortFunc(holders, func(a, b holder) int { return a.got.Compare(b.got) })
	grants, handoffs := 0, 0
	for i, h := range holders {
		if h.got.Before(from) || h.got.After(to) {
			continue
		}
		grants++
		if i > 0 && holders[i-1].contender != h.contender {
			handoffs++
		}
	}
	seconds := to.Sub(from).Seconds()
	out := outcome{grants: float64(grants) / seconds, handoffs: float64(handoffs) / seconds, jain: jain(served)}
	out.perGrant = float64(commands) / float64(max(grants, 1))
	out.perHandoff = float64(commands) / float64(max(handoffs, 1))
	out.p50, out.p99, out.most = waits.quantile(0.5), waits.quantile(0.99), waits.quantile(1)
	return out
}
