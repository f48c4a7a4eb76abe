package node_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// A server that restarts while nobody calls costs no call.
func TestAConnectionThatEndedWhileIdleIsNotUsed(t *testing.T) {
	s := miniredis.RunT(t)
	for name, opts := range map[string][]node.Option{
		"dialled": nil,
		"a dialer of the caller's": {node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		})},
	} {
		t.Run(name, func(t *testing.T) {
			n := dial(t, "redis://"+s.Addr(), append(opts, node.WithTimeout(never))...)
			for range 3 {
				mustAcquire(t, n, alice, 1)
				s.Close()
				if err := s.Restart(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond) // for the end to arrive
			}
		})
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
	for name, use := range map[string]func(t *testing.T, n *node.Node, restart func()) error{
		"TryLock": func(t *testing.T, n *node.Node, restart func()) error {
			restart()
			_, err := n.Mutex("x").TryLock(t.Context())
			return err
		},
		"Once": func(t *testing.T, n *node.Node, restart func()) error {
			restart()
			_, err := quorumlock.Once(t.Context(), n.Mutex("x"), time.Minute, func(context.Context) error { return nil })
			return err
		},
		"Unlock": func(t *testing.T, n *node.Node, restart func()) error {
			lease, err := n.Mutex("x").TryLock(t.Context())
			if err != nil {
				return err
			}
			restart()
			return lease.Unlock(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 1)
				n := dial(t, "redis://h", node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := servers[0].DialContext(ctx, network, addr)
					return buffered{c}, err
				}))
				// It connects.
				if _, err := transport.Of(n).Inspect(t.Context(), "x"); err != nil {
					t.Fatal(err)
				}
				if err := use(t, n, func() {
					servers[0].Restart(true)
					settle(1500 * time.Millisecond)
				}); err != nil {
					t.Error(err)
				}
			})
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
	return dial(t, "redis://h", node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := s.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return withoutDeadlines{c}, nil
	}))
}

// Timeouts of calls hold over connections without deadlines. A connection with overdue replies is
// closed, even during the handshake. An idle connection stays open after its last deadline.
func TestAConnectionWithoutDeadlinesHasLimits(t *testing.T) {
	for name, connected := range map[string]bool{"during the handshake": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 1)
				s, n := servers[0], overWithoutDeadlines(t, servers[0])
				a := newAsked()
				if connected {
					a.do(n, "before", time.Second)
					settle(0)
				}
				s.Lose() // its connections never answer again
				a.do(n, "a", 500*time.Millisecond)
				settle(2 * time.Second)
				s.Resume()
				a.check(t, "a", 500*time.Millisecond, true)
				a.do(n, "b", time.Second)
				a.check(t, "b", 2*time.Second, false)
				settle(time.Hour)
				a.do(n, "c", time.Second)
				a.check(t, "c", time.Hour+2*time.Second, false)
			})
		})
	}
}

// Locks and their messages work over connections that cannot set deadlines.
func TestLocksWorkWithoutDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 1)
		n := overWithoutDeadlines(t, servers[0])
		lease, err := n.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() {
			if err := lease.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		if _, err := dial(t, "redis://h", node.WithDialer(servers[0].DialContext)).Mutex("x").Lock(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("the next waiter: after %v, %v", time.Since(began), err)
		}
	})
}
