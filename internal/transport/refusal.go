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

// refusal is a server's reason for closing a new connection. With too many clients, in protected mode or for lack of a password, a
// server answers with an error and closes the connection. go-redis mistakes that error for the answer of an old server without
// HELLO, and reports only a closed connection. The zero value is for a new connection. It is safe for concurrent use.
type refusal struct {
	accepted atomic.Bool            // the server has answered with something other than an error
	said     atomic.Pointer[string] // its last error before that; nil if there was none
}

// read notes the bytes of a read, which are the beginning of a reply.
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

// maxSaid is the kept length of an error, in bytes. Only the error of the protected mode is longer, and its beginning is
// enough.
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
