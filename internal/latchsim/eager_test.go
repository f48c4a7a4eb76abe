package latchsim

import (
	"bytes"
	"context"
	"io"
	"net"

	"github.com/quorumlock/quorumlock/node"
)

// eager returns a dialer whose connections are there at once, and take at once what is written, as a kernel does: what is
// behind them may take its time. Those for messages take another way, on which nothing takes time. go-redis holds a mutex
// while it connects them and writes to them, and in a bubble time stands still while somebody waits for a mutex.
func eager(calls, messages node.Dialer) node.Dialer {
	return func(_ context.Context, network, addr string) (net.Conn, error) {
		client, end := net.Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		taken := make(chan []byte, 1<<8)
		go func() {
			defer cancel()
			defer close(taken)
			for {
				b := make([]byte, 4<<10)
				n, err := end.Read(b)
				if err != nil {
					return
				}
				taken <- b[:n]
			}
		}()
		go func() {
			defer end.Close() //nolint:errcheck // it is a pipe
			first, ok := <-taken
			if !ok {
				return
			}
			dial := calls
			if bytes.Contains(first, []byte("hello\r\n$1\r\n3\r\n")) { // the lanes of a node use version 2 of the protocol
				dial = messages
			}
			server, err := dial(ctx, network, addr)
			if err != nil {
				return
			}
			defer server.Close() //nolint:errcheck // it is a pipe
			go func() {
				defer end.Close() //nolint:errcheck // it is a pipe
				_, _ = io.Copy(end, server)
			}()
			for b := first; ok; b, ok = <-taken {
				if _, err := server.Write(b); err != nil {
					return
				}
			}
		}()
		return client, nil
	}
}
