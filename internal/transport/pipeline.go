package transport

import (
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// pipeline is the calls of one write.
type pipeline struct {
	requests []*request
	calls    []*command    // of the requests, without the answered ones
	out      []byte        // the encoded calls
	alone    int           // number of calls with a command of their own; the others are the bundle
	source   bool          // the bundle sends its source
	taken    int           // number of replies read
	resend   bool          // the server did not run some calls
	encoded  atomic.Bool   // set before the write; a reply before that belongs to no call
	unsent   bool          // none of its bytes was written
	wrote    time.Time     // by the real clock
	sent     time.Time     // by the lane's own time
	limit    time.Duration // how long the node may be silent: the longest limit of the requests
}

// maxOut limits the memory kept for the next pipeline, in bytes. A full queue has far more.
const maxOut = 1 << 18

// send sends the next pipeline if it is due. Otherwise it returns the time until then; 0 if there
// is nothing to wait for. Only the worker calls it.
func (l *lane) send(k *connection) (wait time.Duration) {
	l.mu.Lock()
	if l.busy || k == nil || l.conn != k {
		l.mu.Unlock()
		return 0
	}
	return l.sendNext(k)
}

// sendNext is send for the goroutine that may send: busy is false, or set by that goroutine. The
// caller holds mu; sendNext releases it.
func (l *lane) sendNext(k *connection) (wait time.Duration) {
	f, wait := l.nextPipeline(k)
	l.busy = f != nil
	l.mu.Unlock()
	if f == nil {
		return wait
	}
	f.encode()
	out := f.out
	f.encoded.Store(true)
	n, err := k.Write(out)
	l.mu.Lock()
	l.busy = false
	if err != nil {
		l.cut(k, err)
		if slices.Contains(l.underWay, f) { // otherwise replies to no call have answered it
			f.unsent = n == 0
		}
	}
	var lost []*pipeline
	var stay []*request
	if l.conn != k {
		lost, stay = l.takeLost(k)
	}
	if l.unsent.asked() && (l.conn != k || k.isFar() || len(l.underWay) == 0) {
		wake(l.wake)
	}
	why := k.cause
	l.mu.Unlock()
	finish(stay)
	l.failAll(lost, why)
	return 0
}

// nextPipeline makes a pipeline of the queued requests, or returns the time until it is due. The
// caller holds mu.
func (l *lane) nextPipeline(k *connection) (f *pipeline, wait time.Duration) {
	if !l.unsent.asked() || k.stale || k.cause != nil {
		return nil, 0
	}
	real := time.Now()
	now := l.watch.own(real)
	if len(l.underWay) > 0 {
		// Calls sent to a node that hangs are lost.
		if !k.isFar() || now.Sub(l.underWay[0].sent) >= 2*k.trip {
			return nil, 0
		}
		if wait := l.meter.sent.Add(max(k.trip/farParts, farPause)).Sub(now); wait > 0 {
			return nil, wait
		}
	}
	if f = l.spare; f == nil {
		f = &pipeline{}
	}
	l.spare = nil
	least := time.Duration(math.MaxInt64)
	most := l.meter.mostFresh()
	for t := range l.unsent.queued() {
		if t.waiter != "" && len(f.calls) >= most {
			break
		}
		l.unsent.remove(t)
		least = min(least, t.limit)
		f.requests = append(f.requests, t)
		f.limit = max(f.limit, t.limit)
		l.watch.within(real, t.limit/watches)
		for _, c := range t.cmds {
			if !c.got {
				f.calls = append(f.calls, c)
			}
		}
	}
	if f.alone = len(f.calls); l.node.bundles(k) {
		f.alone = aloneIn(f.calls, l.meter.mostInBundle(least))
	}
	if f.alone < len(f.calls) {
		f.source, k.source = k.source, false
	}
	f.wrote, f.sent, l.meter.sent = real, now, now
	l.underWay = append(l.underWay, f)
	return f, 0
}

// takeLost empties underWay after the end of a connection: the last of its reader and its sender
// calls it. The calls of lost have an unknown outcome. An unsent pipeline moves to the next
// connection, without the requests of stay. The caller holds mu.
func (l *lane) takeLost(k *connection) (lost []*pipeline, stay []*request) {
	lost, l.underWay = l.underWay, nil
	if last := len(lost) - 1; last >= 0 && lost[last].unsent && lost[last].taken == 0 {
		stay = l.moveOn(k, lost[last])
		lost = lost[:last]
	}
	return lost, stay
}

// moveOn puts an unsent pipeline back at the front of the queue. Requests that have moved before
// fail, because the server may close every connection at once; moveOn returns them. The caller
// holds mu.
func (l *lane) moveOn(k *connection, f *pipeline) (stay []*request) {
	for _, t := range slices.Backward(f.requests) {
		switch {
		case t.answered:
		case t.moved || l.closed:
			t.fail(l.node.Failure(notSent{k.cause}, false))
			stay = append(stay, t)
		default:
			t.moved = true
			l.unsent.begun.pushFront(t)
		}
	}
	return stay
}

// readReplies reads the replies on a connection until the connection ends, and returns the cause.
func (l *lane) readReplies(k *connection) error {
	for {
		kind, err := k.replies.peek()
		if err != nil {
			return err
		}
		if kind == '>' { // a push message
			if _, err := k.replies.reply(); err != nil {
				return err
			}
			continue
		}
		l.mu.Lock()
		var f *pipeline
		now := time.Now()
		l.meter.heard = l.watch.own(now)
		if len(l.underWay) > 0 {
			f = l.underWay[0]
			if f.taken == 0 {
				k.trip = min(k.trip, now.Sub(f.wrote))
			}
		}
		l.mu.Unlock()
		if f == nil || !f.encoded.Load() {
			return errUnasked
		}
		if err := l.receive(k, f); err != nil {
			return err
		}
		if f.taken == len(f.calls) {
			if err := l.complete(k, f); err != nil {
				return err
			}
		}
	}
}

// receive reads the reply to a call of the pipeline, or to its bundle.
func (l *lane) receive(k *connection, f *pipeline) error {
	if f.taken == f.alone {
		return l.receiveBundle(k, f)
	}
	r, err := k.replies.reply()
	if err != nil {
		return err
	}
	l.took(k, f, f.calls[f.taken], r)
	f.taken++
	return nil
}

// took passes a reply to its request, unless the node did not run the call.
func (l *lane) took(k *connection, f *pipeline, c *command, r wire.Reply) {
	if r.Err != nil {
		if says(r.Err, "NOSCRIPT") && f.taken < f.alone && !c.sendsSource {
			c.resend, f.resend = true, true
			return
		}
		// Leave a server that became a replica: its name may lead to another server now.
		if says(r.Err, "READONLY") {
			l.mu.Lock()
			if !k.stale {
				l.retry.postpone(r.Err, true)
			}
			k.stale = true
			l.mu.Unlock()
		}
		r.Err = l.node.Failure(r.Err, false)
	}
	l.give(c, r)
}

// give stores a reply, and answers the request if no reply is missing.
func (l *lane) give(c *command, r wire.Reply) {
	t := c.request
	l.mu.Lock()
	if t.answered {
		l.mu.Unlock()
		return
	}
	t.replies[c.index], c.got = r, true
	t.left--
	t.answered = t.left == 0
	last := t.answered
	var began time.Time
	if last {
		began = l.watch.own(time.Now())
		l.meter.answering = began
	}
	l.mu.Unlock()
	if last { // the time of the answer is neither silence of the node nor its work
		t.answer(t.replies)
		l.mu.Lock()
		now := l.watch.own(time.Now())
		l.meter.answering, l.meter.heard, l.meter.answers = time.Time{}, now, l.meter.answers+now.Sub(began)
		l.mu.Unlock()
	}
}

// complete ends the first pipeline, after its last reply, and sends the next.
func (l *lane) complete(k *connection, f *pipeline) error {
	if f.resend {
		l.dropOvertaken(k, f)
	}
	l.mu.Lock()
	l.meter.served(f, k.trip)
	l.underWay = slices.Delete(l.underWay, 0, 1)
	l.resend(f)
	var unsent []*request
	if l.closed { // the worker, which would send them, has ended
		unsent = l.unsent.refuse(l.node.Failure(quorumlock.ErrClosed, false))
	}
	over := error(nil)
	switch {
	case len(l.underWay) > 0:
	case k.stale:
		over = errStale
	case !k.replies.isEmpty() && k.replies.buf[k.replies.at] != '>':
		over = errUnasked
	}
	sends := !l.busy && over == nil
	l.busy = l.busy || sends
	l.mu.Unlock()
	finish(unsent)
	// Callers that are about to queue calls come along.
	if len(f.requests) > 1 && sends {
		runtime.Gosched()
	}
	l.free(f)
	if sends {
		l.mu.Lock()
		if l.sendNext(k) > 0 {
			wake(l.wake)
		}
	}
	return over
}

// dropOvertaken fails each unrun call that a later call of its waiter for the same lock may have
// overtaken. On a stale connection it fails all unrun calls.
func (l *lane) dropOvertaken(k *connection, f *pipeline) {
	l.mu.Lock()
	stale, behind := k.stale, slices.Clone(l.underWay[1:])
	l.mu.Unlock()
	ran := make(map[[2]string]bool) // by waiter and first key
	for _, f := range behind {
		for _, c := range f.calls {
			ran[c.whose()] = true
		}
	}
	for _, c := range slices.Backward(f.calls) {
		switch {
		case !c.resend:
			ran[c.whose()] = true
		case stale:
			l.give(c, wire.Reply{Err: l.node.Failure(errStale, false)})
		case c.begins && c.waiter != "" && ran[c.whose()]:
			l.give(c, wire.Reply{Err: l.node.Failure(errOvertaken, false)})
		}
	}
}

// resend puts requests with unrun calls back at the front of the queue. The first call of each
// unknown script sends its source, which the node keeps for the others. The caller holds mu.
func (l *lane) resend(f *pipeline) {
	if !f.resend {
		return
	}
	var scripts []string
	for i, c := range f.calls {
		isUnknown := c.resend && i < f.alone
		if isUnknown && !c.got && (c.wasUnknown || !slices.Contains(scripts, c.script.SHA())) {
			scripts = append(scripts, c.script.SHA())
			c.sendSource()
		}
		c.wasUnknown, c.resend = isUnknown, false
	}
	for _, t := range slices.Backward(f.requests) {
		if !t.answered {
			l.unsent.begun.pushFront(t)
		}
	}
	f.requests = slices.DeleteFunc(f.requests, func(t *request) bool { return !t.answered })
}

// free frees the requests of a completed or lost pipeline, and keeps its memory for the next.
func (l *lane) free(f *pipeline) {
	for _, t := range f.requests {
		if !t.late { // the timer may still use it
			t.free()
		}
	}
	clear(f.requests)
	clear(f.calls)
	*f = pipeline{requests: f.requests[:0], calls: f.calls[:0], out: f.out[:0]}
	if cap(f.out) > maxOut {
		f.out = nil
	}
	l.mu.Lock()
	l.spare = f
	l.mu.Unlock()
}

// lost ends a connection after its last read. The calls under way have an unknown outcome.
func (l *lane) lost(k *connection, why error) {
	l.mu.Lock()
	if k.cause == nil {
		k.cause = why
	}
	why = k.cause
	if l.closed {
		_ = k.Close() // there is nothing left to lose on it
	} else {
		abort(k.Conn)
	}
	l.conn = nil
	var lost []*pipeline
	var stay []*request
	if !l.busy { // otherwise the sender does it
		lost, stay = l.takeLost(k)
	}
	if l.unsent.asked() {
		wake(l.wake)
	}
	l.mu.Unlock()
	finish(stay)
	l.failAll(lost, why)
}

// failAll answers the calls without a reply with an error.
func (l *lane) failAll(lost []*pipeline, why error) {
	why = breaks(why)
	for _, f := range lost {
		for _, c := range f.calls {
			if !c.got {
				l.give(c, wire.Reply{Err: l.node.Failure(why, false)})
			}
		}
		l.free(f)
	}
}
