package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxGrants ends a contender that a defect makes spin.
const maxGrants = 1_000_000

// grant is one wait, and the hold after it.
type grant struct{ asked, got, left time.Time }

// contend lets contenders, each with a client of its own, lock one name again and again. It fails
// if two of them are ever in the lock at once.
func (j job) contend(ctx context.Context, d design) (answer, error) {
	clients, err := d.openAll(j.Addrs, j.Callers)
	if err != nil {
		return answer{}, err
	}
	err = connect(ctx, clients)
	var f figures
	if err == nil {
		f, err = j.play(ctx, d, clients)
	}
	return answer{Figures: f}, errors.Join(err, closeAll(clients))
}

// connect locks a name of its own once with every client, some at a time: the time to connect
// hundreds of clients is not measured.
func connect(ctx context.Context, clients []client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	const together = 8
	errs := make([]error, together)
	var running sync.WaitGroup
	for first := range together {
		running.Go(func() {
			for i := first; i < len(clients) && errs[first] == nil; i += together {
				_, errs[first] = lockUnlock(ctx, clients[i], fmt.Sprintf("connect:%d:%d", os.Getpid(), i))
			}
		})
	}
	running.Wait()
	return cmp.Or(errs...)
}

func (j job) play(ctx context.Context, d design, clients []client) (figures, error) {
	ctx, stop := context.WithTimeout(ctx, j.Warm+j.Time+time.Minute)
	defer stop()
	c := arena{name: "contended", hold: j.Hold, stop: stop}
	results := make([]contender, len(clients))
	var running sync.WaitGroup
	for i, cl := range clients {
		late := rand.N(20 * time.Millisecond)
		running.Go(func() { results[i].run(ctx, &c, cl, late) })
	}
	from, to, scripts, err := j.watch(ctx, d)
	stop()
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(unwinding):
		return nil, fmt.Errorf("some contenders did not stop within %v", unwinding)
	}
	if err := c.failure(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return measure(results, from, to, scripts), nil
}

// watch waits until the measured time is over, and returns its ends and its number of scripts.
func (j job) watch(ctx context.Context, d design) (from, to time.Time, scripts int64, err error) {
	admins := plainClients(j.Redis)
	defer func() { err = errors.Join(err, closeClients(admins)) }()
	var before, after commandStats
	if err = pause(ctx, j.Warm); err != nil {
		return
	}
	if before, err = sumCommandStats(ctx, admins); err != nil {
		return
	}
	from = time.Now()
	if err = pause(ctx, j.Time); err != nil {
		return
	}
	to = time.Now()
	if after, err = sumCommandStats(ctx, admins); err != nil {
		return
	}
	return from, to, after.since(before, d.commands...), nil
}

// arena is the state shared by the contenders.
type arena struct {
	name   string
	hold   time.Duration
	inside atomic.Int32 // contenders in the lock: 0 or 1
	stop   context.CancelFunc

	mu  sync.Mutex
	err error // the first failure, which ends the contest
}

func (c *arena) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.stop()
}

func (c *arena) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// contender has the grants of one contender. It is read when its run is over.
type contender struct {
	grants  []grant
	waiting time.Time // since when, if its run ended in a wait; else zero
}

func (r *contender) run(ctx context.Context, c *arena, cl client, late time.Duration) {
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
		g := grant{asked: asked, got: time.Now()}
		if c.inside.Add(1) != 1 {
			c.fail(errors.New("two contenders hold the lock at once"))
		}
		if c.hold > 0 {
			holdFor(c.hold)
		}
		c.inside.Add(-1)
		g.left = time.Now()
		r.grants = append(r.grants, g)
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
func measure(contenders []contender, from, to time.Time, scripts int64) figures {
	type holder struct {
		grant
		contender int
	}
	var holders []holder
	var waits sample
	var inside time.Duration
	served := make([]int, len(contenders))
	for i, r := range contenders {
		for _, g := range r.grants {
			holders = append(holders, holder{g, i})
			inside += overlap(g.got, g.left, from, to)
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
	granted, passed := 0, 0
	for i, h := range holders {
		if h.got.Before(from) || h.got.After(to) {
			continue
		}
		granted++
		if i > 0 && holders[i-1].contender != h.contender {
			passed++
		}
	}
	seconds := to.Sub(from).Seconds()
	f := figures{grants: float64(granted) / seconds, handoffs: float64(passed) / seconds, fairness: jain(served),
		held: 100 * inside.Seconds() / seconds, p50: millis(waits.quantile(0.5)), p99: millis(waits.quantile(0.99))}
	if scripts > 0 {
		f[scriptsAHandoff] = float64(scripts) / float64(max(passed, 1))
	}
	return f
}

// overlap is how much of the time from a to b lies from one time to the other.
func overlap(a, b, from, to time.Time) time.Duration {
	if a.Before(from) {
		a = from
	}
	if b.After(to) {
		b = to
	}
	return max(b.Sub(a), 0)
}
