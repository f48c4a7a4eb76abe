package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock/internal/errs"
	internal "github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/redlock"
)

// gently is the inverse of the share of time that surveys may take.
const gently = 4

// clientsEvery is the number of checks for each check that lists the clients of the nodes.
const clientsEvery = 10

// observer looks at nodes and locks once for all watchers. Its memory is bounded. Its results are
// immutable.
type observer struct {
	client     *cluster
	interval   time.Duration
	checkEvery time.Duration
	named      []string // locks to look at even when unused
	all        *spotter // for the surveys
	byName     *spotter // for the named locks

	mu     sync.Mutex // guards the fields below; never held during a look
	nodes  nodesSeen
	check  checkSeen
	locks  locksSeen
	past   *history
	counts counts
}

// nodesSeen is the latest look at the nodes. It is zero before the first.
type nodesSeen struct {
	at  time.Time
	top topView // without locks
}

// checkSeen is the latest check. It is zero before the first.
type checkSeen struct {
	at     time.Time
	health redlock.Report
	count  int
	kept   []redlock.Finding // of the latest check with clients; other checks cannot have these
	again  bool              // some of kept are older, from nodes that have not answered since
}

// locksSeen is the latest survey. It is zero before the first.
type locksSeen struct {
	tried time.Time // the end of the latest survey
	at    time.Time // the end of the latest survey that succeeded; locks are from then
	took  time.Duration
	err   error
	locks []*topLock // sorted by the length of the queue, longest first
	more  bool       // there are more locks than the limit
	named []*topLock // the locks among observer.named
}

type counts struct {
	looks, surveys, surveyErrors int
	nodeFailures                 []int // in the order of the nodes
}

func newObserver(client *cluster, c *serveCommand) *observer {
	o := &observer{client: client, interval: c.Interval, checkEvery: c.CheckInterval, named: c.MetricsLock,
		all: newSpotter(client, c.Pattern, c.Limit), byName: newSpotter(client, "", 0), past: newHistory(c.History)}
	o.all.brief, o.byName.brief = true, true
	o.counts.nodeFailures = make([]int, len(client.nodes))
	return o
}

// run looks until ctx is done, and returns when all its goroutines have ended.
func (o *observer) run(ctx context.Context) {
	var loops sync.WaitGroup
	for _, look := range []func(context.Context) (pause time.Duration){o.lookAtNodes, o.lookAtLocks, o.checkNodes} {
		loops.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-time.After(look(ctx)):
				case <-ctx.Done():
				}
			}
		})
	}
	loops.Wait()
}

func (o *observer) lookAtNodes(ctx context.Context) (pause time.Duration) {
	began := time.Now()
	v, _ := o.client.lookAtNodes(ctx) // the view has the failure
	if ctx.Err() != nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodes = nodesSeen{v.At, v}
	o.counts.looks++
	for i, n := range v.Nodes {
		if !n.OK {
			o.counts.nodeFailures[i]++
		}
	}
	o.past.noteNodes(v.Nodes, v.At)
	return o.interval - time.Since(began)
}

func (o *observer) lookAtLocks(ctx context.Context) (pause time.Duration) {
	began := time.Now()
	locks, more, failing, err := o.all.lookAtLocks(ctx)
	named, failed := o.lookByName(ctx)
	err = errs.Join(err, failed)
	if ctx.Err() != nil {
		return 0
	}
	now := time.Now()
	took := now.Sub(began)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.locks.tried, o.locks.took, o.locks.err = now, took, err
	o.counts.surveys++
	if err == nil {
		o.locks.at, o.locks.locks, o.locks.more, o.locks.named = now, locks, more, named
	} else {
		o.counts.surveyErrors++
	}
	o.past.noteLocks(locks, err == nil, now)
	if failing { // the time was spent waiting, not working
		return max(o.interval, took)
	}
	return max(o.interval-took, (gently-1)*took)
}

// lookByName looks at the named locks. It leaves out names that are not locks.
func (o *observer) lookByName(ctx context.Context) (locks []*topLock, err error) {
	now := time.Now()
	found := make([]*lockView, len(o.named))
	var g errgroup.Group
	g.SetLimit(burst)
	for i, name := range o.named {
		g.Go(func() error {
			v, err := o.client.inspect(ctx, name)
			if isNoLock(err) {
				return nil
			}
			v.Nodes = nil
			found[i] = &v
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	o.byName.looks++
	for _, v := range found {
		if v != nil {
			locks = append(locks, o.byName.sight(*v, now))
		}
	}
	return locks, nil
}

func (o *observer) checkNodes(ctx context.Context) (pause time.Duration) {
	_, last, _, _ := o.seen()
	whole := last.count%clientsEvery == 0
	asked := ctx
	if !whole {
		asked = internal.WithoutClients(ctx)
	}
	h, _ := o.client.Diagnose(asked) // a failure is a finding
	if ctx.Err() != nil {
		return 0
	}
	depends := func(f redlock.Finding) bool {
		return f.Kind == redlock.FindingOtherList || f.Kind == redlock.FindingUntold
	}
	kept := last.kept
	again := last.again
	if whole {
		found := slices.DeleteFunc(slices.Clone(h.Findings), func(f redlock.Finding) bool { return !depends(f) })
		var old []redlock.Finding
		if !again {
			old = unanswered(kept, found, h.Nodes)
		}
		kept, again = append(found, old...), len(old) > 0
	}
	h.Findings = append(slices.DeleteFunc(h.Findings, depends), kept...)
	severities := []redlock.Severity{redlock.SeverityFailure, redlock.SeverityWarning, redlock.SeverityAdvice}
	slices.SortStableFunc(h.Findings, func(a, b redlock.Finding) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.check = checkSeen{time.Now(), h, last.count + 1, kept, again}
	return o.checkEvery
}

// unanswered returns the findings of an earlier check that are missing from the new ones, perhaps
// only because a node has not answered this time.
func unanswered(old, found []redlock.Finding, nodes []redlock.NodeReport) (kept []redlock.Finding) {
	what := func(f redlock.Finding) string { // without the clients, which come and go
		list, _, _ := strings.Cut(f.Problem, "; clients")
		return list
	}
	for _, f := range old {
		silent := slices.ContainsFunc(nodes, func(n redlock.NodeReport) bool { return n.Err != nil && (f.Node == "" || f.Node == n.Node) })
		same := func(g redlock.Finding) bool { return g.Kind == f.Kind && g.Node == f.Node && what(g) == what(f) }
		if silent && !slices.ContainsFunc(found, same) {
			kept = append(kept, f)
		}
	}
	return kept
}

// seen returns the latest results.
func (o *observer) seen() (nodesSeen, checkSeen, locksSeen, counts) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.counts
	c.nodeFailures = append([]int(nil), c.nodeFailures...)
	return o.nodes, o.check, o.locks, c
}

// view returns the latest results, in the form of top.
func (o *observer) view() topView {
	nodes, _, locks, _ := o.seen()
	v := nodes.top
	v.Locks, v.More = locks.locks, locks.more
	if v.Nodes == nil {
		v.Nodes = []topNode{}
	}
	if v.Locks == nil {
		v.Locks = []*topLock{}
	}
	if locks.err != nil {
		v.Error = errorText(locks.err)
	}
	return v
}

// stalled returns the look that is overdue, or "". Looks end in any state of the nodes, so an
// overdue look is a failure of this process.
func (o *observer) stalled(now time.Time) string {
	nodes, check, _, _ := o.seen()
	const patience = time.Minute // beyond any sensible timeout of a node
	switch {
	case !nodes.at.IsZero() && now.Sub(nodes.at) > o.interval+patience:
		return "the nodes were last looked at " + nodes.at.UTC().Format(time.RFC3339)
	case !check.at.IsZero() && now.Sub(check.at) > o.checkEvery+patience:
		return "the nodes were last checked " + check.at.UTC().Format(time.RFC3339)
	}
	return ""
}

// ready reports whether each kind of look has ended once.
func (o *observer) ready() bool {
	nodes, check, locks, _ := o.seen()
	return !nodes.at.IsZero() && !check.at.IsZero() && !locks.tried.IsZero()
}
