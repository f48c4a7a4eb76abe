package embedded

import (
	"bufio"
	"iter"
	"net"
	"sync"
	"time"
)

// link is one connection: two pumps between the client's pipe and the server's.
type link struct {
	s      *Server
	client net.Conn
	server net.Conn

	mu      sync.Mutex
	pending [][]Run // the scripts of each unanswered request, in order
	gone    bool    // the client has closed: the server's end closes after the last reply
	listens bool    // subscribed to channels: any unanswered request is a ping
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// requests forwards the client's requests to the server, even after the client has gone: they were
// on their way. It never blocks the client: go-redis holds a mutex while it writes a subscription.
func (l *link) requests() {
	defer l.s.running.Done()
	under := newQueue()
	l.s.running.Go(func() {
		defer under.close()
		in := newFrames(l.client)
		for {
			f, err := in.request()
			if err != nil {
				return
			}
			under.put(f)
		}
	})
	defer under.drain()
	for f := range under.all() {
		if !l.s.pass(there, f.at) {
			_ = l.server.Close()
			return
		}
		if now, _ := l.s.now(); now.lost {
			break // the connection stays open, so that the client waits for its own deadline
		}
		runs := scriptsOf(l.s, f.args)
		for _, run := range runs {
			l.s.beforeRun(run)
		}
		l.mu.Lock()
		if subscribes(f.args) {
			l.listens = true
		} else {
			l.pending = append(l.pending, runs)
		}
		l.mu.Unlock()
		if _, err := l.server.Write(f.raw); err != nil {
			return
		}
	}
	under.drain() // until the client has gone
	l.leave()
}

// leave closes the server's end when the last request is answered.
func (l *link) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	if len(l.pending) == 0 || l.listens {
		_ = l.server.Close()
	}
}

// replies receives the server's replies and messages. It never blocks the server: a message is sent
// from within the script that publishes it, and would block all other connections.
func (l *link) replies() {
	defer l.s.running.Done()
	under := newQueue()
	defer under.close()
	l.s.running.Go(func() { l.deliver(under) })
	in := newFrames(l.server)
	for {
		f, err := in.reply()
		if err != nil {
			return
		}
		if runs := l.answered(f); len(runs) > 0 && f.ran() {
			lost := false
			for _, run := range runs {
				l.s.afterRun(run)
				lost = l.s.loses() || lost
			}
			if lost {
				return
			}
		}
		under.put(f)
	}
}

// deliver forwards queued frames to the client.
func (l *link) deliver(under *queue) {
	defer func() {
		l.close()
		l.s.mu.Lock()
		delete(l.s.links, l)
		l.s.mu.Unlock()
		under.drain()
	}()
	lost := false
	for f := range under.all() {
		if !l.s.pass(back, f.at) {
			return
		}
		now, _ := l.s.now()
		if lost = lost || now.lost; lost {
			continue // for good: the client would match a later reply to this request
		}
		if now.deaf && f.message() {
			continue
		}
		// A client that has gone does not keep the server from running its requests.
		_, _ = l.client.Write(f.raw)
	}
}

// answered returns the scripts of the request that a reply answers, if any.
func (l *link) answered(f frame) []Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.push() || len(l.pending) == 0 {
		return nil
	}
	runs := l.pending[0]
	l.pending[0] = nil // release it for the garbage collector
	l.pending = l.pending[1:]
	if l.gone && len(l.pending) == 0 {
		defer l.server.Close() //nolint:errcheck // it is a pipe
	}
	return runs
}

// queue holds the frames that are under way. It has no bound, so that put never blocks.
type queue struct {
	mu      sync.Mutex
	arrived sync.Cond
	frames  []frame
	closed  bool
}

func newQueue() *queue {
	q := &queue{}
	q.arrived.L = &q.mu
	return q
}

func (q *queue) put(f frame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frames = append(q.frames, f)
	q.arrived.Signal()
}

// close ends the queue: put must not be called any more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.arrived.Signal()
}

// all yields each frame as it comes, until the queue is closed and empty.
func (q *queue) all() iter.Seq[frame] {
	return func(yield func(frame) bool) {
		for {
			f, ok := q.next()
			if !ok || !yield(f) {
				return
			}
		}
	}
}

func (q *queue) next() (frame, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 && !q.closed {
		q.arrived.Wait()
	}
	if len(q.frames) == 0 {
		return frame{}, false
	}
	f := q.frames[0]
	q.frames[0] = frame{} // release it for the garbage collector
	if q.frames = q.frames[1:]; len(q.frames) == 0 {
		q.frames = nil
	}
	return f, true
}

// drain discards frames until the queue is closed.
func (q *queue) drain() {
	for range q.all() {
	}
}

// frames reads requests or replies one by one.
type frames struct {
	r  *bufio.Reader
	at time.Time // time of the last bytes
}

func newFrames(c net.Conn) *frames {
	f := &frames{}
	f.r = bufio.NewReaderSize(readerFunc(func(p []byte) (int, error) {
		n, err := c.Read(p)
		f.at = time.Now()
		return n, err
	}), 1<<12)
	return f
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
