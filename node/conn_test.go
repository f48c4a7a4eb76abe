package node_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock/node"
)

// go-redis looks at a socket before it uses it again. A server that restarts while nobody calls costs no call then.
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
				time.Sleep(50 * time.Millisecond) // a connection that was just used is not checked
			}
		})
	}
}
