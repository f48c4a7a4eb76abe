package transport

import (
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// request is a set of calls with one limit and one answer. It is answered exactly once.
type request struct {
	lane    *lane
	limit   time.Duration // how long the node may be silent
	queued  time.Time     // by the lane's own time
	answer  func([]wire.Reply)
	cmds    []*command
	replies []wire.Reply
	size    int      // of the commands, in bytes
	waiter  string   // of an attempt in the lane's fresh queue; otherwise empty
	before  *request // its neighbours in the queue
	behind  *request

	// Guarded by lane.mu.
	left     int  // replies to come
	answered bool // or being answered
	late     bool // answered by the timer, which may still use it
	moved    bool // from a connection that broke before its first byte
}

// requests has answered requests, for reuse.
var requests = sync.Pool{New: func() any { return &request{} }}

// newRequest encodes the calls. It retains only the names of their waiters.
func newRequest(l *lane, limit time.Duration, calls []wire.Call, answer func([]wire.Reply)) *request {
	t := requests.Get().(*request)
	*t = request{lane: l, limit: limit, answer: answer, cmds: t.cmds[:0], replies: t.replies[:0], left: len(calls)}
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

// free returns the request to the pool. There must be no other reference to it.
func (t *request) free() {
	t.answer, t.lane = nil, nil
	clear(t.replies)
	requests.Put(t)
}

// finish answers and frees failed requests. The caller does not hold lane.mu.
func finish(over []*request) {
	for _, t := range over {
		t.answer(t.replies)
		t.free()
	}
}

// fail sets the error of the calls without a reply. The caller holds lane.mu.
func (t *request) fail(err error) {
	for i, c := range t.cmds {
		if !c.got {
			t.replies[i] = wire.Reply{Err: err}
		}
	}
	t.answered = true
}
