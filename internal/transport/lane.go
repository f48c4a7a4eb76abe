package transport

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A lane sends all callers' calls to a node over one connection. All calls in its queue go in one
// pipeline, and later calls in the next one (group commit). So there are as few reads, writes and
// scripts (see bundle.go) as the load allows, and calls stay in order. To a node nearby, one
// pipeline is under way at a time. To a far node, the next pipeline follows after a small part of a
// round trip.
//
// Invariants:
//
//   - Every request is answered exactly once: after its last reply, or by the timer at its
//     deadline.
//   - No call that may have run is sent again. If its connection breaks, a sent call has an unknown
//     outcome. A pipeline is resent, once, only if none of its bytes was written.
//   - No call is sent after its deadline.
//   - The release of a queued attempt recalls the attempt: neither is sent.
//   - A connection with overdue replies is closed: the limit of a pipeline is the longest limit of
//     its requests. It is closed earlier if a queued request times out, and nothing was read for
//     the time that connecting may take.
//   - The queue, with the pipelines under way, is bounded in calls and bytes.
//
// The worker connects, and sends to an idle or far node. For each connection, a goroutine reads the
// replies, and sends the next pipeline after the last reply. So the lane notices the end of an idle
// connection at once. The worker starts with the first call. Both end with close. Nothing blocks
// while holding mu.
type lane struct {
	node   *Node
	number int           // a quorum.Lane
	wake   chan struct{} // wakes the worker; capacity 1

	mu        sync.Mutex
	closed    bool
	works     bool                // the worker has been started
	conn      *connection         // nil if there is none
	busy      bool                // a pipeline is being sent, or is about to be
	queue     queue               // not sent
	attempts  map[string]*request // queued requests that a release may recall, by waiter
	last      time.Time           // the latest deadline in the queue
	unordered bool                // a queued deadline may be before an earlier request's
	underWay  []*pipeline         // sent, oldest first
	spare     *pipeline           // for reuse; nil if there is none
	sent      time.Time           // time of the last pipeline
	read      int                 // number of replies so far
	timer     *time.Timer
	next      time.Time // of the timer; zero if it is not set
	proves    bool      // the worker connects without a request: see servers

	ctx  context.Context // done when the lane is closed
	stop context.CancelFunc

	// Used by the worker only.
	dialling   <-chan dialled // a dial under way; nil if there is none
	refusal    error          // error of the last failed handshake; valid until retryAt
	retryAt    time.Time      // earliest time of the next connect
	retryAfter time.Duration  // pause from refusal to retryAt; 0 after a success
	noInfo     time.Time      // the last time that only INFO had no reply
	noInfos    int            // number of such times in a row
}

// load is the queues of all lanes of a node.
type load struct {
	calls atomic.Int64
	bytes atomic.Int64
}

// The limits of a node's queue.
const (
	maxCalls = 8192
	maxBytes = 4 << 20
)

// A node is far if its round trip is at least farTrip. Then the next pipeline follows the last
// after the farParts-th part of a round trip, and at least farPause. It waits if the oldest
// pipeline has been under way for two round trips.
const (
	farTrip     = 500 * time.Microsecond
	farParts    = 8
	farPause    = 500 * time.Microsecond
	unknownTrip = math.MaxInt64
)

func newLane(n *Node, number int) *lane {
	l := &lane{node: n, number: number, wake: make(chan struct{}, 1), attempts: make(map[string]*request)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// do queues calls.
func (l *lane) do(deadline time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	l.add(newRequest(l, deadline, calls, answer), calls)
}

// add queues a request and its calls; AUTH has none.
func (l *lane) add(t *request, calls []wire.Call) {
	l.mu.Lock()
	if err := l.admit(t); err != nil {
		t.fail(l.node.Failure(err, false))
		l.mu.Unlock()
		finish([]*request{t})
		return
	}
	if attempt := l.recall(t, calls); attempt != nil {
		both := []*request{attempt, t}
		for _, t := range both {
			l.unload(t)
			t.fail(l.node.recalled)
		}
		l.mu.Unlock()
		finish(both)
		return
	}
	t.mark = l.read
	switch {
	case l.queue.first == nil:
		l.last, l.unordered = t.deadline, false
	case t.deadline.Before(l.last):
		l.unordered = true
	default:
		l.last = t.deadline
	}
	l.queue.push(t)
	if !l.works {
		l.works = true
		l.node.workers.Go(func() error {
			l.work()
			return nil
		})
	}
	wakes := !l.busy && (l.conn == nil || len(l.underWay) == 0 || l.conn.isFar())
	l.expect(t.deadline)
	l.mu.Unlock()
	if wakes {
		wake(l.wake)
	}
}

// isFar reports whether several pipelines may be under way.
func (k *connection) isFar() bool { return k.trip >= farTrip && k.trip != unknownTrip }

// admit adds a request to the load, or returns the reason for its refusal. The caller holds mu.
func (l *lane) admit(t *request) error {
	if l.closed {
		return quorumlock.ErrClosed
	}
	n := &l.node.load
	calls, bytes := n.calls.Add(int64(len(t.cmds))), n.bytes.Add(int64(t.size))
	if calls > maxCalls || bytes > maxBytes {
		l.unload(t)
		return notSent{fmt.Errorf("not sent: %d calls of %d bytes wait for the node already", calls-int64(len(t.cmds)), bytes-int64(t.size))}
	}
	return nil
}

// unload subtracts a request from the load.
func (l *lane) unload(t *request) {
	l.node.load.calls.Add(-int64(len(t.cmds)))
	l.node.load.bytes.Add(-int64(t.size))
}

// recall removes an attempt from the queue if the new request releases all of it. Then neither is
// sent, since the node has nothing of the waiter. The first request of the queue stays, as a test
// of the node. Any later request of the waiter makes its attempt final. The caller holds mu.
func (l *lane) recall(t *request, calls []wire.Call) (attempt *request) {
	if len(calls) == 0 || l.queue.first == nil {
		return nil
	}
	waiter := calls[0].Waiter()
	if waiter == "" {
		return nil
	}
	a := l.attempts[waiter]
	switch {
	case a == nil && all(calls, (*wire.Call).IsFirst):
		t.waiter = waiter
		l.attempts[waiter] = t
		return nil
	case a == nil:
		return nil
	}
	l.forget(a)
	if a == l.queue.first || !all(calls, (*wire.Call).GivesBack) || !slices.EqualFunc(a.cmds, t.cmds, sameKey) {
		return nil
	}
	l.queue.remove(a)
	return a
}

func all(calls []wire.Call, is func(*wire.Call) bool) bool {
	for i := range calls {
		if !is(&calls[i]) {
			return false
		}
	}
	return true
}

// forget makes a request final: it cannot be recalled. The caller holds mu.
func (l *lane) forget(t *request) {
	if t.waiter != "" {
		delete(l.attempts, t.waiter)
		t.waiter = ""
	}
}

// remove removes a request from the queue. The caller holds mu.
func (l *lane) remove(t *request) {
	l.forget(t)
	l.queue.remove(t)
}

// refuse empties the queue, and fails its requests. The caller holds mu, and answers the requests.
func (l *lane) refuse(err error) (over []*request) {
	for t := range l.queue.all() {
		t.fail(err)
		over = append(over, t)
		l.remove(t)
		l.unload(t)
	}
	return over
}

// expect makes the timer fire no later than the deadline. The caller holds mu.
func (l *lane) expect(deadline time.Time) {
	if !l.next.IsZero() && !deadline.Before(l.next) {
		return
	}
	l.next = deadline
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(deadline), l.expire)
	} else {
		l.timer.Reset(time.Until(deadline))
	}
}

// expire answers the requests past their deadlines, and closes a connection with overdue replies.
func (l *lane) expire() {
	now := time.Now()
	l.mu.Lock()
	l.next = time.Time{}
	if l.closed {
		l.mu.Unlock()
		return
	}
	var few [4]*request
	unsent, hung := few[:0], false
	for t := range l.queue.all() {
		if t.deadline.After(now) {
			l.expect(t.deadline)
			// A node that hangs has a long queue, and the timer fires for each request.
			if !l.unordered {
				break
			}
			continue
		}
		hung = hung || len(l.underWay) > 0 && t.mark == l.read && now.Sub(l.underWay[0].sent) >= l.node.connectLimit
		t.fail(l.node.unsent)
		unsent = append(unsent, t)
		l.remove(t)
		l.unload(t)
	}
	var late []*request
	for _, f := range l.underWay {
		for _, t := range f.requests {
			switch {
			case t.answered:
			case t.deadline.After(now):
				l.expect(t.deadline)
			default:
				t.late = true
				t.fail(l.node.late)
				late = append(late, t)
			}
		}
		if hung = hung || !f.until.After(now); !hung {
			l.expect(f.until)
		}
	}
	if hung && l.conn != nil {
		l.cut(l.conn, os.ErrDeadlineExceeded)
	}
	l.mu.Unlock()
	finish(unsent)
	for _, t := range late {
		t.answer(t.replies)
	}
}

// cut closes a connection, and discards unacknowledged bytes. Its reading goroutine does the rest.
// The caller holds mu.
func (l *lane) cut(k *connection, why error) {
	if k.cause == nil {
		k.cause = why
	}
	abort(k.Conn)
}

// close ends the worker, and fails all requests. Releases under way may still arrive.
func (l *lane) close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	over := l.refuse(l.node.Failure(quorumlock.ErrClosed, false))
	conn := l.conn
	l.mu.Unlock()
	l.stop()
	wake(l.wake)
	if conn != nil {
		_ = conn.Close() // there is nothing left to lose on it
	}
	finish(over)
}
