package node_test

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// The client uses a promoted replica of a cluster within two seconds. go-redis alone reloads its
// map of the cluster once a minute, and not after a failed connection.
func TestAClusterCountsAgainAfterAFailover(t *testing.T) {
	for name, fail := range map[string]func(*embedded.Server){"refused": (*embedded.Server).Kill, "silent": (*embedded.Server).Stall} {
		for deadlines, prompt := range map[string]bool{"": false, ", with deadlines": true} {
			locktest.Run(t, name+deadlines, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 2)
				addrs := []string{"10.0.0.1:6379", "10.0.0.2:6379"}
				var master atomic.Int32
				n := over(t, redis.NewClusterClient(&redis.ClusterOptions{
					Addrs: addrs[:1], ContextTimeoutEnabled: prompt, DialTimeout: time.Second,
					Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
						return servers[slices.Index(addrs, addr)].DialContext(ctx, network, addr)
					},
					ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
						return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addrs[master.Load()]}}}}, nil
					}}))
				locktest.Must(t, locktest.Send(t.Context(), n, count("a"))[0].Err, "before the failure")
				fail(servers[0])
				for began := time.Now(); time.Since(began) < 4*time.Second; settle(100 * time.Millisecond) {
					if r := locktest.Send(t.Context(), n, count("a"))[0]; r.Err == nil {
						t.Fatal("a server that has failed has answered")
					}
				}
				master.Store(1)
				failedOver := time.Now()
				for locktest.Send(t.Context(), n, count("a"))[0].Err != nil {
					settle(100 * time.Millisecond)
				}
				locktest.Took(t, failedOver, 0, 2*time.Second, "the return of the cluster")
			})
		}
	}
}
