package node_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/node"
)

// greeter is a server that knows no command. script handles the first script; when it returns, the
// connection is closed.
func greeter(t *testing.T, listener net.Listener, script func(conn net.Conn)) (addr string) {
	t.Helper()
	return serveConns(t, listener, func(conn net.Conn) {
		for {
			request := make([]byte, 1<<16)
			n, err := conn.Read(request)
			if err != nil {
				return
			}
			text := string(request[:n])
			if strings.Contains(strings.ToLower(text), "eval") {
				script(conn)
				return
			}
			_, _ = io.WriteString(conn, strings.Repeat("-ERR unknown command\r\n", strings.Count(text, "\r\n*")+1))
		}
	})
}

// Unconfirmed data of an abandoned call must not reach the server later: its release may have been
// there by then. By a reset, the kernel tells the server that it has dropped data.
func TestWhatWasGivenUpDoesNotArriveLater(t *testing.T) {
	certificates, authorities := certified(t)
	dialledTLS := node.WithTLSConfig(&tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12})
	for name, reply := range map[string]string{"no answer in time": "", "no reply of Redis": "HTTP/1.1 400 Bad Request\r\n"} {
		for scheme, opts := range map[string][]node.Option{"redis": nil, "rediss": {dialledTLS}} {
			t.Run(name+", "+scheme, func(t *testing.T) {
				listener := listenAt(t, "tcp", anyPort)
				if scheme == "rediss" {
					listener = tls.NewListener(listener, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
				}
				end := make(chan error, 1)
				addr := greeter(t, listener, func(conn net.Conn) {
					_, _ = io.WriteString(conn, reply)
					_, err := conn.Read(make([]byte, 1))
					select {
					case end <- err:
					default: // an earlier call's is looked at
					}
				})
				n := dial(t, scheme+"://"+addr, append(opts, node.WithTimeout(100*time.Millisecond))...)
				for { // on a busy machine a call may be given up before it is sent
					if _, err := n.Acquire(t.Context(), "x", alice, ttl, 1); err == nil {
						t.Fatal("no error")
					}
					select {
					case err := <-end:
						if !errors.Is(err, syscall.ECONNRESET) {
							t.Errorf("the server reads %v, want a reset", err)
						}
						return
					default:
					}
				}
			})
		}
	}
}
