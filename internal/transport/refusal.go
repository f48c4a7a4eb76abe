package transport

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
)

// refusal is why a server closes a connection that it has not accepted. A server with too many clients, one in protected mode, and one
// that wants a password answer with an error and close the connection. go-redis takes that error for one of an old server without HELLO, and
// then learns only that the connection is closed. The zero value is that of a new connection. It is safe for concurrent use.
type refusal struct {
	accepted atomic.Bool            // the server has answered with something other than an error
	said     atomic.Pointer[string] // its last error before that; nil if there was none
}

// read notes what a read has brought, which is the beginning of a reply.
func (r *refusal) read(b []byte) {
	switch {
	case len(b) == 0 || r.accepted.Load():
	case b[0] != '-':
		r.accepted.Store(true)
	default:
		line, _, _ := bytes.Cut(b[1:], []byte("\r\n"))
		said, _, _ := strings.Cut(string(line[:min(len(line), maxSaid)]), repeated)
		r.said.Store(&said)
	}
}

// maxSaid is how much of an error is kept, in bytes. The longest is that of the protected mode, whose beginning says enough.
const maxSaid = 160

// explain returns the error of a read or write. If the server has refused the connection, the error names the reason.
func (r *refusal) explain(err error, conn net.Conn) error {
	if err == nil || r.accepted.Load() || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return err
	}
	if said := r.said.Load(); said != nil {
		return failedDial{fmt.Errorf("%s: %w", *said, err)}
	}
	if _, secure := conn.(*tls.Conn); secure {
		return err
	}
	return failedDial{fmt.Errorf("the server has closed the connection without an answer: if it wants TLS, use a rediss:// URL: %w", err)}
}
