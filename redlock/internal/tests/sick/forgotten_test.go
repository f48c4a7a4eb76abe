package sick

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/node"
)

// network forgets all its connections: each dies at its next write, which may have arrived before.
type network struct {
	mu    sync.Mutex
	conns []*flow
}

type flow struct {
	net.Conn
	forgotten, arrives atomic.Bool
}

func (f *flow) Write(p []byte) (int, error) {
	if !f.forgotten.Load() {
		return f.Conn.Write(p)
	}
	if f.arrives.Load() {
		_, _ = f.Conn.Write(p)
		time.Sleep(time.Millisecond) // it runs
	}
	_ = f.Close()
	return len(p), nil
}

func (n *network) forget(arrives bool) {
	time.Sleep(time.Second) // no connection is in its handshake
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.conns {
		f.arrives.Store(arrives)
		f.forgotten.Store(true)
	}
}

func TestCallsSurviveTheLossOfAllConnections(t *testing.T) {
	for name, arrives := range map[string]bool{"nothing has arrived": false, "all has run": true} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 3)
			var all network
			var nodes []*node.Node
			for _, s := range servers {
				n, err := s.Node(node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := s.DialContext(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					all.mu.Lock()
					defer all.mu.Unlock()
					f := &flow{Conn: conn}
					all.conns = append(all.conns, f)
					return f, nil
				}))
				testkit.Must(t, err, "Dial")
				nodes = append(nodes, n)
			}
			c := testkit.Of(t, nodes)
			testkit.Warm(t, c)

			all.forget(arrives)
			lease, err := c.Mutex("x").TryLock(t.Context())
			testkit.Must(t, err, "TryLock")
			all.forget(arrives)
			testkit.OK(t, lease.Unlock(t.Context()), "Unlock")

			all.forget(arrives)
			ran, err := quorumlock.Once(t.Context(), c.Mutex("y"), time.Minute, func(context.Context) error {
				all.forget(arrives)
				return nil
			})
			if !ran || err != nil {
				t.Errorf("Once: ran %v, %v", ran, err)
			}
			testkit.Refused(t, c.Mutex("y")) // its tick is kept
			time.Sleep(2 * time.Minute)
			testkit.Nothing(t, servers)
		})
	}
}
