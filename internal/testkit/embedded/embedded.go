// Package embedded runs Redis nodes in the process, with the real Lua, over connections with
// injected faults: for tests, also inside a testing/synctest bubble, and for the demo.
package embedded

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/quorumlock/quorumlock/node"
)

// Server is one node, or a path to one. It is safe for concurrent use.
type Server struct {
	Name  string
	Redis *miniredis.Miniredis // direct access to the data, past all faults

	behind  *Server // of a path: its server; nil for a server
	served  *server.Server
	mu      sync.Mutex
	faults  faults
	hooks   hooks
	info    info
	lua     lua
	names   map[*server.Peer]string // names that connections have set
	ran     map[string]int
	changed chan struct{} // closed and replaced when the faults change
	links   map[*link]struct{}
	running sync.WaitGroup

	// Guards closed: no connection begins while the server is being closed. Never held with mu.
	dialing sync.Mutex
	closed  bool
}

// Start returns a running server of that name. Its keys expire by the clock.
func Start(name string) *Server {
	s := newServer(name, miniredis.NewMiniRedis())
	s.Redis.ClockTTL(true)
	s.born()
	if c, err := s.Redis.Dial(); err == nil { // the first Dial starts it
		_ = c.Close()
	}
	s.serve()
	return s
}

// serve makes miniredis call s.answer for every command. Its Close and Server must not be called at
// the same time, so the result of Server is kept.
func (s *Server) serve() {
	s.served = s.Redis.Server()
	s.served.SetPreHook(s.answer)
}

// Listen makes the server reachable over the network, at a free port of this machine, past all
// faults. Connections within the process end.
func (s *Server) Listen() error {
	s.Redis.Close()
	if err := s.Redis.Start(); err != nil {
		return err
	}
	s.serve()
	return nil
}

func newServer(name string, r *miniredis.Miniredis) *Server {
	return &Server{Name: name, Redis: r, ran: make(map[string]int), changed: make(chan struct{}), links: make(map[*link]struct{})}
}

// Path returns another way to the same server, with faults and hooks of its own in addition to the
// server's. It is for a client that is cut off while others are not, and for a second address of
// one server. Close it before the server.
func (s *Server) Path(name string) *Server {
	p := newServer(name, s.Redis)
	p.behind = s
	return p
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

// Close ends the server and every connection to it. A path leaves its server running.
func (s *Server) Close() {
	s.set(func(f *faults) { *f = faults{down: true} })
	s.cut()
	if s.behind == nil {
		s.dialing.Lock()
		s.closed = true
		s.dialing.Unlock()
		s.Redis.Close()
	}
	s.running.Wait()
}

// DialContext connects to the server, whatever the address. It is a dialer for node.WithDialer.
func (s *Server) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	server, err := s.connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	client, mine := net.Pipe()
	l := &link{s: s, client: mine, server: server}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.down { // killed meanwhile
		l.close()
		return nil, errRefused
	}
	s.links[l] = struct{}{}
	s.running.Add(2)
	go l.requests()
	go l.replies()
	return client, nil
}

func (s *Server) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if s.behind != nil {
		return s.behind.DialContext(ctx, network, addr)
	}
	s.dialing.Lock()
	defer s.dialing.Unlock()
	if s.closed {
		return nil, errRefused
	}
	return s.Redis.Dial()
}

func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.links {
		l.close()
	}
}
