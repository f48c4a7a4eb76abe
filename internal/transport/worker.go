package transport

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// errUnsent is the error of a call whose turn did not come before its deadline.
var errUnsent = notSent{errors.New("not sent: the node was not connected to, or busy with earlier calls, until the deadline")}

// errStale is the error of a call whose script the server did not know, and whose connection turned out to be unusable.
var errStale = notSent{errors.New("not sent: the node did not know the script, and the connection to it cannot be used any more")}

// notSent is the error of a call that was not sent, and never will be: there is nothing to undo.
type notSent struct{ error }

// Unwrap returns why.
func (e notSent) Unwrap() error { return e.error }

// NotSent says so to package quorum.
func (notSent) NotSent() {}

// work is the worker: it sends what is queued until the lane is closed.
func (l *lane) work() {
	defer l.link.drop()
	for {
		more, idle := l.wait()
		if !more {
			return
		}
		rested := idle >= rest
		if rested && !l.link.check() && idle >= longRest {
			l.ping()
		}
		if !l.link.isReady() && !l.connect() {
			continue
		}
		if l.many && !rested { // others may be about to ask: their calls go along
			runtime.Gosched()
		}
		if l.take() {
			l.run()
			l.land()
		} else {
			l.expire()
		}
	}
}

// connect makes the connection. It may take longer than a call may: calls are answered at their own deadlines meanwhile.
// If it fails, all who wait are told. If it only takes too long, the next try is for those whose deadline has not come.
func (l *lane) connect() bool {
	ctx, cancel := context.WithTimeout(l.ctx, l.node.patience)
	defer cancel()
	began := time.Now()
	err := l.node.servers.barred()
	if err == nil {
		err = l.join(ctx)
	}
	if err == nil {
		return true
	}
	if l.ctx.Err() == nil && (ctx.Err() != nil || isTimeout(err)) {
		if time.Since(began) < rest { // as happens with a unix socket whose backlog is full
			select {
			case <-time.After(rest):
			case <-l.ctx.Done():
			}
		}
		return false
	}
	l.mu.Lock()
	over := l.refuse(l.node.Failure(notSent{err}, false))
	l.mu.Unlock()
	for _, t := range over {
		t.answer(t.replies)
		t.free()
	}
	if l.proves {
		select {
		case <-time.After(tryEvery):
		case <-l.ctx.Done():
		}
	}
	return false
}

// witnessWait is how long a lane with a new connection waits for the witness at least.
const witnessWait = 100 * time.Millisecond

// join makes a connection and its witness. It returns an error if there is no connection, or if the
// address is at fault.
func (l *lane) join(ctx context.Context) error {
	l.proves = false
	beside, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-l.link.dialed: // of a dial that came too late
	default:
	}
	witnessed := make(chan string, 1)
	if l.node.servers.areMute() {
		witnessed <- ""
	} else {
		l.node.workers.Go(func() error {
			select {
			case <-l.link.dialed: // a node that is down is not dialled twice
				conn := l.node.witness.EphemeralConn()
				witnessed <- serverOf(beside, conn, laneProtocol)
				_ = conn.Close() // there is nothing left to lose on it
			case <-beside.Done():
			}
			return nil
		})
	}
	began := time.Now()
	server, err := l.link.connect(ctx)
	if err != nil {
		l.node.servers.failed()
		return err
	}
	if server == "" { // no witness can differ from it
		cancel()
	}
	var other string
	late := time.NewTimer(max(witnessWait, 2*time.Since(began)))
	defer late.Stop()
	select {
	case other = <-witnessed:
	case <-late.C: // such as behind a proxy that takes one connection at a time
	case <-beside.Done():
	}
	if l.proves, err = l.node.servers.admit(l.number, l.link.last.Load(), server, other); err != nil {
		l.link.drop()
	}
	return err
}

// ping tests the connection.
func (l *lane) ping() {
	ctx, cancel := context.WithTimeout(l.ctx, l.node.patience)
	defer cancel()
	l.link.ping(ctx)
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// take makes what is queued the next flight, without what is past its deadline.
func (l *lane) take() (some bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := range l.queue.all() {
		if t.deadline.After(now) {
			l.queue.remove(t)
			l.flight = append(l.flight, t)
		}
	}
	l.left, l.many = now, len(l.flight) > 1
	return len(l.flight) > 0
}

// run sends the flight and reads its replies. What the node does not know goes again, with the source of the script:
// it has not run.
//
// From here on, the replies have as long as the longest of the calls may take in all. A call that had to wait has less
// time left, and may get its reply too late; but if a connection were closed for that, a slow node would never have one.
func (l *lane) run() {
	var limit time.Duration
	l.calls, l.stale, l.spell = l.calls[:0], false, false
	for _, t := range l.flight {
		limit = max(limit, t.limit)
		l.calls = append(l.calls, t.cmds...)
	}
	deadline := time.Now().Add(limit)
	for again := false; len(l.calls) > 0; again = true {
		l.pack()
		sent, err := l.link.exec(deadline, l.cmds, l.out)
		l.unpacked()
		if err != nil {
			l.link.cut()
		}
		if err != nil || l.stale {
			l.link.drop()
		}
		if err != nil && !sent {
			err = notSent{err}
			if !again && l.moveOn() {
				return
			}
		}
		l.fail(err)
		l.unknown()
	}
	if cap(l.out) > maxOut {
		l.out = nil
	}
}

// maxOut is how many bytes are kept for the next pipeline. A full queue has many times as many.
const maxOut = 1 << 18

// moveOn puts the flight back into the queue, before all others: not a byte of it was sent. A task that has moved on
// already stays, and is told why: the server may close every connection at once. It reports whether none stays.
func (l *lane) moveOn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	stay := l.flight[:0]
	var move []*task
	for _, t := range l.flight {
		if t.moved || t.answered || l.closed {
			stay = append(stay, t)
			continue
		}
		t.moved = true
		for _, c := range t.cmds {
			c.renew()
		}
		move = append(move, t)
	}
	clear(l.flight[len(stay):])
	l.flight = stay
	l.jumble = true
	for _, t := range slices.Backward(move) {
		l.queue.pushFront(t)
	}
	l.calls = l.calls[:0]
	for _, t := range stay {
		l.calls = append(l.calls, t.cmds...)
	}
	return len(stay) == 0
}

// took gives a reply, or an error that says that it cannot be read, to its task. go-redis has just read it.
func (l *lane) took(c *command, r wire.Reply, err error) {
	switch {
	case err != nil:
		c.err, l.stale = err, true
		return
	case r.Err == nil:
	case says(r.Err, "NOSCRIPT") && !c.spelt && !c.bundled:
		c.again = true
		return
	default:
		// go-redis closes a connection to a server that has become a replica: its name may lead to another by now.
		l.stale = l.stale || says(r.Err, "READONLY")
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

// fail gives an error to those of the pipeline that have no reply.
func (l *lane) fail(err error) {
	for _, c := range l.calls {
		switch {
		case c.err != nil:
			cause := c.err
			if err != nil {
				cause = err
			}
			l.give(c, wire.Reply{Err: l.node.Failure(cause, false)})
		case !c.done || c.again && err != nil:
			l.give(c, wire.Reply{Err: l.node.Failure(err, false)})
			c.again = false
		case c.again && l.stale:
			l.give(c, wire.Reply{Err: l.node.Failure(errStale, false)})
			c.again = false
		}
	}
}

// errOvertaken is the end of a call that would run after a later one.
var errOvertaken = errors.New("the server did not know its script, and has run a later call of the same waiter")

// overtaken fails each call that must not run any more: the node has not run it, but has run a later call of the same waiter for the
// lock.
func (l *lane) overtaken() {
	if !slices.ContainsFunc(l.calls, func(c *command) bool { return c.again && c.begins && c.waiter != "" }) {
		return
	}
	ran := make(map[[2]string]bool) // by waiter and first key
	for _, c := range slices.Backward(l.calls) {
		switch key := [2]string{c.waiter, string(c.firstKey())}; {
		case !c.again:
			ran[key] = true
		case c.begins && c.waiter != "" && ran[key]:
			c.again = false
			l.give(c, wire.Reply{Err: l.node.Failure(notSent{errOvertaken}, false)})
		}
	}
}

// unknown keeps those of the pipeline that the node has not run: it did not know the script, or has refused the bundle. The first of each script has the source along, from
// which the node knows the script for the others.
func (l *lane) unknown() {
	var spelt []string // by their SHA
	l.overtaken()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = slices.DeleteFunc(l.calls, func(c *command) bool {
		if !c.again || c.task.answered {
			return true
		}
		c.renew()
		if !c.bundled && !slices.Contains(spelt, c.script.SHA) {
			spelt = append(spelt, c.script.SHA)
			c.spell()
		}
		return false
	})
}

// land ends the flight.
func (l *lane) land() {
	l.mu.Lock()
	l.over = append(l.over[:0], l.flight...)
	clear(l.flight)
	l.flight = l.flight[:0]
	for _, t := range l.over {
		l.settle(t)
	}
	l.mu.Unlock()
	for i, t := range l.over {
		if !t.late { // otherwise the timer may not have come to its end with it
			t.free()
		}
		l.over[i] = nil
	}
}
