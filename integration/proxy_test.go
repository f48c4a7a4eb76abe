package integration

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy is the way to a server, with losses on demand.
type proxy struct {
	target   string
	listener net.Listener
	requests gate
	replies  gate
	// One of so many scripts loses its reply, and the connection with it; 0: none.
	cutEvery atomic.Int64
	scripts  atomic.Int64 // asked for
	running  sync.WaitGroup

	mu     sync.Mutex
	closed chan struct{}
	conns  map[net.Conn]struct{}
}

// startProxy returns a proxy that lasts for as long as the test.
func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{target: target, listener: l, closed: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// close ends all connections and returns when no goroutine is left.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	close(p.closed)
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve forwards one connection.
func (p *proxy) serve(client net.Conn) {
	defer p.drop(client)
	if !p.keep(client) {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 2*time.Second)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		return
	}
	var asked atomic.Bool // for a script; its reply is next
	var ways sync.WaitGroup
	ways.Go(func() {
		p.pass(server, client, &p.requests, func(data []byte) bool {
			if n := bytes.Count(data, []byte("\r\nevalsha\r\n")) + bytes.Count(data, []byte("\r\neval\r\n")); n > 0 {
				p.scripts.Add(int64(n))
				asked.Store(true)
			}
			return true
		})
	})
	ways.Go(func() {
		p.pass(client, server, &p.replies, func([]byte) bool {
			every := p.cutEvery.Load()
			return !asked.Swap(false) || every == 0 || p.scripts.Load()%every != 0
		})
	})
	ways.Wait()
}

// pass copies one way while may allows it. Data held at the gate is not lost: like a packet that is
// resent, it arrives when the way is free, even if its sender has long given up.
func (p *proxy) pass(to, from net.Conn, g *gate, may func(data []byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		g.wait(p.closed)
		if n > 0 {
			if !may(buffer[:n]) {
				break
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
}

// keep reports whether the proxy is open still.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return false
	default:
		p.conns[c] = struct{}{}
		return true
	}
}

func (p *proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// gate holds data back while it is shut. The zero value is open.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed by open; nil: it is open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

func (g *gate) wait(over <-chan struct{}) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened == nil {
		return
	}
	select {
	case <-opened:
	case <-over:
	}
}
