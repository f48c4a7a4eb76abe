package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// perPipeline is the number of pending releases in one request.
const perPipeline = 500

// pendingReleases has a client's pending releases. The zero value has none.
type pendingReleases struct {
	unconfirmed atomic.Int64 // number at all nodes, without refused ones; read without mu, most often 0

	mu     sync.Mutex
	of     map[pendingAt]*nodePending
	closed bool          // Close has dropped the releases; no more are added
	done   chan struct{} // closed when Shutdown can return; nil if no Shutdown waits

	dropped map[string]int // by Close: unconfirmed releases, by the name of their node
}

// pendingAt has either the releases that a node refuses, or the others. The two have tries of their
// own. A refusal may be temporary: the node's ACL may change. So a refused release is tried until
// its TTL, but not whenever the node answers, and Shutdown does not wait for it.
type pendingAt struct {
	Node
	refused bool
}

// nodePending are pending releases of one node, guarded by the mutex of their queue.
type nodePending struct {
	engine.PendingReleases[pendingRelease]
	timer *time.Timer   // for the next try
	until time.Time     // the end of Shutdown's wait for all of them
	told  time.Duration // the last time that remember had their calls
}

// pendingRelease is a release or leave that needs one or two more confirmations.
type pendingRelease struct {
	call  wire.Call
	life  time.Duration // of the key
	until time.Time     // the end of Shutdown's wait for it, or of the tries if it is refused
}

// addPending adds a pending release. twice: the node has to confirm it twice. confirmed: it has
// done so once.
func (c *Client) addPending(n pendingAt, p pendingRelease, twice, confirmed bool) {
	q := &c.pending
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.countDropped(n, 1)
		return
	}
	r := q.of[n]
	if r == nil {
		r = &nodePending{}
		if q.of == nil {
			q.of = make(map[pendingAt]*nodePending)
		}
		q.of[n] = r
	}
	if p.until.After(r.until) {
		r.until = p.until
	}
	q.change(n, r, func() { r.Add(p, twice, confirmed, c.mono()) })
	c.scheduleRetry(n, r)
}

// change changes the releases of a node. The caller holds mu.
func (q *pendingReleases) change(n pendingAt, r *nodePending, f func()) {
	before := r.Unconfirmed()
	f()
	if !n.refused {
		q.unconfirmed.Add(int64(r.Unconfirmed() - before))
	}
}

// scheduleRetry sets the timer for the next try. The caller holds mu.
func (c *Client) scheduleRetry(n pendingAt, r *nodePending) {
	now := c.mono()
	at, set := r.Schedule(now)
	switch {
	case !set:
	case r.timer == nil:
		r.timer = time.AfterFunc(at-now, func() { c.retry(n) })
	default:
		r.timer.Reset(at - now)
	}
}

// retry sends the pending releases of a node that are due.
func (c *Client) retry(n pendingAt) {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	q := &c.pending
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.of[n]
	if r == nil || r.Busy() || n.refused && (c.isStopping() || !q.dropExpired(n, r)) {
		return
	}
	r.timer.Stop()
	var due []engine.PendingRelease[pendingRelease]
	q.change(n, r, func() { due = r.Due(c.mono()) })
	if len(due) == 0 {
		c.scheduleRetry(n, r)
		return
	}
	var waiters []quorumlock.Owner
	if now := c.mono(); now-r.told >= engine.EndedMemory/4 {
		r.told = now
		is := func(p pendingRelease) bool {
			waiters = append(waiters, quorumlock.Owner(p.call.Waiter()))
			return false
		}
		r.Any(is)
		for _, p := range due {
			is(p.Release)
		}
	}
	c.start(func() {
		c.remember(waiters)
		c.sendPending(n, r, due)
	})
}

// sendPending sends releases, and keeps those that fail or need one more confirmation.
func (c *Client) sendPending(n pendingAt, r *nodePending, due []engine.PendingRelease[pendingRelease]) {
	outcomes := make([]engine.Outcome, 0, len(due))
	var moved []engine.PendingRelease[pendingRelease] // newly refused, or no longer
	for some := range slices.Chunk(due, perPipeline) {
		calls := make([]wire.Call, len(some))
		for i, p := range some {
			calls[i] = p.Release.call
		}
		answered := make(chan struct{})
		c.send(context.Background(), n.Node, Releases, engine.RetryTimeout, calls, func(replies []wire.Reply) {
			for i, reply := range replies {
				_, _, err := reply.Released()
				outcome := engine.Confirmed
				switch {
				case reply.Err == nil:
				case isFinal(err):
					outcome = engine.Refused
				case isDown(reply.Err) == n.refused:
					outcome = engine.Refused
					moved = append(moved, some[i])
				default:
					outcome = engine.NotServed
				}
				outcomes = append(outcomes, outcome)
			}
			close(answered)
			c.End()
		})
		<-answered
		if slices.Contains(outcomes, engine.NotServed) { // the others would fail, too
			break
		}
	}
	outcomes = append(outcomes, make([]engine.Outcome, len(due)-len(outcomes))...)

	for _, p := range moved {
		p.Release.until = time.Now().Add(p.Release.life)
		c.addPending(pendingAt{n.Node, !n.refused}, p.Release, p.Twice, false)
	}
	q := &c.pending
	q.mu.Lock()
	defer q.mu.Unlock()
	q.change(n, r, func() { r.Done(due, outcomes, c.mono()) })
	if r.Empty() || q.closed {
		q.drop(n, r)
	} else {
		c.scheduleRetry(n, r)
	}
	q.checkDone()
}

// retryNow sends the unconfirmed releases of a node at once, since it has just answered.
func (c *Client) retryNow(n Node) {
	q := &c.pending
	if q.unconfirmed.Load() == 0 {
		return
	}
	q.mu.Lock()
	at := pendingAt{n, false}
	r := q.of[at]
	now := r != nil && r.Unconfirmed() > 0
	q.mu.Unlock()
	if now {
		c.retry(at)
	}
}

// drop drops the releases of a node. The caller holds mu.
func (q *pendingReleases) drop(n pendingAt, r *nodePending) {
	q.countDropped(n, r.left(n, time.Now()))
	delete(q.of, n)
}

// countDropped counts releases that Close has dropped. The caller holds mu.
func (q *pendingReleases) countDropped(n pendingAt, releases int) {
	if releases == 0 {
		return
	}
	if q.dropped == nil {
		q.dropped = make(map[string]int)
	}
	q.dropped[n.String()] += releases
}

// left returns how many of the releases may have left a key or an entry at the node.
func (r *nodePending) left(n pendingAt, now time.Time) (left int) {
	if !n.refused {
		return r.Len()
	}
	r.Any(func(p pendingRelease) bool {
		if p.until.After(now) {
			left++
		}
		return false
	})
	return left
}

// dropPending drops all pending releases; for Close.
func (c *Client) dropPending() {
	q := &c.pending
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for n, r := range q.of {
		if r.timer != nil {
			r.timer.Stop()
		}
		if !r.Busy() {
			q.drop(n, r)
		}
	}
	q.unconfirmed.Store(0)
	q.checkDone()
}

// wait returns when Shutdown has no release to wait for, or ctx is done.
func (q *pendingReleases) wait(ctx context.Context) error {
	q.mu.Lock()
	if q.done == nil {
		q.done = make(chan struct{})
		q.checkDone()
	}
	done := q.done
	q.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unconfirmedError returns an error with the number of unconfirmed releases at each node, nil if
// there are none.
func (q *pendingReleases) unconfirmedError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := maps.Clone(q.dropped)
	if all == nil {
		all = make(map[string]int)
	}
	for n, r := range q.of {
		if left := r.left(n, time.Now()); left > 0 {
			all[n.String()] += left
		}
	}
	if len(all) == 0 {
		return nil
	}
	var where []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		where = append(where, fmt.Sprintf("%d at node %s", all[name], name))
	}
	return fmt.Errorf("%w: %s", quorumlock.ErrUnconfirmed, strings.Join(where, ", "))
}

// dropExpired drops the refused releases whose keys have expired. It reports whether any release is
// left. The caller holds mu.
func (q *pendingReleases) dropExpired(n pendingAt, r *nodePending) bool {
	now := time.Now()
	q.change(n, r, func() { r.Drop(func(p pendingRelease) bool { return !p.until.After(now) }) })
	if !r.Empty() {
		return true
	}
	delete(q.of, n)
	return false
}

// checkDone closes done if Shutdown has no release to wait for. The caller holds mu.
func (q *pendingReleases) checkDone() {
	if q.done == nil {
		return
	}
	now := time.Now()
	for n, r := range q.of {
		if !n.refused && r.until.After(now) {
			return
		}
	}
	closeOnce(q.done)
}
