package node_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
)

// countsDials returns a node, and the number of connections that have been opened to it.
func countsDials(t *testing.T, s *embedded.Server) (*node.Node, *atomic.Int64) {
	dials := new(atomic.Int64)
	return dial(t, "redis://h", node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return s.DialContext(ctx, network, addr)
	})), dials
}

// The limit of connecting is a time of silence, like that of a call. A handshake has several round
// trips: with one limit for all of them, a node would never connect to a slow server, and each try
// would make the server slower.
func TestASlowServerIsConnectedTo(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		s.Delay(400 * time.Millisecond) // a round trip takes 0.8 of the node's timeout
		n, dials := countsDials(t, s)
		ctx := testkit.Within(t, time.Minute)
		lease, err := n.Mutex("x", quorumlock.WithNodeTimeout(time.Second)).Lock(ctx)
		testkit.Must(t, err, "Lock")
		testkit.Unlock(t, lease)
		if got := dials.Load(); got > 10 {
			t.Errorf("%d connections", got)
		}
	})
}

// A server that answers, but too late for each call, keeps its connections: more of them would only
// make it slower. Once it is quick, calls succeed at once.
func TestASlowServerKeepsItsConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		n, dials := countsDials(t, s)
		m := n.Mutex("x", quorumlock.WithNodeTimeout(600*time.Millisecond), quorumlock.WithTTL(2*time.Second))
		testkit.Unlock(t, testkit.Lock(t, m))
		s.Delay(400 * time.Millisecond) // a round trip takes 1.3 of the node timeout
		before := dials.Load()
		for range 60 {
			if lease, err := m.TryLock(t.Context()); err == nil {
				_ = lease.Unlock(t.Context()) // it may be too late for this call, too
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got := dials.Load() - before; got > 16 {
			t.Errorf("%d connections to a slow server", got)
		}
		s.Delay(0)
		time.Sleep(2 * time.Second)
		lease, err := m.TryLock(t.Context())
		testkit.Must(t, err, "TryLock")
		testkit.Unlock(t, lease)
	})
}

// A connection of a slow server may be dead all the same. A node counts again within two seconds.
func TestADeadConnectionToASlowServerDoesNotStay(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		s.Delay(400 * time.Millisecond)
		n, _ := countsDials(t, s)
		m := n.Mutex("x", quorumlock.WithNodeTimeout(time.Second))
		lease, err := m.Lock(testkit.Within(t, time.Minute))
		testkit.Must(t, err, "Lock")
		testkit.Unlock(t, lease)
		time.Sleep(time.Second)
		s.Delay(0)
		s.Lose()
		var lost sync.WaitGroup
		lost.Go(func() { _, _ = m.TryLock(t.Context()) })
		time.Sleep(time.Millisecond)
		s.Resume()
		time.Sleep(2 * time.Second)
		lease, err = m.TryLock(t.Context())
		testkit.Must(t, err, "TryLock")
		testkit.Unlock(t, lease)
		lost.Wait()
	})
}

// A node counts again within two seconds after a stall, even if it stalls while a lane connects, and
// the lane's other connection hangs.
func TestAStallOfAHandshakeIsOverSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		var dials atomic.Int64
		n := dial(t, "redis://h?dial_timeout=5s", node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) == 2 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			conn, err := s.DialContext(ctx, network, addr)
			if dials.Load() == 1 {
				s.Stall()
			}
			return conn, err
		}))
		m := n.Mutex("x", quorumlock.WithNodeTimeout(time.Second))
		_, _ = m.TryLock(t.Context())
		time.Sleep(2500 * time.Millisecond)
		s.Resume()
		time.Sleep(2 * time.Second)
		lease, err := m.TryLock(t.Context())
		testkit.Must(t, err, "TryLock")
		testkit.Unlock(t, lease)
	})
}
