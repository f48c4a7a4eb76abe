package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// guard is a connection for go-redis, which reads a line to its end, and allocates the announced
// length. A guard passes on whole replies only, each within the limits of reader. It has deadlines,
// even over a connection without them.
//
// If the server closes a new connection, the guard's errors contain the server's reason. With too
// many clients, in protected mode or for lack of a password, a server sends an error first.
// go-redis takes it for the answer of an old server without HELLO, and reports only a closed
// connection.
type guard struct {
	net.Conn
	replies reader
	out     []byte    // rest of the current reply, not passed on yet
	expires time.Time // of its credentials
	heard   func()    // called with each reply; nil: nobody counts
	err     error     // of the first invalid reply

	reads, writes time.Time              // deadlines that Conn cannot set; otherwise zero
	accepted      atomic.Bool            // the server has sent a reply other than an error
	said          atomic.Pointer[string] // the server's error before that; nil if none
	taken         atomic.Bool            // taken by a lane: Close does nothing
}

func newGuard(conn net.Conn) *guard {
	return &guard{Conn: conn, replies: reader{from: conn, check: true}}
}

// dialGuarded is the dialer of go-redis's own connections.
func (n *Node) dialGuarded(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil { // not every dialer does this; see hub.read
		return nil, err
	}
	conn, err := n.dialWithin(ctx)
	if err != nil {
		return nil, err
	}
	return newGuard(conn), nil
}

// unwrap returns the connection. The guard is unusable afterwards.
func (g *guard) unwrap() (net.Conn, error) {
	g.taken.Store(true)
	_ = g.Conn.SetDeadline(time.Time{}) // go-redis may have set one
	if len(g.out) > 0 || !g.replies.isEmpty() {
		return g.Conn, errUnasked
	}
	return g.Conn, nil
}

// Close implements net.Conn.
func (g *guard) Close() error {
	if g.taken.Load() {
		return nil
	}
	return g.Conn.Close()
}

// Read implements net.Conn.
func (g *guard) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	if len(g.out) == 0 {
		err := within(g.Conn, g.reads, func() error {
			r, err := g.replies.reply()
			if err == nil && g.heard != nil {
				g.heard()
			}
			switch {
			case err != nil:
			case r.Err == nil:
				g.accepted.Store(true)
			case !g.accepted.Load():
				said, _, _ := strings.Cut(r.Err.Error(), repeated)
				said = said[:min(len(said), maxSaid)]
				g.said.Store(&said)
			}
			return err
		})
		if err != nil {
			if isTimeout(err) && g.replies.isEmpty() {
				return 0, err
			}
			g.err = g.explain(err)
			abort(g.Conn)
			return 0, g.err
		}
		g.out = g.replies.buf[g.replies.start:g.replies.at]
	}
	n := copy(p, g.out)
	g.out = g.out[n:]
	return n, nil
}

// Write implements net.Conn.
func (g *guard) Write(p []byte) (n int, err error) {
	err = within(g.Conn, g.writes, func() error {
		n, err = g.Conn.Write(p)
		return err
	})
	return n, g.explain(err)
}

// maxSaid is the kept length of an error, in bytes. Only the error of the protected mode is longer,
// and its beginning is enough.
const maxSaid = 160

// explain returns the error of a read or write, with the server's reason for a refusal.
func (g *guard) explain(err error) error {
	if err == nil || g.accepted.Load() || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return err
	}
	if said := g.said.Load(); said != nil {
		return refused{fmt.Errorf("%w: %w", lastWord(*said), err)}
	}
	advice := "a proxy must support HELLO and CLIENT"
	if _, secure := g.Conn.(*tls.Conn); !secure {
		advice = "if it requires TLS, use a rediss:// URL; " + advice
	}
	return refused{fmt.Errorf("the server closed the connection without an answer: %s: %w", advice, err)}
}

// refused wraps the error of a handshake, because go-redis removes the outermost error.
type refused struct{ error }

// Unwrap returns the error itself.
func (r refused) Unwrap() error { return r.error }

// lastWord is a server's error before it closed a connection. It is no redis.Error, which go-redis
// would take for a reply on a connection that goes on.
type lastWord string

func (w lastWord) Error() string { return string(w) }

// SetDeadline implements net.Conn.
func (g *guard) SetDeadline(t time.Time) error {
	return errors.Join(g.SetReadDeadline(t), g.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. It does not fail: after a close, the next read fails.
func (g *guard) SetReadDeadline(t time.Time) error {
	g.reads = limit(t, g.Conn.SetReadDeadline(t))
	return nil
}

// SetWriteDeadline implements net.Conn. It does not fail: after a close, the next write fails.
func (g *guard) SetWriteDeadline(t time.Time) error {
	g.writes = limit(t, g.Conn.SetWriteDeadline(t))
	return nil
}

// limit returns the deadline that within must observe, because a connection could not set it.
func limit(t time.Time, err error) time.Time {
	if err == nil {
		return time.Time{}
	}
	return t
}

// within runs a read or write, and closes the connection at the deadline, if it is not zero.
func within(conn net.Conn, deadline time.Time, run func() error) error {
	if deadline.IsZero() {
		return run()
	}
	timer := time.AfterFunc(time.Until(deadline), func() { abort(conn) })
	err := run()
	if !timer.Stop() && err != nil {
		return os.ErrDeadlineExceeded
	}
	return err
}

// abort closes a connection, and discards all bytes that the server's kernel has not acknowledged.
// After an ordinary close, the kernel would send them for minutes. A call could still run after its
// release over another connection.
func abort(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if s, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = s.SetLinger(0) // if it fails, the socket is closed already
	}
	_ = conn.Close()
}
