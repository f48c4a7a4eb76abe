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

// A lane sends the calls of everybody to a node over one connection. All calls in its queue go in one
// pipeline, and the calls that come meanwhile in the next one (group commit). So there are as few
// reads and writes as the load allows, and calls stay in order. To a node nearby, one pipeline is under
// way at a time. To a far node, the next pipeline follows after a small part of a round trip.
//
// These rules hold whatever happens to the connection:
//
//   - Every task is answered exactly once: when its replies are read, or by the timer at its deadline.
//   - A call that may have been sent is never sent again. If its connection breaks, its outcome is
//     unknown. Only a pipeline of which not a byte was written goes over the next connection, once.
//   - A call that is not sent at its deadline is never sent.
//   - A release of an attempt that is still in the queue is not sent, and neither is the attempt.
//   - A connection with overdue replies is closed: when a pipeline has taken as long as its longest call
//     may take in all. It is closed earlier if nothing was read for as long as connecting may take, and
//     the time of a call in the queue has run out meanwhile.
//   - The queue is bounded in calls and bytes, including the pipelines under way.
//
// The worker connects, and sends to an idle or far node. For each connection, a goroutine reads the
// replies, and sends the next pipeline behind the last reply. So the end of an idle connection is
// noticed at once. The worker starts with the first call, and both end with close. Nothing waits
// while it has mu.
type lane struct {
	node   *Node
	number int           // a quorum.Lane
	wake   chan struct{} // the worker has something to do; capacity 1

	mu       sync.Mutex
	closed   bool
	works    bool             // the worker has been started
	conn     *connection      // nil if there is none
	busy     bool             // a pipeline is being sent, or is about to be
	queue    queue            // not sent
	attempts map[string]*task // the tasks of the queue that a release may recall, by their waiters
	last     time.Time        // the latest deadline in the queue
	jumble   bool             // a deadline in the queue may be before that of an earlier task
	flights  []*flight        // under way, in their order
	landed   *flight          // for use again; nil if there is none
	sent     time.Time        // when the last pipeline was
	read     int              // replies so far
	timer    *time.Timer
	next     time.Time // when the timer fires; zero if it is not set
	proves   bool      // the worker connects though nobody asks: see servers

	ctx  context.Context // done when the lane is closed
	stop context.CancelFunc

	// Of the worker.
	dialling <-chan dialled // a dial that goes on; nil if there is none
	noInfo   time.Time      // when INFO last had no reply, though the commands before it had
	noInfos  int            // in a row
}

// load is what is queued for a node, by all of its lanes.
type load struct {
	calls atomic.Int64
	bytes atomic.Int64
}

// The limits of a node's queue.
const (
	maxCalls = 8192
	maxBytes = 4 << 20
)

// To a node with a round trip of farTrip or more, a pipeline follows the last after one of farParts of the
// round trip, and farPause at least, unless the oldest pipeline has been under way for two round trips.
const (
	farTrip     = 500 * time.Microsecond
	farParts    = 8
	farPause    = 500 * time.Microsecond
	unknownTrip = math.MaxInt64
)

func newLane(n *Node, number int) *lane {
	l := &lane{node: n, number: number, wake: make(chan struct{}, 1), attempts: make(map[string]*task)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// do queues calls.
func (l *lane) do(deadline time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	t := newTask(l, deadline, calls, answer)
	l.mu.Lock()
	if err := l.admit(t); err != nil {
		t.fail(l.node.Failure(err, false))
		l.mu.Unlock()
		t.answer(t.replies)
		return
	}
	if attempt := l.recall(t, calls); attempt != nil {
		l.settle(attempt)
		l.settle(t)
		l.mu.Unlock()
		for _, t := range []*task{attempt, t} {
			t.fail(l.node.recalled)
			t.answer(t.replies)
			t.free()
		}
		return
	}
	t.mark = l.read
	if l.queue.first == nil {
		l.last, l.jumble = deadline, false
	}
	l.jumble = l.jumble || deadline.Before(l.last)
	l.queue.push(t)
	l.last = later(l.last, deadline)
	if !l.works {
		l.works = true
		l.node.workers.Go(func() error {
			l.work()
			return nil
		})
	}
	wakes := !l.busy && (l.conn == nil || len(l.flights) == 0 || l.conn.isFar())
	l.expect(deadline)
	l.mu.Unlock()
	if wakes {
		wake(l.wake)
	}
}

// isFar reports whether several pipelines may be under way.
func (k *connection) isFar() bool { return k.trip >= farTrip && k.trip != unknownTrip }

// admit counts what a task adds to the queue, or says why it cannot. It is called with mu held.
func (l *lane) admit(t *task) error {
	if l.closed {
		return quorumlock.ErrClosed
	}
	n := &l.node.load
	calls, bytes := n.calls.Add(int64(len(t.cmds))), n.bytes.Add(int64(t.size))
	if calls > maxCalls || bytes > maxBytes {
		l.settle(t)
		return notSent{fmt.Errorf("not sent: %d calls of %d bytes wait for the node already", calls-int64(len(t.cmds)), bytes-int64(t.size))}
	}
	return nil
}

// settle counts what a task no longer adds to the queue.
func (l *lane) settle(t *task) {
	l.node.load.calls.Add(-int64(len(t.cmds)))
	l.node.load.bytes.Add(-int64(t.size))
}

// recall takes an attempt out of the queue if the new task gives back all of it: then neither has to be
// sent, since nothing of the waiter is at the node. It leaves the first task of the queue, which finds
// out whether the node answers. Each task of a waiter ends the possibility to recall its attempt. recall is called with mu held.
func (l *lane) recall(t *task, calls []wire.Call) (attempt *task) {
	waiter := calls[0].Waiter()
	if waiter == "" || l.queue.first == nil {
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

// forget makes sure that a task is not recalled. It is called with mu held.
func (l *lane) forget(t *task) {
	if t.waiter != "" {
		delete(l.attempts, t.waiter)
		t.waiter = ""
	}
}

// remove takes a task out of the queue. It is called with mu held.
func (l *lane) remove(t *task) {
	l.forget(t)
	l.queue.remove(t)
}

// refuse empties the queue, for an error. It is called with mu held. Its caller answers the tasks.
func (l *lane) refuse(err error) (over []*task) {
	for t := range l.queue.all() {
		t.fail(err)
		over = append(over, t)
		l.remove(t)
		l.settle(t)
	}
	return over
}

// expect sets the timer for a deadline. It is called with mu held.
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

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// expire answers the tasks past their deadlines, and closes a connection with overdue replies.
func (l *lane) expire() {
	now := time.Now()
	l.mu.Lock()
	l.next = time.Time{}
	if l.closed {
		l.mu.Unlock()
		return
	}
	var few [4]*task
	over, hung := few[:0], false
	for t := range l.queue.all() {
		if t.deadline.After(now) {
			l.expect(t.deadline)
			if !l.jumble { // a node that hangs has a long queue, and the timer fires for each task
				break
			}
			continue
		}
		hung = hung || len(l.flights) > 0 && t.mark == l.read && now.Sub(l.flights[0].sent) >= l.node.patience
		t.fail(l.node.unsent)
		over = append(over, t)
		l.remove(t)
		l.settle(t)
	}
	unsent := len(over)
	for _, f := range l.flights {
		for _, t := range f.tasks {
			switch {
			case t.answered:
			case t.deadline.After(now):
				l.expect(t.deadline)
			default:
				t.late = true
				t.fail(l.node.late)
				over = append(over, t)
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
	for i, t := range over {
		t.answer(t.replies)
		if i < unsent {
			t.free()
		}
	}
}

// cut closes a connection for a reason, and throws away what has not reached the server. The goroutine
// that reads it does the rest. It is called with mu held.
func (l *lane) cut(k *connection, why error) {
	if k.cause == nil {
		k.cause = why
	}
	abort(k.Conn)
}

// close ends the worker, and answers what is queued and under way. Releases that are on their way may arrive.
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
	for _, t := range over {
		t.answer(t.replies)
	}
}
