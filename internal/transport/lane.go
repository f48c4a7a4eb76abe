package transport

import (
	"context"
	"math"
	"os"
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
// because others wait. The process's own slowness does not count: see stopwatch.
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
//     connectLimit. It is closed later if the server is slow: see patience.
//   - First attempts are refused once too many of them are queued. Other calls do not count: after a
//     stall, all waiters refresh their entries, and a refused caller only makes room for the next.
//
// The worker connects, and sends to an idle or far node. For each connection, a goroutine reads the
// replies, and sends the next pipeline after the last reply. So the lane notices the end of an idle
// connection at once. The worker starts with the first call. Both end with close. Nothing blocks
// while holding mu.
type lane struct {
	node   *Node
	number int             // a client.Lane
	wake   chan struct{}   // wakes the worker; capacity 1
	ctx    context.Context // done when the lane is closed
	stop   context.CancelFunc

	mu       sync.Mutex
	closed   bool
	works    bool        // the worker has been started
	proves   bool        // the worker connects without a request: see servers
	prepares bool        // the same, once
	conn     *connection // nil if there is none
	busy     bool        // a pipeline is being sent, or is about to be
	underWay []*pipeline // sent, oldest first
	spare    *pipeline   // for reuse; nil if there is none
	unsent   unsent
	meter    meter
	watch    stopwatch
	retry    retry

	dialling dialling // used by the worker only
}

// meter measures the server by a lane's own time: see stopwatch.
type meter struct {
	sent    time.Time     // time of the last pipeline
	heard   time.Time     // time of the last reply, or of the connection
	over    time.Time     // time of the last reply of the last complete pipeline
	perCall time.Duration // average time that a call of a pipeline takes the server
	// the start of the answer that has yet to return; zero if there is none
	answering time.Time
	answers   time.Duration // how long the answers of the current pipeline have taken
	silences  int           // how many connections in a row were closed for silence
}

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
	l := &lane{node: n, number: number, wake: make(chan struct{}, 1), unsent: unsent{attempts: make(map[string]*request)}}
	l.watch.fire = l.expire
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
	err := l.unsent.refusal(calls, t.size)
	if l.closed {
		err = quorumlock.ErrClosed
	}
	if err != nil {
		t.fail(l.node.Failure(err, false))
		l.mu.Unlock()
		finish([]*request{t})
		return
	}
	if attempt := l.unsent.recall(t, calls); attempt != nil {
		both := []*request{attempt, t}
		for _, t := range both {
			t.fail(l.node.target.Load().recalled)
		}
		l.mu.Unlock()
		finish(both)
		return
	}
	now := time.Now()
	t.queued = l.watch.own(now)
	l.unsent.push(t)
	l.begin()
	wakes := !l.busy && (l.conn == nil || len(l.underWay) == 0 || l.conn.isFar())
	l.watch.within(now, t.limit/watches)
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

// maxBlocked is how many limits an answer may take before its time counts as silence of the node.
// An Observer that blocks forever must not block other callers, such as an Unlock, forever.
const maxBlocked = 8

// timerStep is the least time between two looks at the limits after one has ended, since each looks
// at many requests.
const timerStep = time.Millisecond

// expire answers the requests whose limit the node has been silent for, and closes a connection
// that is silent.
func (l *lane) expire() {
	takeTurn()
	real := time.Now()
	l.mu.Lock()
	if l.closed || l.watch.next.IsZero() {
		l.mu.Unlock()
		return
	}
	l.watch.fired(real)
	now := l.watch.own(real)
	blocked := time.Duration(0) // in a request's answer, such as of an Observer
	if !l.meter.answering.IsZero() {
		blocked = now.Sub(l.meter.answering)
	}
	// left returns what is left of a limit.
	next := time.Duration(math.MaxInt64)
	left := func(since time.Time, limit time.Duration) time.Duration {
		left := limit - now.Sub(later(since, l.meter.heard))
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
	for _, q := range []*queue{&l.unsent.begun, &l.unsent.fresh} {
		for t := range q.all() {
			if left(t.queued, t.limit) > 0 {
				// A node that hangs has a long queue, and the timer fires for each request.
				if !q.unordered {
					break
				}
				continue
			}
			hung = hung || len(l.underWay) > 0 && now.Sub(later(l.underWay[0].sent, l.meter.heard)) >= l.patience(l.node.connectLimit)
			t.fail(l.node.unsentNow())
			unsent = append(unsent, t)
			l.unsent.remove(t)
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
		hung = hung || left(f.sent, l.patience(f.limit)) <= 0
	}
	if hung && l.conn != nil {
		l.slower()
		l.meter.silences = min(l.meter.silences+1, maxSilences)
		l.cut(l.conn, os.ErrDeadlineExceeded)
	}
	if len(unsent)+len(late) > 0 { // each request has a moment of its own
		next = max(next, timerStep)
	}
	if next < math.MaxInt64 {
		l.watch.within(time.Now(), next)
	}
	l.mu.Unlock()
	finish(unsent)
	for _, t := range late {
		t.answer(t.replies)
	}
}

// maxSilences limits how much longer a server may be silent after several closed connections.
const maxSilences = 3

// maxPatience is how long a server may be silent because it is slow, even if the limit is shorter. The
// connection may be dead instead, and a node has to count again within two seconds.
const maxPatience = 1500 * time.Millisecond

// patience returns how long the node may be silent before its connection is closed. That is the
// limit of the calls. Up to maxPatience, it doubles with each successive connection that was closed
// for silence, and it is longer if the connection has shown that the server is slow. The caller
// holds mu.
func (l *lane) patience(limit time.Duration) time.Duration {
	longer := limit << l.meter.silences
	if l.conn != nil {
		longer = max(longer, l.conn.slow())
	}
	return max(limit, min(longer, maxPatience))
}

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
	if l.watch.timer != nil {
		l.watch.timer.Stop()
	}
	over := l.unsent.refuse(l.node.Failure(quorumlock.ErrClosed, false))
	conn := l.conn
	l.mu.Unlock()
	l.stop()
	wake(l.wake)
	if conn != nil {
		_ = conn.Close() // there is nothing left to lose on it
	}
	finish(over)
}
