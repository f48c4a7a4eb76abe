package transport

import (
	"context"
	"fmt"
	"iter"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
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
// The limit of a request is a time of silence. It begins with the sending, and begins again with
// each reply on the lane, since a node that answers serves its calls in turn. So a call never fails
// because others wait. The process's own slowness does not count: see ownTime.
//
// Invariants:
//
//   - Every request is answered exactly once: after its last reply, or by the timer once the node
//     has been silent for its limit.
//   - No call that may have run is sent again. If its connection breaks, a sent call has an unknown
//     outcome. A pipeline is resent, once, only if none of its bytes was written.
//   - First attempts go behind all other calls. If another call of the same waiter follows, both go
//     with the other calls, in order.
//   - The release of a queued attempt recalls the attempt: neither is sent.
//   - A connection is closed once the node has been silent for the longest limit of a pipeline's
//     requests. It is closed earlier if a queued request reaches its limit and nothing was read for
//     connectLimit.
//   - First attempts are refused once too many of them are queued. Other calls do not count: after a
//     stall, all waiters refresh their entries, and a refused caller only makes room for the next.
//
// The worker connects, and sends to an idle or far node. For each connection, a goroutine reads the
// replies, and sends the next pipeline after the last reply. So the lane notices the end of an idle
// connection at once. The worker starts with the first call. Both end with close. Nothing blocks
// while holding mu.
type lane struct {
	node   *Node
	number int           // a client.Lane
	wake   chan struct{} // wakes the worker; capacity 1

	mu       sync.Mutex
	closed   bool
	works    bool                // the worker has been started
	conn     *connection         // nil if there is none
	busy     bool                // a pipeline is being sent, or is about to be
	begun    queue               // not sent: all but first attempts
	fresh    queue               // not sent: first attempts, each without another call of its waiter
	attempts map[string]*request // the requests of fresh, by waiter
	calls    int                 // in fresh
	bytes    int                 // of these calls
	underWay []*pipeline         // sent, oldest first
	spare    *pipeline           // for reuse; nil if there is none
	sent     time.Time           // time of the last pipeline
	heard    time.Time           // time of the last reply, or of the connection
	over     time.Time           // time of the last reply of the last complete pipeline
	perCall  time.Duration       // average time that a call of a pipeline takes the server
	// the start of the answer that has yet to return, by the lane's own time; zero if there is none
	answering time.Time
	answers   time.Duration // how long the answers of the current pipeline have taken
	lag       time.Duration // the sum of the timer's delays: see ownTime
	timer     *time.Timer
	next      time.Time // of the timer, by the real clock; zero if it is not set
	proves    bool      // the worker connects without a request: see servers
	prepares  bool      // the same, once

	refused    error         // the answer to calls until retryAt: see postpone
	retryAt    time.Time     // earliest time of the next connect
	retryAfter time.Duration // the last pause before retryAt

	ctx  context.Context // done when the lane is closed
	stop context.CancelFunc

	// Used by the worker only.
	dialled  chan dialled    // the results of the dials since the last connection; nil if there are none
	dials    context.Context // of these dials: once it is done, they close their connections
	endDials context.CancelFunc
	noInfo   time.Time // the last time that only INFO had no reply
	noInfos  int       // number of such times in a row
}

// The limits of the first attempts in a lane's queue. The admission of attempts keeps lanes far
// below, except at a node that is much slower than the others.
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
func (l *lane) do(limit time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	l.add(newRequest(l, limit, calls, answer), calls)
}

// add queues a request and its calls; AUTH has none.
func (l *lane) add(t *request, calls []wire.Call) {
	l.mu.Lock()
	if err := l.refusal(calls, t.size); err != nil {
		t.fail(l.node.Failure(err, false))
		l.mu.Unlock()
		finish([]*request{t})
		return
	}
	if attempt := l.recall(t, calls); attempt != nil {
		both := []*request{attempt, t}
		for _, t := range both {
			t.fail(l.node.target.Load().recalled)
		}
		l.mu.Unlock()
		finish(both)
		return
	}
	now := time.Now()
	t.queued = l.ownTime(now)
	if t.waiter != "" {
		l.calls, l.bytes = l.calls+len(t.cmds), l.bytes+t.size
		l.fresh.push(t)
	} else {
		l.begun.push(t)
	}
	l.begin()
	wakes := !l.busy && (l.conn == nil || len(l.underWay) == 0 || l.conn.isFar())
	l.watch(now, t.limit/watches)
	l.mu.Unlock()
	if wakes {
		wake(l.wake)
	}
}

// begin starts the worker. The caller holds mu.
func (l *lane) begin() {
	if !l.works {
		l.works = true
		l.node.workers.Go(func() error {
			l.work()
			return nil
		})
	}
}

func (l *lane) isConnected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil
}

// prepare reports whether the lane is connected, and otherwise makes it connect.
func (l *lane) prepare() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil && !l.closed {
		l.prepares = true
		l.begin()
		wake(l.wake)
	}
	return l.conn != nil
}

// isFar reports whether several pipelines may be under way.
func (k *connection) isFar() bool { return k.trip >= farTrip && k.trip != unknownTrip }

// refusal returns the reason why calls of that size are refused, or nil. The caller holds mu.
func (l *lane) refusal(calls []wire.Call, size int) error {
	switch {
	case l.closed:
		return quorumlock.ErrClosed
	case (l.calls+len(calls) > maxCalls || l.bytes+size > maxBytes) && len(calls) > 0 && all(calls, (*wire.Call).IsFirst):
		return overtaken{notSent{fmt.Errorf("not sent: first attempts with %d calls of %d bytes already wait for the node", l.calls, l.bytes)}} // the node is up
	}
	return nil
}

// recall removes an attempt from the queue if the new request releases all of it. Then neither is
// sent, since the node has nothing of the waiter. If no other request is queued, the attempt stays,
// as a test of the node. Any other request of the waiter makes its attempt final, and goes behind
// it. The caller holds mu.
func (l *lane) recall(t *request, calls []wire.Call) (attempt *request) {
	waiter := ""
	if len(calls) > 0 {
		waiter = calls[0].Waiter()
	}
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
	tests := l.begun.first == nil && l.fresh.first == a
	l.remove(a)
	if !tests && all(calls, (*wire.Call).GivesBack) && slices.EqualFunc(a.cmds, t.cmds, sameKey) {
		return a
	}
	l.begun.push(a)
	return nil
}

func all(calls []wire.Call, is func(*wire.Call) bool) bool {
	for i := range calls {
		if !is(&calls[i]) {
			return false
		}
	}
	return true
}

// remove removes a request from its queue: it cannot be recalled any more. The caller holds mu.
func (l *lane) remove(t *request) {
	if t.waiter == "" {
		l.begun.remove(t)
		return
	}
	delete(l.attempts, t.waiter)
	t.waiter = ""
	l.calls, l.bytes = l.calls-len(t.cmds), l.bytes-t.size
	l.fresh.remove(t)
}

// asked reports whether a request is queued. The caller holds mu.
func (l *lane) asked() bool { return l.begun.first != nil || l.fresh.first != nil }

// queued returns the queued requests in the order of sending. The loop may remove the current one.
// The caller holds mu.
func (l *lane) queued() iter.Seq[*request] {
	return func(yield func(*request) bool) {
		for t := range l.begun.all() {
			if !yield(t) {
				return
			}
		}
		l.fresh.all()(yield)
	}
}

// refuse empties the queue, and fails its requests. The caller holds mu, and answers the requests.
func (l *lane) refuse(err error) (over []*request) {
	for t := range l.queued() {
		t.fail(err)
		over = append(over, t)
		l.remove(t)
	}
	return over
}

// watches is how many times the timer fires within the shortest limit, and measures its own delay.
// Connecting takes about ten scheduler turns, one after the other. In a busy process each turn is
// late, so a limit must cover more turns than these.
const watches = 32

// maxBlocked is how many limits an answer may take before its time counts as silence of the node.
// An Observer that blocks forever must not block other callers, such as an Unlock, forever.
const maxBlocked = 8

// timerStep is the least time between two looks at the limits after one has ended, since each looks
// at many requests.
const timerStep = time.Millisecond

// ownTime is a clock that leaves out the delays of the lane's timer. A timer is late when the
// process is: it computes with many goroutines, collects garbage, or was stopped. The goroutine
// that reads is late then, too, and the answer may be in the socket. So limits are measured by this
// clock. The caller holds mu.
func (l *lane) ownTime(now time.Time) time.Time {
	late := time.Duration(0)
	if !l.next.IsZero() { // the timer has yet to measure this delay
		late = max(now.Sub(l.next), 0)
	}
	return now.Add(-l.lag - late)
}

// watch makes the timer fire after d at the latest. The caller holds mu.
func (l *lane) watch(now time.Time, d time.Duration) {
	at := now.Add(d)
	if !l.next.IsZero() && !at.Before(l.next) {
		return
	}
	l.next = at
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.expire)
	} else {
		l.timer.Reset(d)
	}
}

// expire answers the requests whose limit the node has been silent for, and closes a connection
// that is silent.
func (l *lane) expire() {
	takeTurn()
	real := time.Now()
	l.mu.Lock()
	if l.closed || l.next.IsZero() {
		l.mu.Unlock()
		return
	}
	l.lag += max(real.Sub(l.next), 0)
	l.next = time.Time{}
	now := l.ownTime(real)
	blocked := time.Duration(0) // in a request's answer, such as of an Observer
	if !l.answering.IsZero() {
		blocked = now.Sub(l.answering)
	}
	// left returns what is left of a limit.
	next := time.Duration(math.MaxInt64)
	left := func(since time.Time, limit time.Duration) time.Duration {
		left := limit - now.Sub(later(since, l.heard))
		if blocked > 0 {
			left = min(limit, (1+maxBlocked)*limit-blocked)
		}
		if left > 0 {
			next = min(next, left, max(limit/watches, timerStep))
		}
		return left
	}
	var few [4]*request
	unsent, hung := few[:0], false
	for _, q := range []*queue{&l.begun, &l.fresh} {
		for t := range q.all() {
			if left(t.queued, t.limit) > 0 {
				// A node that hangs has a long queue, and the timer fires for each request.
				if !q.unordered {
					break
				}
				continue
			}
			hung = hung || len(l.underWay) > 0 && now.Sub(later(l.underWay[0].sent, l.heard)) >= l.node.connectLimit
			t.fail(l.node.unsentNow())
			unsent = append(unsent, t)
			l.remove(t)
		}
	}
	var late []*request
	for _, f := range l.underWay {
		for _, t := range f.requests {
			if !t.answered && left(f.sent, t.limit) <= 0 {
				t.late = true
				t.fail(l.node.target.Load().late)
				late = append(late, t)
			}
		}
		hung = hung || left(f.sent, f.limit) <= 0
	}
	if hung && l.conn != nil {
		l.slower()
		l.cut(l.conn, os.ErrDeadlineExceeded)
	}
	if len(unsent)+len(late) > 0 { // each request has a moment of its own
		next = max(next, timerStep)
	}
	if next < math.MaxInt64 {
		l.watch(time.Now(), next)
	}
	l.mu.Unlock()
	finish(unsent)
	for _, t := range late {
		t.answer(t.replies)
	}
}

// takeTurn makes a timer's function as late as the goroutine that reads the answers. A goroutine
// that a timer starts runs next, ahead of all waiting goroutines. A reader waits for its turn: in a
// process that computes, the reader is woken by the runtime's monitor, which puts it at the end of
// the global queue, where preempted goroutines wait, too. Gosched goes to the end of the same
// queue. One call is enough, since all processors serve that queue in order. A reader in a
// processor's own queue is ahead as well: a processor serves its own queue before the global one,
// except in one turn of 61.
func takeTurn() { runtime.Gosched() }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
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
