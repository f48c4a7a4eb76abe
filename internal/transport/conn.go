package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// bounding returns a dialer whose connections have the limits of replies. If wrote is not nil, it gets the size of what is
// written to them.
func bounding(dial Dialer, wrote func(b *bounded, n int)) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return bound(conn, wrote), nil
	}
}

// unlessDone is a dialer that does not dial when ctx is done. Not every dialer looks; see hub.read.
func unlessDone(dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return dial(ctx, network, addr)
	}
}

func bound(conn net.Conn, wrote func(b *bounded, n int)) net.Conn {
	b := &bounded{Conn: conn, wrote: wrote}
	if socket, ok := conn.(syscall.Conn); ok {
		return &boundedSocket{b, socket}
	}
	return b
}

// socketOf returns the connection below TLS.
func socketOf(conn net.Conn) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}

// abort closes a connection and discards what the server's kernel has not acknowledged. After an ordinary close, the kernel would
// go on sending that for minutes, and a call that was given up, and undone over another connection, could still run.
func abort(conn net.Conn) {
	socket := socketOf(conn)
	if s, ok := socket.(interface{ SetLinger(sec int) error }); ok {
		_ = s.SetLinger(0) // it fails if the socket is closed already: then it is too late
	}
	_ = socket.Close()
}

// bounded is a connection whose reads fail for good after an invalid reply. It has deadlines, even over a connection without them.
type bounded struct {
	net.Conn
	covered covered
	replies replies
	err     error // of replies
	refusal refusal
	wrote   func(b *bounded, n int)
	reads   limit
	writes  limit
}

// SetDeadline implements net.Conn.
func (b *bounded) SetDeadline(t time.Time) error {
	return errors.Join(b.SetReadDeadline(t), b.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. It does not fail: if the connection is closed, the next read does.
func (b *bounded) SetReadDeadline(t time.Time) error {
	b.reads = newLimit(t, b.Conn.SetReadDeadline(t))
	return nil
}

// SetWriteDeadline implements net.Conn. It does not fail: if the connection is closed, the next write does.
func (b *bounded) SetWriteDeadline(t time.Time) error {
	b.writes = newLimit(t, b.Conn.SetWriteDeadline(t))
	return nil
}

// limit is the deadline of the reads, or of the writes, of a connection that cannot set deadlines, such as a channel of an SSH
// connection. At the limit the connection is closed. The zero value is no limit.
type limit struct{ at time.Time }

// newLimit returns the limit of a connection on which setting the deadline t has returned err.
func newLimit(t time.Time, err error) limit {
	if err == nil {
		return limit{}
	}
	return limit{t}
}

// start begins a read or a write. The timer is nil if there is no limit.
func (l limit) start(conn net.Conn) *time.Timer {
	if l.at.IsZero() {
		return nil
	}
	return time.AfterFunc(time.Until(l.at), func() { abort(conn) })
}

// stop ends a read or a write, and returns its error.
func stop(timer *time.Timer, err error) error {
	if timer != nil && !timer.Stop() && err != nil {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Write implements net.Conn.
func (b *bounded) Write(p []byte) (int, error) {
	out, err := b.covered.by(p)
	switch {
	case err != nil:
		return 0, err
	case len(out) == 0: // everything is sent already
		return len(p), nil
	}
	timer := b.writes.start(b.Conn)
	n, err := b.Conn.Write(out)
	err = stop(timer, err)
	if b.wrote != nil {
		b.wrote(b, n)
	}
	if err != nil {
		return 0, b.refusal.explain(err, b.Conn)
	}
	return len(p), nil
}

// Read never returns the byte at which a reply breaks a limit: go-redis would allocate what the reply announces.
func (b *bounded) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	timer := b.reads.start(b.Conn)
	n, err := b.Conn.Read(p)
	err = b.refusal.explain(stop(timer, err), b.Conn)
	if b.replies.at == atStart && b.replies.depth == 0 {
		b.refusal.read(p[:n])
	}
	n, b.err = b.replies.scan(p[:n])
	if b.err != nil {
		abort(b.Conn)
		return n, b.err
	}
	return n, err
}

// NetConn returns the connection below. go-redis looks there for a socket with data to read, as it does below TLS.
func (b *bounded) NetConn() net.Conn { return b.Conn }

// boundedSocket is bounded for a connection that is a socket itself. go-redis checks the socket of an idle connection
// before it uses the connection. It must not check the socket below TLS, so bounded has no SyscallConn.
type boundedSocket struct {
	*bounded
	socket syscall.Conn
}

// SyscallConn returns the raw socket, as net.TCPConn does.
func (b *boundedSocket) SyscallConn() (syscall.RawConn, error) { return b.socket.SyscallConn() }
