package node_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
)

// A refusal that is no fault of the connection does not cost a connection each time, and its end is
// noticed within 200 ms.
func TestAServerThatRefusesCallsIsNotDialledWithEachOfThem(t *testing.T) {
	for refusal, most := range map[string]int64{
		// A lane connects within 10, 20, 40, 80, 160 and 200 ms, each time with a witness.
		"READONLY You can't write against a read only replica.":           60,
		"OOM command not allowed when used memory > 'maxmemory'.":         0,
		"NOPERM this user has no permissions":                             0,
		"NOREPLICAS Not enough good replicas to write.":                   0,
		"MISCONF Redis is configured to save RDB snapshots, but it can't": 0,
	} {
		for _, how := range []string{"it serves again", "the address moves"} {
			t.Run(refusal[:6]+", "+how, func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
					other := embedded.Start("other")
					defer other.Close()
					var dials atomic.Int64
					var moved atomic.Bool
					n := dial(t, "redis://h", node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
						dials.Add(1)
						if moved.Load() {
							return other.DialContext(ctx, network, addr)
						}
						return s.DialContext(ctx, network, addr)
					}))
					ask := func() error { return testkit.Send(t.Context(), n, count("a"))[0].Err }
					testkit.Must(t, ask(), "a call")
					s.Refuse(refusal)
					before := dials.Load()
					var callers sync.WaitGroup
					for range 8 {
						callers.Go(func() {
							for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(time.Millisecond) {
								if ask() == nil {
									t.Error("it serves")
								}
							}
						})
					}
					callers.Wait()
					if got := dials.Load() - before; got > most {
						t.Errorf("%d connections in 5 s, want %d at most", got, most)
					}
					if how == "it serves again" {
						s.Refuse("")
					} else if moved.Store(true); most == 0 { // nothing leaves a server that may serve again
						s.Kill()
					}
					time.Sleep(200 * time.Millisecond)
					testkit.OK(t, ask(), "200 ms later")
				})
			})
		}
	}
}
