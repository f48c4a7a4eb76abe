package transport

import (
	"runtime"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// flight is a pipeline: calls that are sent together.
type flight struct {
	tasks []*task
	calls []*command // of the tasks, without those that have a reply
	out   []byte     // their bytes
	taken int        // replies read, of the calls
	again bool       // some of the calls go again, because the server did not know their scripts
	sent  time.Time
	until time.Time // when the replies are overdue
}

// maxOut is how many bytes are kept for the next pipeline. A full queue has many times as many.
const maxOut = 1 << 18

// send sends the next pipeline if its turn has come, for the worker. Otherwise it returns how long that
// takes; 0 if there is nothing to wait for.
func (l *lane) send(k *connection) (wait time.Duration) {
	l.mu.Lock()
	if l.busy || k == nil || l.conn != k {
		l.mu.Unlock()
		return 0
	}
	return l.sendNext(k)
}

// sendNext is send for the goroutine that may send: busy is false, or set by it. It is called with mu held, and releases it.
func (l *lane) sendNext(k *connection) (wait time.Duration) {
	f, wait := l.take(k)
	l.busy = f != nil
	l.mu.Unlock()
	if f == nil {
		return wait
	}
	for _, c := range f.calls {
		f.out = append(f.out, c.sent...)
	}
	n, err := k.Write(f.out)
	l.mu.Lock()
	l.busy = false
	var stay []*task
	if err != nil {
		l.cut(k, err)
		if n == 0 {
			stay = l.moveOn(k, f)
		}
	}
	var lost []*flight
	if l.conn != k {
		lost, l.flights = l.flights, nil
	}
	if l.queue.first != nil && (l.conn != k || k.isFar() || len(l.flights) == 0) {
		wake(l.wake)
	}
	why := k.cause
	l.mu.Unlock()
	for _, t := range stay {
		t.answer(t.replies)
		t.free()
	}
	l.failAll(lost, why)
	return 0
}

// take makes what is queued the next flight, without what is past its deadline. It is called with mu held.
//
// From then on, the replies have as long as the longest of the calls may take in all. A call that had to
// wait has less time left, and may get its reply too late; but if a connection were closed for that, a
// slow node would never have one.
func (l *lane) take(k *connection) (f *flight, wait time.Duration) {
	if l.queue.first == nil || k.stale || k.cause != nil {
		return nil, 0
	}
	now := time.Now()
	if len(l.flights) > 0 {
		if !k.isFar() || now.Sub(l.flights[0].sent) >= 2*k.trip { // what is sent to a node that hangs is lost
			return nil, 0
		}
		if wait := l.sent.Add(max(k.trip/farParts, farPause)).Sub(now); wait > 0 {
			return nil, wait
		}
	}
	if f = l.landed; f == nil {
		f = &flight{}
	}
	l.landed = nil
	limit := time.Duration(0)
	for t := range l.queue.all() {
		if !t.deadline.After(now) {
			l.expect(t.deadline) // the timer is late
			continue
		}
		l.remove(t)
		f.tasks = append(f.tasks, t)
		limit = max(limit, t.limit)
		for _, c := range t.cmds {
			if !c.got {
				f.calls = append(f.calls, c)
			}
		}
	}
	if len(f.tasks) == 0 {
		l.landed = f
		return nil, 0
	}
	f.sent, f.until = now, now.Add(limit)
	l.sent = now
	l.flights = append(l.flights, f)
	l.expect(f.until)
	return f, 0
}

// moveOn puts the last flight back into the queue, before all others: not a byte of it was sent. It returns the tasks that have
// moved on already, with an error: the server may close every connection at once. It is called with mu held.
func (l *lane) moveOn(k *connection, f *flight) (stay []*task) {
	i := slices.Index(l.flights, f)
	l.flights = slices.Delete(l.flights, i, i+1)
	for _, t := range slices.Backward(f.tasks) {
		switch {
		case t.answered:
			l.settle(t)
		case t.moved || l.closed:
			t.fail(l.node.Failure(notSent{k.cause}, false))
			l.settle(t)
			stay = append(stay, t)
		default:
			t.moved, l.jumble = true, true
			l.queue.pushFront(t)
		}
	}
	return stay
}

// listen reads the replies on a connection until it is of no use, and returns why.
func (l *lane) listen(k *connection) error {
	for {
		kind, err := k.replies.peek()
		if err != nil {
			return err
		}
		if kind == '>' { // a message that nobody has asked for
			if _, err := k.replies.reply(); err != nil {
				return err
			}
			continue
		}
		l.mu.Lock()
		var f *flight
		if len(l.flights) > 0 {
			f = l.flights[0]
			if f.taken == 0 {
				k.trip = min(k.trip, time.Since(f.sent))
			}
		}
		l.mu.Unlock()
		if f == nil {
			return errUnasked
		}
		if err := l.receive(k, f); err != nil {
			return err
		}
		if f.taken == len(f.calls) {
			if err := l.land(k, f); err != nil {
				return err
			}
		}
	}
}

// receive reads the reply to a call of the flight.
func (l *lane) receive(k *connection, f *flight) error {
	r, err := k.replies.reply()
	if err != nil {
		return err
	}
	l.took(k, f, f.calls[f.taken], r)
	f.taken++
	return nil
}

// took gives a reply to its task, unless the node has not run the call.
func (l *lane) took(k *connection, f *flight, c *command, r wire.Reply) {
	if r.Err != nil {
		if says(r.Err, "NOSCRIPT") && !c.spelt {
			c.again, f.again = true, true
			return
		}
		// A server that has become a replica is left: its name may lead to another by now.
		if says(r.Err, "READONLY") {
			l.mu.Lock()
			k.stale = true
			l.mu.Unlock()
		}
		r.Err = l.node.Failure(r.Err, false)
	}
	l.give(c, r)
}

// give answers the task if the reply is its last.
func (l *lane) give(c *command, r wire.Reply) {
	t := c.task
	l.mu.Lock()
	l.read++
	if t.answered {
		l.mu.Unlock()
		return
	}
	t.replies[c.index], c.got = r, true
	t.left--
	t.answered = t.left == 0
	last := t.answered
	l.mu.Unlock()
	if last {
		t.answer(t.replies)
	}
}

// land ends the first flight, whose replies are read, and sends the next pipeline.
func (l *lane) land(k *connection, f *flight) error {
	if f.again {
		l.dropOvertaken(k, f)
	}
	l.mu.Lock()
	l.flights = slices.Delete(l.flights, 0, 1)
	l.resend(f)
	over := error(nil)
	switch {
	case len(l.flights) > 0:
	case k.stale:
		over = errStale
	case !k.replies.isEmpty() && k.replies.buf[k.replies.at] != '>':
		over = errUnasked
	}
	sends := !l.busy && over == nil
	l.busy = l.busy || sends
	l.mu.Unlock()
	if len(f.tasks) > 1 && sends { // others may be about to ask: their calls go along
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

// dropOvertaken fails the calls that must not run any more: the node has not run them, but it has run, or may run, a later call of the
// same waiter for the lock. If the connection is to be left, it fails all calls that the node has not run.
func (l *lane) dropOvertaken(k *connection, f *flight) {
	l.mu.Lock()
	stale, behind := k.stale, slices.Clone(l.flights[1:])
	l.mu.Unlock()
	ran := make(map[[2]string]bool) // by waiter and first key
	for _, f := range behind {
		for _, c := range f.calls {
			ran[c.whose()] = true
		}
	}
	for _, c := range slices.Backward(f.calls) {
		switch {
		case !c.again:
			ran[c.whose()] = true
		case stale:
			l.give(c, wire.Reply{Err: l.node.Failure(errStale, false)})
		case c.begins && c.waiter != "" && ran[c.whose()]:
			l.give(c, wire.Reply{Err: l.node.Failure(errOvertaken, false)})
		}
	}
}

// resend puts the tasks of a flight whose calls the node has not run back into the queue, before all others. The first call of each
// script has the source along, from which the node knows the script for the others. It is called with mu held.
func (l *lane) resend(f *flight) {
	if !f.again {
		return
	}
	var scripts []string
	for _, c := range f.calls {
		if c.again && !c.got && (c.unknown || !slices.Contains(scripts, c.script.SHA)) {
			scripts = append(scripts, c.script.SHA)
			c.spell()
		}
		c.unknown, c.again = c.again, false
	}
	for _, t := range slices.Backward(f.tasks) {
		if !t.answered {
			l.queue.pushFront(t)
			l.jumble = true
		}
	}
	f.tasks = slices.DeleteFunc(f.tasks, func(t *task) bool { return !t.answered })
}

// free frees the tasks of a flight that is over, and keeps its memory for the next.
func (l *lane) free(f *flight) {
	for _, t := range f.tasks {
		l.settle(t)
		if !t.late { // otherwise the timer may not have come to its end with it
			t.free()
		}
	}
	clear(f.tasks)
	clear(f.calls)
	*f = flight{tasks: f.tasks[:0], calls: f.calls[:0], out: f.out[:0]}
	if cap(f.out) > maxOut {
		f.out = nil
	}
	l.mu.Lock()
	l.landed = f
	l.mu.Unlock()
}

// lost ends a connection, whose replies nobody reads any more. The outcome of the calls under way is unknown.
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
	var lost []*flight
	if !l.busy { // otherwise the sender does it
		lost, l.flights = l.flights, nil
	}
	if l.queue.first != nil {
		wake(l.wake)
	}
	l.mu.Unlock()
	l.failAll(lost, why)
}

// failAll gives an error to the calls of flights that have no reply.
func (l *lane) failAll(lost []*flight, why error) {
	for _, f := range lost {
		for _, c := range f.calls {
			if !c.got {
				l.give(c, wire.Reply{Err: l.node.Failure(why, false)})
			}
		}
		l.free(f)
	}
}
