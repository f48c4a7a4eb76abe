package node_test

import (
	"context"
	"net"
	"strings"

	"github.com/quorumlock/quorumlock/node"
)

// answering is a dialer to a server that is no Redis: it answers every command in the same way.
func answering(answer func(request string) string) node.Dialer {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			answers := make(chan string, 100) // like the buffer of a socket
			defer close(answers)
			go func() {
				for a := range answers {
					_, _ = server.Write([]byte(a))
				}
			}()
			defer server.Close() //nolint:errcheck // it is a pipe
			buf := make([]byte, 4096)
			for {
				n, err := server.Read(buf)
				if err != nil {
					return
				}
				request := string(buf[:n])
				commands := strings.Count(request, "\r\n*") + 1
				answers <- strings.Repeat(answer(request), commands)
			}
		}()
		return client, nil
	}
}
