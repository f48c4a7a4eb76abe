package transport

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
)

// work connects, and sends the queue, until the lane is closed.
func (l *lane) work() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		l.mu.Lock()
		k, asked := l.conn, l.unsent.asked()
		closed, connects := l.closed, k == nil && (asked || l.proves || l.prepares)
		l.prepares = false
		l.mu.Unlock()
		switch {
		case closed:
			return
		case connects:
			l.connect()
			continue
		}
		l.wait(pause, l.send(k))
	}
}

// wait waits until wake has a value, and no longer than limit; 0 is no limit. Package locktest
// recognizes an idle worker by the name of this function.
func (l *lane) wait(pause *time.Timer, limit time.Duration) {
	var over <-chan time.Time
	if limit > 0 {
		pause.Reset(limit)
		over = pause.C
	}
	select {
	case <-l.wake:
	case <-over:
	}
}

// connect makes the connection, which may take longer than a call may take. Its limit is a time of
// silence, like that of a call: with a limit for all steps, a lane might never connect to a slow
// server, and each try would make the server slower. Meanwhile, calls fail at the end of their own
// limits. If connect fails, all queued calls fail. If it only takes too long, the calls within their
// limits wait for the next try. After a failed handshake, or if the address still leads to a replica,
// the next try waits, and calls fail with that error.
func (l *lane) connect() {
	ctx := newSilence(l.ctx, l.node.connectLimit)
	defer ctx.stop()
	began := time.Now()
	l.mu.Lock()
	err, early := l.retry.refused, began.Before(l.retry.at)
	l.mu.Unlock()
	if !early {
		if err = l.node.servers.barred(); err == nil {
			err = l.join(ctx)
		}
	}
	pause := time.Duration(0)
	switch {
	case err == nil:
		return
	case l.ctx.Err() == nil && (ctx.Err() != nil || isTimeout(err)):
		if time.Since(began) < retryConnect { // such as at a unix socket with a full backlog
			pause = retryConnect
		}
	default:
		l.mu.Lock()
		over := l.unsent.refuse(l.node.Failure(notSent{withoutArguments(ofHandshake(err))}, false))
		proves := l.proves
		l.mu.Unlock()
		finish(over)
		if proves {
			pause = tryEvery
		}
	}
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
		}
	}
}

// The pause after a refusal doubles with each further one, from firstRetry to lastRetry, until
// there is none for calm.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = 200 * time.Millisecond
	calm       = time.Second
)

// retry is when a lane may connect again; guarded by lane.mu.
type retry struct {
	refused error         // the answer to calls until at: see postpone
	at      time.Time     // earliest time of the next connect
	after   time.Duration // the last pause before at
}

// postpone makes the next connect wait after a refusal: of a handshake, or of a call by a replica.
// So a server that has too many clients, refuses the password or was demoted does not get a
// connection for each call. After the first refusal by a replica the lane connects at once, since
// the address may lead to another server by now.
func (r *retry) postpone(why error, replica bool) {
	now := time.Now()
	first := now.Sub(r.at) >= calm
	if first {
		r.after = 0
	}
	if r.refused = why; first && replica {
		r.at = now
		return
	}
	r.after = min(max(2*r.after, firstRetry), lastRetry)
	r.at = now.Add(r.after)
}

// silence is a context that ends once nothing was heard for a limit. The delays of its timer do not
// count: they are those of the process.
type silence struct {
	context.Context
	cancel context.CancelFunc
	timer  *time.Timer
	left   atomic.Int32 // of watches
}

func newSilence(parent context.Context, limit time.Duration) *silence {
	s := new(silence)
	s.Context, s.cancel = context.WithCancel(parent)
	s.left.Store(watches)
	started := make(chan struct{})
	s.timer = time.AfterFunc(limit/watches, func() {
		<-started
		takeTurn()
		if s.left.Add(-1) == 0 {
			s.cancel()
		} else if s.Err() == nil {
			s.timer.Reset(limit / watches)
		}
	})
	close(started)
	return s
}

// heard begins the limit anew, unless it is over.
func (s *silence) heard() {
	for left := s.left.Load(); left > 0 && !s.left.CompareAndSwap(left, watches); left = s.left.Load() {
	}
}

// isOver reports whether at most one part of the limit, of watches, is left.
func (s *silence) isOver() bool { return s.left.Load() <= 1 }

func (s *silence) stop() {
	s.timer.Stop()
	s.cancel()
}

// retryConnect is the pause after a dial that has timed out at once.
const retryConnect = 10 * time.Millisecond

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// witnessWait is how long a lane with a new connection waits for the witness at least.
const witnessWait = 100 * time.Millisecond

// join makes a connection and its witness. It returns an error if there is no connection, or if the
// address is at fault.
func (l *lane) join(ctx *silence) error {
	target := l.node.target.Load()
	conn, err := l.dial(ctx)
	if err != nil {
		return l.failed(err)
	}
	ctx.heard()
	beside, cancel := context.WithCancel(ctx)
	defer cancel()
	witnessed := make(chan string, 1)
	if l.node.servers.areMute() {
		witnessed <- ""
	} else { // a node that is down is not dialled twice
		l.node.workers.Go(func() error {
			witnessed <- l.node.look(beside)
			return nil
		})
	}
	began := time.Now()
	k, err := l.shakeHands(ctx, conn)
	shook := time.Since(began)
	if err != nil {
		if !isTimeout(err) && ctx.Err() == nil {
			l.mu.Lock()
			l.retry.postpone(err, false)
			l.mu.Unlock()
		}
		return l.failed(err)
	}
	k.shook = shook
	if k.server == "" { // no witness can contradict it
		cancel()
	}
	var other string
	late := time.NewTimer(max(witnessWait, min(2*shook, maxPatience)))
	defer late.Stop()
	select {
	case other = <-witnessed:
	case <-late.C: // such as behind a proxy that takes one connection at a time
	case <-beside.Done():
	}
	proves, err := l.node.servers.admit(l.number, k.Conn, k.server, other)
	if errors.Is(err, errDoubtful) {
		_ = k.Close() // nothing was sent on it
		cancel()
		return l.join(ctx)
	}
	l.mu.Lock()
	if l.proves = proves; l.closed {
		err = quorumlock.ErrClosed
	} else if err == nil && l.node.target.Load() != target {
		err = errMoved
	}
	if err == nil {
		l.conn, l.meter.heard = k, l.watch.own(time.Now())
		l.node.workers.Go(func() error {
			defer l.keepAuthenticated(k)()
			l.lost(k, l.readReplies(k))
			return nil
		})
	}
	l.mu.Unlock()
	if err != nil {
		_ = k.Close() // nothing was sent on it
	} else if k.title != nil && l.node.title.Load() != k.title {
		l.sayTitle()
	}
	return err
}

// failed records that the lane could not connect, and returns the reason.
func (l *lane) failed(err error) error {
	l.mu.Lock()
	l.proves = false
	l.mu.Unlock()
	l.node.servers.failed()
	return err
}

// dialling has the dials of a lane, and what its handshakes have shown.
type dialling struct {
	result  chan dialled    // those of the dials since the last connection; nil if there are none
	ctx     context.Context // of these dials: once it is done, they close their connections
	end     context.CancelFunc
	noInfo  time.Time // the last time that only INFO had no reply
	noInfos int       // number of such times in a row
}

// dial opens a connection until ctx is done. Not every dialer heeds its ctx. A late dial goes on
// beside the next one: the first connection of any of them counts, and a late error is dropped.
func (l *lane) dial(ctx context.Context) (net.Conn, error) {
	if l.dialling.result == nil {
		l.dialling.result = make(chan dialled)
		l.dialling.ctx, l.dialling.end = context.WithCancel(l.ctx)
	}
	l.node.startDial(ctx, l.dialling.ctx, l.dialling.result)
	select {
	case d := <-l.dialling.result:
		if d.err != nil {
			return nil, d.err
		}
		l.dialling.end()
		l.dialling.result = nil
		if d.to != l.node.target.Load() {
			_ = d.conn.Close() // nothing was sent on it
			return nil, errMoved
		}
		return d.conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
