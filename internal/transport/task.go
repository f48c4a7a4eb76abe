package transport

import (
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// task is what one call of Do asks for: calls that go together, and who is told the replies. It is answered once.
type task struct {
	lane     *lane
	deadline time.Time
	limit    time.Duration // how long the calls may take, from when they were asked for
	answer   func([]wire.Reply)
	cmds     []*command
	replies  []wire.Reply
	size     int    // bytes
	mark     int    // the replies that the lane had read when the task was queued
	waiter   string // whose attempt it is, if a release may recall it
	before   *task  // in the queue
	behind   *task

	// Of the lane's mutex.
	left     int  // replies to come
	answered bool // or being answered
	late     bool // answered by the timer, which may still be at it
	moved    bool // from a connection that broke before anything was sent on it
}

// tasks are those that are over. A task keeps its memory for the next.
var tasks = sync.Pool{New: func() any { return &task{} }}

// newTask keeps nothing of the calls but the names of their waiters.
func newTask(l *lane, deadline time.Time, calls []wire.Call, answer func([]wire.Reply)) *task {
	t := tasks.Get().(*task)
	*t = task{lane: l, deadline: deadline, limit: time.Until(deadline), answer: answer, cmds: t.cmds[:0], replies: t.replies[:0], left: len(calls)}
	for i := range calls {
		if len(t.cmds) < cap(t.cmds) && t.cmds[:i+1][i] != nil {
			t.cmds = t.cmds[:i+1]
		} else {
			t.cmds = append(t.cmds, &command{})
		}
		t.cmds[i].set(t, i, &calls[i])
		t.size += len(t.cmds[i].sent)
		t.replies = append(t.replies, wire.Reply{})
	}
	return t
}

// free gives the task to the next who needs one. Nobody else may have it.
func (t *task) free() {
	t.answer, t.lane = nil, nil
	clear(t.replies)
	tasks.Put(t)
}

// fail sets the error of the calls that have no reply. It is called with the lane's mutex held.
func (t *task) fail(err error) {
	for i, c := range t.cmds {
		if !c.got {
			t.replies[i] = wire.Reply{Err: err}
		}
	}
	t.answered = true
}
