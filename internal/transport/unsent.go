package transport

import (
	"fmt"
	"iter"
	"slices"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// unsent has the requests that a lane has yet to send; guarded by lane.mu.
type unsent struct {
	begun    queue               // all but first attempts
	fresh    queue               // first attempts, each without another call of its waiter
	attempts map[string]*request // the requests of fresh, by waiter
	calls    int                 // in fresh
	bytes    int                 // of these calls
}

// The limits of the first attempts in a lane's queue. The admission of attempts keeps the queue far
// below them, except at a node that is much slower than the others.
const (
	maxCalls = 8192
	maxBytes = 4 << 20
)

// refusal returns the reason why calls of that size are refused, or nil.
func (u *unsent) refusal(calls []wire.Call, size int) error {
	if (u.calls+len(calls) > maxCalls || u.bytes+size > maxBytes) && len(calls) > 0 && all(calls, (*wire.Call).IsFirst) {
		return overtaken{notSent{fmt.Errorf("not sent: first attempts with %d calls of %d bytes already wait for the node", u.calls, u.bytes)}} // the node is up
	}
	return nil
}

// push adds a request.
func (u *unsent) push(t *request) {
	if t.waiter == "" {
		u.begun.push(t)
		return
	}
	u.calls, u.bytes = u.calls+len(t.cmds), u.bytes+t.size
	u.fresh.push(t)
}

// recall removes an attempt from the queue if the new request releases all of it. Then neither is
// sent, since the node has nothing of the waiter. If no other request is queued, the attempt stays,
// as a test of the node. Any other request of the waiter makes its attempt final, and goes behind
// it.
func (u *unsent) recall(t *request, calls []wire.Call) (attempt *request) {
	waiter := ""
	if len(calls) > 0 {
		waiter = calls[0].Waiter()
	}
	if waiter == "" {
		return nil
	}
	a := u.attempts[waiter]
	switch {
	case a == nil && all(calls, (*wire.Call).IsFirst):
		t.waiter = waiter
		u.attempts[waiter] = t
		return nil
	case a == nil:
		return nil
	}
	tests := u.begun.first == nil && u.fresh.first == a
	u.remove(a)
	if !tests && all(calls, (*wire.Call).GivesBack) && slices.EqualFunc(a.cmds, t.cmds, sameKey) {
		return a
	}
	u.begun.push(a)
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

// remove removes a request from its queue: it cannot be recalled any more.
func (u *unsent) remove(t *request) {
	if t.waiter == "" {
		u.begun.remove(t)
		return
	}
	delete(u.attempts, t.waiter)
	t.waiter = ""
	u.calls, u.bytes = u.calls-len(t.cmds), u.bytes-t.size
	u.fresh.remove(t)
}

// asked reports whether a request is queued.
func (u *unsent) asked() bool { return u.begun.first != nil || u.fresh.first != nil }

// queued returns the queued requests in the order of sending. The loop may remove the current one.
func (u *unsent) queued() iter.Seq[*request] {
	return func(yield func(*request) bool) {
		for t := range u.begun.all() {
			if !yield(t) {
				return
			}
		}
		u.fresh.all()(yield)
	}
}

// refuse empties the queue, and fails its requests. The caller answers them.
func (u *unsent) refuse(err error) (over []*request) {
	for t := range u.queued() {
		t.fail(err)
		over = append(over, t)
		u.remove(t)
	}
	return over
}
