package transport

import (
	"context"
	"net"
	"syscall"
	"time"
)

// quiet returns a dialer that never fails. Where dial fails, it returns a connection whose first write fails with the
// error of dial. That write belongs to the handshake: no command has been sent. The call returns the error as it is.
//
// Otherwise go-redis writes a line to stderr for each failed dial, and so for each call while a node is down. It has
// one logger for the whole program and does not say which one is set. A library that silenced it would overrule its
// program. This silences the nodes of Dial alone. The errors of the calls, and quorumlock.WithLogger, say the same.
//
// Besides, go-redis stops dialling after several failures in a row: it refuses every call for up to a second, in which
// a node that is back has no vote. It does not count the failures of these connections.
func quiet(dial Dialer) Dialer {
	if !looksAtIdle { // a dial may outlast its call: a later call would get the error of an old dial
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return unreachable{failedDial{err}}, nil
		}
		return conn, nil
	}
}

// unreachable stands for a connection that could not be made.
type unreachable struct{ err failedDial }

var _ syscall.Conn = unreachable{}

func (u unreachable) Read([]byte) (int, error)  { return 0, u.err }
func (u unreachable) Write([]byte) (int, error) { return 0, u.err }

// SyscallConn fails, so that go-redis drops the connection when it was idle.
func (u unreachable) SyscallConn() (syscall.RawConn, error) { return nil, u.err }

func (unreachable) Close() error                     { return nil }
func (unreachable) LocalAddr() net.Addr              { return nowhere }
func (unreachable) RemoteAddr() net.Addr             { return nowhere }
func (unreachable) SetDeadline(time.Time) error      { return nil }
func (unreachable) SetReadDeadline(time.Time) error  { return nil }
func (unreachable) SetWriteDeadline(time.Time) error { return nil }

var nowhere net.Addr = &net.TCPAddr{}

// failedDial wraps the error of a dial or a handshake, because go-redis removes the outermost error of a failed handshake.
type failedDial struct{ error }

// Unwrap returns the error itself.
func (f failedDial) Unwrap() error { return f.error }
