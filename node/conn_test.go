package node_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// wrapped is a dialer to s that wraps its connections.
func wrapped(s *embedded.Server, wrap func(net.Conn) net.Conn) transport.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := s.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(c), nil
	}
}

// buffered is a connection that is no socket. Writes after its end are lost, as on a socket when
// the kernel learns of the end too late.
type buffered struct{ net.Conn }

func (b buffered) Write(p []byte) (int, error) {
	_, _ = b.Conn.Write(p) // the next read has the error
	return len(p), nil
}

// The end of any kind of connection is noticed, such as that of a wrapper around a socket.
func TestAConnectionThatIsNoSocketAndEndedWhileIdleIsNotUsed(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, n *node.Node) error{
		"TryLock": func(t *testing.T, n *node.Node) error { return testkit.Err(n.Mutex("x").TryLock(t.Context())) },
		"Once": func(t *testing.T, n *node.Node) error {
			return testkit.Err(quorumlock.Once(t.Context(), n.Mutex("x"), time.Minute, func(context.Context) error { return nil }))
		},
		"Unlock": nil,
	} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			n := dial(t, "redis://h", node.WithDialer(wrapped(servers[0], func(c net.Conn) net.Conn { return buffered{c} })))
			if use == nil {
				lease := testkit.Lock(t, n.Mutex("x"))
				use = func(t *testing.T, _ *node.Node) error { return lease.Unlock(t.Context()) }
			}
			testkit.Send(t.Context(), n, count("y")) // it connects
			servers[0].Restart(true)
			settle(1500 * time.Millisecond)
			testkit.OK(t, use(t, n), "%s", name)
		})
	}
}

// withoutDeadlines is a connection that cannot set deadlines, as a channel of an SSH connection.
type withoutDeadlines struct{ net.Conn }

var errNoDeadlines = errors.New("deadline not supported")

func (withoutDeadlines) SetDeadline(time.Time) error      { return errNoDeadlines }
func (withoutDeadlines) SetReadDeadline(time.Time) error  { return errNoDeadlines }
func (withoutDeadlines) SetWriteDeadline(time.Time) error { return errNoDeadlines }

// overWithoutDeadlines dials a server over connections that cannot set deadlines.
func overWithoutDeadlines(t *testing.T, s *embedded.Server) *node.Node {
	return dial(t, "redis://h", node.WithDialer(wrapped(s, func(c net.Conn) net.Conn { return withoutDeadlines{c} })))
}

// Locks and their messages work over connections that cannot set deadlines.
func TestLocksWorkWithoutDeadlines(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, other *node.Node) {
		lease := testkit.Lock(t, overWithoutDeadlines(t, s).Mutex("x"))
		time.AfterFunc(time.Minute, func() { testkit.MustUnlock(t, lease) })
		began := time.Now()
		if _, err := other.Mutex("x").Lock(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("the next waiter: after %v, %v", time.Since(began), err)
		}
	})
}
