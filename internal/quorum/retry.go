package quorum

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// A failed release or leave may keep a key or an entry at its node, which then refuses a free lock.
// So the call stays pending, and is repeated until the node has confirmed it, however long the node
// is away. Running it twice is harmless: its owner is used once, and its waiter has gone.
//
// No TTL ends it. A frozen server runs its socket buffers when it thaws, and its grants then have a
// full TTL. It reads the sockets in turn, 16 KB at a time. So a release on a new connection may run
// before an acquire on an old one, even a reset one. If an earlier call of unknown outcome may
// still run, the node confirms the release twice. The pause in between is longer than a server
// takes to run a full pipeline.

const (
	maxPending   = 1 << 14                // for one node; keys beyond this limit end with their TTL
	perPipeline  = 500                    // calls
	firstTry     = 50 * time.Millisecond  // the pause after a call has failed
	maxRetry     = 500 * time.Millisecond // the longest pause while the node is away
	retryTimeout = time.Second            // of one pipeline
	confirmAfter = 500 * time.Millisecond // the pause between the two confirmations
)

// retryQueue has a client's pending releases. The zero value has none.
type retryQueue struct {
	unconfirmed atomic.Int64 // number at all nodes; read without mu, most often 0

	mu   sync.Mutex
	of   map[Node]*nodeRetries
	done chan struct{} // closed when Shutdown can return; nil if no Shutdown waits
}

// nodeRetries are the pending releases of one node, guarded by the mutex of their queue.
type nodeRetries struct {
	unconfirmed []pendingRelease
	confirmed   []pendingRelease // confirmed once, by again
	timer       *time.Timer      // for the next try
	next        time.Time        // when timer fires; zero if it is not set
	pause       time.Duration    // before the next try of unconfirmed; over firstTry after failure
	busy        bool             // a try is under way
}

// pendingRelease is a release or leave that needs one or two more confirmations.
type pendingRelease struct {
	call  wire.Call
	until time.Time // the end of Shutdown's wait for it
	twice bool      // the node has to confirm it twice
	again time.Time // the next try after the first confirmation; zero before it
}

// addPending adds a pending release. confirmed: the node has confirmed it once.
func (c *Client) addPending(n Node, p pendingRelease, confirmed bool) {
	q := &c.retries
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-c.stopping: // Close may have dropped the others already
		if c.isClosed() {
			return
		}
	default:
	}
	r := q.of[n]
	if r == nil {
		r = &nodeRetries{pause: firstTry}
		if q.of == nil {
			q.of = make(map[Node]*nodeRetries)
		}
		q.of[n] = r
	}
	if len(r.unconfirmed)+len(r.confirmed) >= maxPending {
		return
	}
	if confirmed {
		p.again = time.Now().Add(confirmAfter)
		r.confirmed = append(r.confirmed, p)
	} else {
		r.unconfirmed = append(r.unconfirmed, p)
		q.unconfirmed.Add(1)
	}
	if !r.busy {
		c.scheduleRetry(n, r)
	}
}

// scheduleRetry sets the timer for the next try. The caller holds mu.
func (c *Client) scheduleRetry(n Node, r *nodeRetries) {
	var at time.Time
	if len(r.confirmed) > 0 {
		at = r.confirmed[0].again
	}
	if soon := time.Now().Add(r.pause); len(r.unconfirmed) > 0 && (at.IsZero() || soon.Before(at)) {
		at = soon
	}
	if !r.next.IsZero() && !at.Before(r.next) {
		return
	}
	r.next = at
	if r.timer == nil {
		r.timer = time.AfterFunc(time.Until(at), func() { c.retry(n) })
	} else {
		r.timer.Reset(time.Until(at))
	}
}

// retry sends the pending releases of a node that are due.
func (c *Client) retry(n Node) {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	q := &c.retries
	q.mu.Lock()
	r := q.of[n]
	if r == nil || r.busy {
		q.mu.Unlock()
		return
	}
	r.timer.Stop()
	now := time.Now()
	if c.isStopping() && !q.dropOverdue(n, r, now) {
		q.mu.Unlock()
		return
	}
	r.busy, r.next = true, time.Time{}
	again := 0
	for again < len(r.confirmed) && !r.confirmed[again].again.After(now) {
		again++
	}
	all := len(r.unconfirmed)
	if r.pause > firstTry { // the node may still be away: one call probes it
		all = min(all, 1)
	}
	due := slices.Concat(r.unconfirmed[:all], r.confirmed[:again])
	r.unconfirmed, r.confirmed = r.unconfirmed[all:], r.confirmed[again:]
	q.mu.Unlock()
	c.start(func() { c.sendPending(n, r, due) })
}

// sendPending sends releases, and keeps those that fail or need one more confirmation.
func (c *Client) sendPending(n Node, r *nodeRetries, due []pendingRelease) {
	var failed, confirmed []pendingRelease
	for some := range slices.Chunk(due, perPipeline) {
		if len(failed) > 0 { // the node does not answer
			failed = append(failed, some...)
			continue
		}
		calls := make([]wire.Call, len(some))
		for i, p := range some {
			calls[i] = p.call
		}
		answered := make(chan struct{})
		c.send(context.Background(), n, Background, time.Now().Add(retryTimeout), calls, func(replies []wire.Reply) {
			for i, reply := range replies {
				switch p := some[i]; {
				case reply.Err != nil && isDown(reply.Err):
					failed = append(failed, p)
				case reply.Err == nil && p.twice && p.again.IsZero():
					confirmed = append(confirmed, p)
				}
			}
			close(answered)
			c.End()
		})
		<-answered
	}

	q := &c.retries
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range due {
		if due[i].again.IsZero() {
			q.unconfirmed.Add(-1)
		}
	}
	q.unconfirmed.Add(int64(len(failed)))
	again := time.Now().Add(confirmAfter)
	for i := range failed {
		failed[i].again = time.Time{}
	}
	for i := range confirmed {
		confirmed[i].again = again
	}
	r.busy = false
	r.unconfirmed, r.confirmed = append(r.unconfirmed, failed...), append(r.confirmed, confirmed...)
	if r.pause = min(2*r.pause, maxRetry); len(failed) == 0 {
		r.pause = firstTry
	}
	if len(r.unconfirmed)+len(r.confirmed) == 0 || c.isClosed() {
		delete(q.of, n)
	} else {
		c.scheduleRetry(n, r)
	}
	q.checkDone()
}

// retryNow sends the unconfirmed releases of a node at once, since it has just answered.
func (c *Client) retryNow(n Node) {
	q := &c.retries
	if q.unconfirmed.Load() == 0 {
		return
	}
	q.mu.Lock()
	r := q.of[n]
	now := r != nil && !r.busy && len(r.unconfirmed) > 0
	q.mu.Unlock()
	if now {
		c.retry(n)
	}
}

// dropPending drops all pending releases; for Close.
func (c *Client) dropPending() {
	q := &c.retries
	q.mu.Lock()
	defer q.mu.Unlock()
	for n, r := range q.of {
		if r.timer != nil {
			r.timer.Stop()
		}
		if !r.busy {
			delete(q.of, n)
		}
	}
	q.unconfirmed.Store(0)
	q.checkDone()
}

// wait returns when Shutdown has no release to wait for, or ctx is done.
func (q *retryQueue) wait(ctx context.Context) error {
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

// dropOverdue drops the releases for which Shutdown no longer waits, because the tries of dead
// nodes would block Shutdown for ever. It reports whether any release is left. The caller holds mu.
func (q *retryQueue) dropOverdue(n Node, r *nodeRetries, now time.Time) bool {
	overdue := func(p pendingRelease) bool { return !p.until.After(now) }
	before := len(r.unconfirmed)
	r.unconfirmed, r.confirmed = slices.DeleteFunc(r.unconfirmed, overdue), slices.DeleteFunc(r.confirmed, overdue)
	q.unconfirmed.Add(int64(len(r.unconfirmed) - before))
	if len(r.unconfirmed)+len(r.confirmed) > 0 {
		return true
	}
	delete(q.of, n)
	q.checkDone()
	return false
}

// checkDone closes done if Shutdown has no release to wait for. The caller holds mu.
func (q *retryQueue) checkDone() {
	if q.done == nil {
		return
	}
	now := time.Now()
	waits := func(p pendingRelease) bool { return p.until.After(now) }
	for _, r := range q.of {
		if r.busy || slices.ContainsFunc(r.unconfirmed, waits) || slices.ContainsFunc(r.confirmed, waits) {
			return
		}
	}
	closeOnce(q.done)
}
