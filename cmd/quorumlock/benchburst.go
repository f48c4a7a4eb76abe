package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/quorumlock/quorumlock"
)

// maxBurst bounds the callers of a burst.
const maxBurst = 100_000

// burstFigures has the results of callers that came at once. Its times are in milliseconds.
type burstFigures struct {
	Callers int        `json:"callers"`
	Granted int        `json:"granted"`
	Failed  int        `json:"failed"` // without a grant
	Errors  []failures `json:"errors"` // the most frequent first
	Total   float64    `json:"total_ms"`
	PerSec  float64    `json:"per_s"` // granted and released
	// Waits for a grant, from the start of the burst.
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	// The attempts of the process: those that waited unsent, and those in flight at each node.
	Unsent int         `json:"most_unsent"`
	Nodes  []burstNode `json:"nodes"`
}

type burstNode struct {
	Node     string `json:"node"`
	InFlight int    `json:"most_in_flight"`
	Limit    int    `json:"limit"` // at the end
}

// admission is a [quorumlock.Observer] of attempts in flight and unsent. Its zero value is ready
// for concurrent use.
type admission struct {
	mu     sync.Mutex
	unsent int
	nodes  []burstNode
}

// Begin implements [quorumlock.Observer].
func (*admission) Begin(ctx context.Context, _ string) context.Context { return ctx }

// Observe implements [quorumlock.Observer].
func (a *admission) Observe(_ context.Context, e quorumlock.Event) {
	if e.Kind != quorumlock.EventNodeAsked {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unsent = max(a.unsent, e.Unsent)
	i := slices.IndexFunc(a.nodes, func(n burstNode) bool { return n.Node == e.Node })
	if i < 0 {
		i = len(a.nodes)
		a.nodes = append(a.nodes, burstNode{Node: e.Node})
	}
	n := &a.nodes[i]
	n.InFlight, n.Limit = max(n.InFlight, e.InFlight), e.Limit
}

// most returns the most attempts that waited unsent, and those of the nodes, in the order of names.
func (a *admission) most() (unsent int, nodes []burstNode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(a.nodes, func(m, n burstNode) int { return strings.Compare(m.Node, n.Node) })
	return a.unsent, slices.Clone(a.nodes)
}

// failures are errors of one kind.
type failures struct {
	Call    string `json:"call"`
	Kind    string `json:"kind"`
	Count   int    `json:"count"`
	Example string `json:"example"`
}

// burst measures a burst and prints it. seen is the Observer of the client.
func (c *benchCommand) burst(e *env, b *bench, seen *admission) error {
	// The connections are there, and each node knows the scripts.
	if _, err := repeat(e.ctx, b.first.Mutex(b.lockName("")), time.Now().Add(time.Millisecond)); err != nil {
		return err
	}
	all := b.burst(e.ctx, c.Callers, c.Duration)
	all.Unsent, all.Nodes = seen.most()
	if e.ctx.Err() != nil {
		return e.ctx.Err()
	}
	write := all.print
	if c.JSON {
		write = func(w io.Writer) error { return writeJSON(w, all) }
	}
	if err := write(e.text); err != nil {
		return err
	}
	if len(all.Errors) > 0 {
		return &statusError{status: exitFailure}
	}
	return nil
}

// burst lets all callers take and release a free lock of their own at once. Who waits for longer
// than the patience gives up.
func (b *bench) burst(ctx context.Context, callers int, patience time.Duration) burstFigures {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var mu sync.Mutex
	var waits []time.Duration
	failed := make(map[failures]failures) // by call and kind
	fail := func(call string, err error) {
		f := failures{Call: call, Kind: kindOf(err)}
		one := failed[f]
		f.Count, f.Example = one.Count+1, cmp.Or(one.Example, errorText(err))
		failed[failures{Call: f.Call, Kind: f.Kind}] = f
	}
	start := make(chan struct{})
	var began time.Time
	var running sync.WaitGroup
	for i := range callers {
		m := b.first.Mutex(b.lockName(fmt.Sprintf(":%d", i)))
		running.Go(func() {
			<-start
			lease, err := m.Lock(ctx)
			waited := time.Since(began)
			var unlocked error
			if err == nil {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchPatience)
				unlocked = lease.Unlock(ctx)
				cancel()
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fail("Lock", err)
				return
			}
			waits = append(waits, waited)
			if unlocked != nil {
				fail("Unlock", unlocked)
			}
		})
	}
	began = time.Now()
	close(start)
	running.Wait()
	took := time.Since(began)

	all := burstFigures{Callers: callers, Granted: len(waits), Failed: callers - len(waits), Total: inMS(took), Errors: []failures{}}
	good := len(waits)
	for _, f := range failed {
		all.Errors = append(all.Errors, f)
		if f.Call == "Unlock" {
			good -= f.Count
		}
	}
	slices.SortFunc(all.Errors, func(a, b failures) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Call+a.Kind, b.Call+b.Kind))
	})
	all.PerSec = float64(good) / took.Seconds()
	if n := len(waits); n > 0 {
		slices.Sort(waits)
		all.P50, all.P90, all.P99, all.Max = inMS(waits[n/2]), inMS(waits[n*90/100]), inMS(waits[n*99/100]), inMS(waits[n-1])
	}
	return all
}

// kindOf is what errors of a kind have in common.
func kindOf(err error) string {
	if errors.Is(err, quorumlock.ErrUnsent) {
		return "not sent within --duration"
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, quorumlock.ErrNoQuorum) {
		return "not granted within --duration"
	}
	for _, kind := range []error{quorumlock.ErrNoQuorum, quorumlock.ErrTooLate, quorumlock.ErrLost, quorumlock.ErrNotHeld, quorumlock.ErrHeld} {
		if errors.Is(err, kind) {
			return errorText(kind)
		}
	}
	return "other"
}

func (b burstFigures) print(w io.Writer) error {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "granted\t%d of %d\n", b.Granted, b.Callers)
	fmt.Fprintf(t, "failed\t%d\n", b.Failed)
	for _, f := range b.Errors {
		fmt.Fprintf(t, "  %s: %s\t%d\tsuch as: %s\n", f.Call, f.Kind, f.Count, shown(f.Example))
	}
	fmt.Fprintf(t, "total\t%.0f ms\n", b.Total)
	fmt.Fprintf(t, "pairs a second\t%.0f\n", b.PerSec)
	if b.Granted > 0 {
		fmt.Fprintf(t, "wait\tp50 %.2f ms, p90 %.2f ms, p99 %.2f ms, max %.2f ms\n", b.P50, b.P90, b.P99, b.Max)
	}
	fmt.Fprintf(t, "unsent\tat most %d at once\n", b.Unsent)
	for _, n := range b.Nodes {
		fmt.Fprintf(t, "in flight\tat most %d at %s, limit %d\n", n.InFlight, n.Node, n.Limit)
	}
	_ = t.Flush() // into memory
	_, err := io.WriteString(w, text.String())
	return err
}
