// Package embedded runs Redis nodes in the process, with the real Lua, over connections that can be
// made to fail: for tests, also inside a testing/synctest bubble, and for the demo.
package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock/node"
)

// Server is one node. It is safe for concurrent use.
type Server struct {
	Name  string
	Redis *miniredis.Miniredis // for looking at the data, past all faults

	mu      sync.Mutex
	faults  faults
	changed chan struct{} // closed and replaced when the faults change
	links   map[*link]struct{}
	running sync.WaitGroup
}

// faults is what is wrong with a server at present.
type faults struct {
	down      bool          // connections are refused
	stalled   bool          // requests wait, and run once it is over; nothing is answered
	delay     time.Duration // each way
	loseReply int           // so many replies to scripts are lost, after the script ran
}

// Start returns a running server of that name, whose expiry follows the clock.
func Start(name string) *Server {
	s := &Server{Name: name, Redis: miniredis.NewMiniRedis(), changed: make(chan struct{}), links: make(map[*link]struct{})}
	s.Redis.ClockTTL(true)
	return s
}

// Nodes starts n servers and returns them with a node for each.
func Nodes(n int, opts ...node.Option) ([]*Server, []*node.Node, error) {
	servers := make([]*Server, n)
	nodes := make([]*node.Node, n)
	for i := range servers {
		servers[i] = Start(fmt.Sprintf("node-%d", i+1))
		var err error
		if nodes[i], err = servers[i].Node(opts...); err != nil {
			return nil, nil, err
		}
	}
	return servers, nodes, nil
}

// Node returns a node that is connected to the server.
func (s *Server) Node(opts ...node.Option) (*node.Node, error) {
	own := []node.Option{node.WithName(s.Name), node.WithDialer(s.DialContext)}
	return node.Dial("redis://"+s.Name, append(own, opts...)...)
}

// Close ends the server and every connection to it.
func (s *Server) Close() {
	s.set(func(f *faults) { *f = faults{down: true} })
	s.cut()
	s.Redis.Close()
	s.running.Wait()
}

// Kill cuts all connections and refuses new ones. The data stays.
func (s *Server) Kill() {
	s.set(func(f *faults) { f.down = true })
	s.cut()
}

// Restart takes a killed server up again, with its data or without. Its script cache is empty.
func (s *Server) Restart(keepData bool) {
	s.Kill()
	if !keepData {
		s.Redis.FlushAll()
	}
	s.flushScripts()
	s.set(func(f *faults) { f.down = false })
}

// Stall holds back every request until Resume; then they run, late.
func (s *Server) Stall() { s.set(func(f *faults) { f.stalled = true }) }

// Resume ends a Stall.
func (s *Server) Resume() { s.set(func(f *faults) { f.stalled = false }) }

// Delay makes the way to the server, and the way back, take that long.
func (s *Server) Delay(d time.Duration) { s.set(func(f *faults) { f.delay = d }) }

// LoseReplies loses the replies to the next n scripts after they ran, and cuts their connections.
func (s *Server) LoseReplies(n int) { s.set(func(f *faults) { f.loseReply = n }) }

func (s *Server) set(change func(*faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.faults)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) now() (faults, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults, s.changed
}

func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.links {
		l.close()
	}
}

func (s *Server) flushScripts() {
	c, err := s.Redis.Dial()
	if err != nil {
		return
	}
	defer c.Close() //nolint:errcheck // it is a pipe
	_, _ = c.Write([]byte("*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n"))
	_, _ = c.Read(make([]byte, 64))
}

var errRefused = &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}

// DialContext connects to the server, whatever the address. It is a [node.Dialer].
func (s *Server) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		f, changed := s.now()
		if f.down {
			return nil, errRefused
		}
		if !f.stalled {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.connect()
}

// connect opens a link, unless the server has gone down: with mu held, so that nothing is opened behind
// the back of Kill or Close.
func (s *Server) connect() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.down {
		return nil, errRefused
	}
	server, err := s.Redis.Dial()
	if err != nil {
		return nil, err
	}
	client, mine := net.Pipe()
	l := &link{s: s, client: mine, server: server}
	s.links[l] = struct{}{}
	s.running.Add(2)
	go l.requests()
	go l.replies()
	return client, nil
}

// link is one connection: two pumps between the client's pipe and the server's.
type link struct {
	s      *Server
	client net.Conn
	server net.Conn

	mu     sync.Mutex
	script bool // the last request was a script
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// requests brings what the client sends to the server, even if the client has gone meanwhile: it was
// on its way.
func (l *link) requests() {
	defer l.s.running.Done()
	defer l.server.Close() //nolint:errcheck // it is a pipe
	buf := make([]byte, 1<<16)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		l.script = bytes.Contains(buf[:n], []byte("\r\nevalsha\r\n")) || bytes.Contains(buf[:n], []byte("\r\neval\r\n"))
		l.mu.Unlock()
		if !l.pass() {
			return
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *link) replies() {
	defer l.s.running.Done()
	defer func() {
		l.close()
		l.s.mu.Lock()
		delete(l.s.links, l)
		l.s.mu.Unlock()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := l.server.Read(buf)
		if err != nil || l.lose() || !l.pass() {
			return
		}
		// A client that has gone does not keep the server from running what it sent.
		_, _ = l.client.Write(buf[:n])
	}
}

// pass waits until what is on its way may arrive. It returns false if it never will.
func (l *link) pass() bool {
	f, _ := l.s.now()
	if f.delay > 0 {
		time.Sleep(f.delay)
	}
	for {
		f, changed := l.s.now()
		if f.down {
			return false
		}
		if !f.stalled {
			return true
		}
		<-changed
	}
}

// lose reports whether the reply at hand is to be lost.
func (l *link) lose() bool {
	l.mu.Lock()
	script := l.script
	l.mu.Unlock()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if !script || l.s.faults.loseReply == 0 {
		return false
	}
	l.s.faults.loseReply--
	return true
}
