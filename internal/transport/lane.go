package transport

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A lane sends the calls of everybody to a node over one connection, by group commit: its worker takes all that is
// queued, sends it in one pipeline, and reads the replies; what is asked meanwhile goes with the next pipeline. So
// calls are as few reads, writes and scripts (see bundle) as the load allows, and those of one lock stay in order.
//
// What holds, whatever happens to the connection:
//
//   - Every task is answered exactly once: by the worker, as its replies are read, or by the timer, at its deadline. One that is
//     recalled is not answered, and not sent.
//   - What may have been sent is never sent again. If its connection breaks, its outcome is unknown. Only a pipeline of
//     which not a byte was written moves on to the next connection, once.
//   - What is not sent at its deadline is never sent.
//   - A connection whose replies are overdue is closed: when they have taken as long as the longest call of the pipeline
//     may take in all. It is closed earlier if nothing was read for as long as connecting may take, and somebody's time
//     in the queue has run out meanwhile.
//   - The queue is bounded in calls and bytes, those of the pipeline under way included.
//
// The worker starts with the first call and ends with close. Nothing waits while it has mu.
type lane struct {
	node   *Node
	number int // a quorum.Lane
	link   *link
	wake   chan struct{} // the worker is idle and should look; capacity 1

	mu     sync.Mutex
	closed bool
	works  bool      // the worker has been started
	idle   bool      // it waits for wake
	queue  queue     // not sent
	last   time.Time // the latest deadline in the queue
	jumble bool      // a deadline in the queue may be before that of an earlier task
	flight []*task   // in the pipeline under way
	left   time.Time // when the flight was taken
	read   int       // replies so far
	timer  *time.Timer
	next   time.Time // when the timer fires; zero if it is not set

	ctx  context.Context // done when the lane is closed
	stop context.CancelFunc

	// Of the worker.
	calls  []*command    // of the pipeline, those to be sent
	cmds   []redis.Cmder // how they are sent: see pack
	bundle *bundle       // for use in cmds
	out    []byte        // their bytes
	head   []byte        // for use in unpack
	over   []*task       // to be freed
	many   bool          // the last flight was of several tasks
	spell  bool          // the next bundle is to have the source along
	stale  bool          // the server that is connected is none to ask
	proves bool          // the worker connects though nobody asks: see servers
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

func newLane(n *Node, number int, o redis.Options, dial Dialer) *lane {
	l := &lane{node: n, number: number, link: newLink(o, dial, &n.title), wake: make(chan struct{}, 1)}
	l.bundle = newBundle(l)
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// do queues calls.
func (l *lane) do(deadline time.Time, calls []wire.Call, receipt *quorum.Receipt, answer func([]wire.Reply)) {
	t := newTask(l, deadline, calls, receipt, answer)
	l.mu.Lock()
	err := l.admit(t)
	if err != nil {
		t.fail(l.node.Failure(err, false))
		l.mu.Unlock()
		t.answer(t.replies)
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
	wake := l.idle
	l.idle = false
	l.expect(deadline)
	l.mu.Unlock()
	if wake {
		l.wake <- struct{}{}
	}
}

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

// recall takes the task with the receipt out of the queue, and reports whether it did.
func (l *lane) recall(receipt *quorum.Receipt) bool {
	l.mu.Lock()
	t, _ := receipt.Task.(*task)
	if t == nil || t == l.queue.first { // the first finds out whether the node answers, however soon calls are over
		l.mu.Unlock()
		return false
	}
	l.queue.remove(t)
	l.settle(t)
	l.mu.Unlock()
	t.free()
	return true
}

// refuse empties the queue, for an error. It is called with mu held. Its caller answers the tasks.
func (l *lane) refuse(err error) (over []*task) {
	for t := range l.queue.all() {
		t.fail(err)
		l.queue.remove(t)
		l.settle(t)
		over = append(over, t)
	}
	return over
}

// expect sets the timer for a deadline, unless it fires earlier. It is called with mu held.
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

// expire answers what is past its deadline.
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
		hung = hung || len(l.flight) > 0 && t.mark == l.read && now.Sub(l.left) >= l.node.patience
		t.fail(l.node.unsent)
		over = append(over, t)
		l.queue.remove(t)
		l.settle(t)
	}
	unsent := len(over)
	for _, t := range l.flight {
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
	l.mu.Unlock()
	if hung {
		l.link.cut()
	}
	for i, t := range over {
		t.answer(t.replies)
		if i < unsent {
			t.free()
		}
	}
}

// rest is how long a connection must have been idle to be checked before it is used. A check costs a system call.
const rest = 10 * time.Millisecond

// longRest is the idle time after which a connection that is no socket needs a PING before use. A PING costs a round trip. No
// server closes idle connections sooner: the shortest timeout is a second.
const longRest = time.Second

// wait waits for a request, and returns the idle time of the connection. It returns false when the lane is closed.
func (l *lane) wait() (more bool, idle time.Duration) {
	began := time.Now()
	for {
		l.mu.Lock()
		closed, some := l.closed, l.queue.first != nil || l.proves
		l.idle = !closed && !some
		l.mu.Unlock()
		if closed || some {
			return !closed, idle
		}
		<-l.wake
		idle = time.Since(began)
	}
}

// close ends the worker, and answers what is queued and under way.
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
	wake := l.idle
	l.idle = false
	l.mu.Unlock()
	if wake {
		l.wake <- struct{}{}
	}
	l.stop()
	l.link.close()
	for _, t := range over {
		t.answer(t.replies)
	}
}
