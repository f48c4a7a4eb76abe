package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

type benchCommand struct {
	connection
	Duration time.Duration `default:"6s" placeholder:"D" help:"How long to measure, from 1s to 5m; with --burst, the longest wait of a caller."`
	Callers  int           `default:"1" placeholder:"N" help:"The number of concurrent callers, each with a lock of its own, from 1 to 1000; with --burst, to 100000."`
	Burst    bool          `help:"Measure one burst: all callers at once, each takes and releases its lock once."`
	JSON     bool          `name:"json" help:"Print JSON."`
}

func (benchCommand) manual() manual {
	return manual{
		synopsis: "[--duration D] [--callers N] [--burst] [--json] [flags]",
		description: `Measures three operations on your nodes, from this machine: a lock and unlock
over all nodes; a handoff, from the start of an Unlock in one process to the Lock of a waiter in
another; and a lock and unlock at each single node, which shows the slow ones. Each takes a third of
the time.

With --burst, it measures instead how your nodes serve many callers who come at once: how many were
granted, how many failed and why, the time for all, and the wait. It also shows how many attempts
waited unsent, in this process, and how many were in flight at each node, with their limit at the
end. The status is 1 if a call failed.

The names begin with the prefix and quorumlock-bench:, and are deleted at the end. The load is that
of the given number of callers: take care on nodes in production.`,
		environment: environment,
		statuses:    statuses,
		examples: `quorumlock bench --duration 10s --callers 8
quorumlock bench --burst --callers 5000 --duration 1m`,
	}
}

// measured is a measurement, in milliseconds.
type measured struct {
	What   string  `json:"what"`
	Node   string  `json:"node,omitempty"`
	Count  int     `json:"count"`
	PerSec float64 `json:"per_s"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
	Error  string  `json:"error,omitempty"`
}

func (c *benchCommand) Run(e *env) (err error) {
	switch {
	case c.Duration < time.Second || c.Duration > 5*time.Minute:
		return usageError(fmt.Sprintf("bench: --duration %v: use 1s to 5m", c.Duration))
	case c.Callers < 1 || c.Callers > 1000 && !c.Burst || c.Callers > maxBurst:
		return usageError(fmt.Sprintf("bench: --callers %d: use 1 to 1000, or with --burst 1 to %d", c.Callers, maxBurst))
	}
	var seen admission
	var watched []quorumlock.Option
	if c.Burst { // otherwise the Observer would cost some of what is measured
		watched = append(watched, quorumlock.WithObserver(&seen))
	}
	first, err := c.dial("bench", watched...)
	if err != nil {
		return err
	}
	second, err := c.dial("bench") // stands for another process
	if err != nil {
		return errs.Join(err, first.Close())
	}
	b := &bench{first: first, name: "quorumlock-bench:" + settings.NewID(), names: make(map[string]bool)}
	defer func() {
		finish(first, second)
		if left := b.wipe(c); left != nil {
			_, _ = fmt.Fprintln(e.stderr, "quorumlock: bench: "+errorText(left))
		}
	}()
	health, err := first.Ready(e.ctx)
	if err != nil {
		return err
	}
	for i, n := range health.Nodes {
		if n.Err == nil {
			b.quick = first.nodes[i]
		}
	}
	if c.Burst {
		return c.burst(e, b, &seen)
	}
	all, err := b.measure(e.ctx, c.Duration/3, c.Callers, second)
	if e.ctx.Err() != nil {
		return e.ctx.Err()
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(e.text, all)
	}
	return printMeasured(e.text, all)
}

// bench is one run.
type bench struct {
	first *cluster
	name  string // the prefix of all names
	names map[string]bool
	quick *node.Node // a node that answers
}

// lockName returns a name, and registers the name for deletion.
func (b *bench) lockName(more string) string {
	name := b.name + more
	b.names[name] = true
	return name
}

// benchPatience is how long dead nodes may delay the end of a measurement.
const benchPatience = 30 * time.Second

// measure measures for d each pairs, handoffs, and all nodes alone.
func (b *bench) measure(ctx context.Context, d time.Duration, callers int, second *cluster) ([]measured, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*d+benchPatience)
	defer cancel()
	pairs, err := b.pairs(ctx, d, callers)
	if err != nil {
		return nil, err
	}
	handoffs, err := b.handoffs(ctx, d, second)
	if err != nil {
		return nil, err
	}
	return append([]measured{pairs, handoffs}, b.alone(ctx, d/time.Duration(len(b.first.nodes)))...), nil
}

// pairs measures locks and unlocks without contention.
func (b *bench) pairs(ctx context.Context, d time.Duration, callers int) (measured, error) {
	took := make([][]time.Duration, callers)
	began := time.Now()
	g, _ := errgroup.WithContext(ctx)
	for i := range callers {
		m := b.first.Mutex(b.lockName(fmt.Sprintf(":%d", i)))
		g.Go(func() (err error) {
			took[i], err = repeat(ctx, m, began.Add(d))
			return err
		})
	}
	err := g.Wait()
	return summary("lock and unlock", "", time.Since(began), slices.Concat(took...)), err
}

// repeat locks and unlocks until the end or until ctx is done. It completes its last lock and
// unlock, so that no call outlasts the run.
func repeat(ctx context.Context, m quorumlock.Locker, end time.Time) (took []time.Duration, err error) {
	for ctx.Err() == nil && time.Now().Before(end) && len(took) < maxSamples {
		began := time.Now()
		lease, err := m.Lock(ctx)
		if err != nil {
			return took, err
		}
		if err := lease.Unlock(ctx); err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// maxSamples bounds the memory of one caller.
const maxSamples = 1 << 20

// handoffs measures from the start of an Unlock to the Lock of a waiter in another process.
func (b *bench) handoffs(ctx context.Context, d time.Duration, second *cluster) (measured, error) {
	name := b.lockName(":handoff")
	left := make(chan time.Time, 1) // the start of the holder's Unlock
	var took []time.Duration        // guarded by the lock
	began := time.Now()
	measuring, cancel := context.WithDeadline(ctx, began.Add(d))
	defer cancel()
	g, _ := errgroup.WithContext(ctx)
	for _, c := range []*cluster{b.first, second} {
		m := c.Mutex(name)
		g.Go(func() error {
			for measuring.Err() == nil {
				lease, err := m.Lock(ctx) // the other client unlocks at the end of the time
				if err != nil {
					return err
				}
				select {
				case at := <-left:
					took = append(took, time.Since(at))
				default:
				}
				b.waitFor(measuring, name)
				left <- time.Now()
				if err := lease.Unlock(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return summary("handoff", "", time.Since(began), took), err
}

// waitFor returns when the queue has a waiter.
func (b *bench) waitFor(ctx context.Context, name string) {
	for ctx.Err() == nil {
		if s, err := b.quick.Inspect(ctx, b.first.prefix+name); err != nil || s.Waiting > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// alone measures each node separately.
func (b *bench) alone(ctx context.Context, d time.Duration) (all []measured) {
	for _, n := range b.first.nodes {
		name := b.lockName(":alone:" + settings.NewID())
		began := time.Now()
		took, err := repeat(ctx, n.Mutex(b.first.prefix+name, quorumlock.WithWait(max(d, time.Second))), began.Add(d))
		m := summary("one node", n.String(), time.Since(began), took)
		if len(took) == 0 && err == nil {
			err = errors.New("it did not answer in time")
		}
		m.Error = errorText(err)
		all = append(all, m)
	}
	return all
}

func summary(what, node string, lasted time.Duration, took []time.Duration) measured {
	m := measured{What: what, Node: node, Count: len(took), PerSec: float64(len(took)) / lasted.Seconds()}
	if len(took) > 0 {
		slices.Sort(took)
		m.P50, m.P99, m.Max = inMS(took[len(took)/2]), inMS(took[len(took)*99/100]), inMS(took[len(took)-1])
	}
	return m
}

func printMeasured(w io.Writer, all []measured) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "what\tcount\tper second\tp50 ms\tp99 ms\tmax ms\t")
	for _, m := range all {
		what := m.What
		if m.Node != "" {
			what = m.Node + " alone"
		}
		if m.Error != "" {
			fmt.Fprintf(t, "%s\tfailed\t\t\t\t\t  %s\n", what, m.Error)
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.2f\t%.2f\t%.2f\t\n", what, m.Count, m.PerSec, m.P50, m.P99, m.Max)
	}
	_ = t.Flush() // into memory
	_, err := io.WriteString(w, b.String())
	return err
}

// finish ends the clients when the nodes have confirmed all releases, because a late call could run
// after the wipe. It does not wait for a dead node.
func finish(clients ...*cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, c := range clients {
		_ = c.Shutdown(ctx) // the wipe reports the dead nodes
	}
}

// wipe deletes all keys of the names. Without it, the token counters would stay for minutes. A dead
// node does not stop the wipe of the others.
func (b *bench) wipe(c *benchCommand) error {
	client, err := c.dial("bench")
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it holds no lock
	failed := make([]error, len(client.nodes))
	var all sync.WaitGroup
	for i, n := range client.nodes {
		all.Go(func() {
			if err := b.wipeNode(n); err != nil {
				failed[i] = fmt.Errorf("%s may have keys of %s for some minutes: %w", n, b.name, err)
			}
		})
	}
	all.Wait()
	return errs.Join(failed...)
}

func (b *bench) wipeNode(n *node.Node) error {
	const together = 1000
	for names := range slices.Chunk(slices.Collect(maps.Keys(b.names)), together) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := n.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, name := range names {
				key := b.first.prefix + name
				p.Del(ctx, key, wire.TokenKey(key), wire.QueueKey(key), wire.EntriesKey(key))
			}
			return nil
		})
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
