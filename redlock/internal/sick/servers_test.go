package sick

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// balancer is an address that leads to its servers in turn, connection by connection.
type balancer struct {
	mu      sync.Mutex
	servers []*embedded.Server
	dials   int
	conns   []net.Conn
}

func (b *balancer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	b.mu.Lock()
	s := b.servers[b.dials%len(b.servers)]
	b.dials++
	b.mu.Unlock()
	conn, err := s.DialContext(ctx, network, addr)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = append(b.conns, conn)
	return conn, err
}

// lead sets the servers that the address leads to from now on.
func (b *balancer) lead(servers ...*embedded.Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = servers
}

// balanced returns a client of one node, at the balancer's address.
func balanced(t *testing.T, b *balancer, opts ...node.Option) *redlock.Client {
	t.Helper()
	n, err := node.Dial("redis://balanced", append(opts, node.WithDialer(b.dial))...)
	if err != nil {
		t.Fatal(err)
	}
	return locktest.Of(t, []*node.Node{n})
}

// Two clients with connections to different servers would both get the lock.
func TestAnAddressOfSeveralServersGrantsNoLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 2)
		b := &balancer{servers: servers}
		for range 2 {
			c := balanced(t, b)
			lease, err := c.Mutex("x").TryLock(t.Context())
			if !errors.Is(err, quorumlock.ErrSeveralServers) || !errors.Is(err, quorumlock.ErrNoQuorum) {
				t.Fatalf("TryLock: %v, error %v, want ErrSeveralServers", lease, err)
			}
			for _, n := range nodes {
				if s, _ := n.Status(t.Context()); !strings.Contains(err.Error(), s.RunID) {
					t.Errorf("error %q, want one that names the server %s", err, s.RunID)
				}
			}
		}
	})
}

// If the renewals or the new connection of a holder lead to another server, the lease is lost by
// its end, and the holder is notified.
func TestAnAddressThatBecomesThatOfSeveralServersGrantsNoLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 2)
		b := &balancer{servers: servers[:1]}
		c := balanced(t, b)
		lease := locktest.Lock(t, c.Mutex("x"))
		b.lead(servers...)
		locktest.Lost(t, lease, quorumlock.DefaultTTL)
		if _, err := c.Mutex("x").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrSeveralServers) {
			t.Errorf("TryLock: %v, want ErrSeveralServers", err)
		}
	})
}

func TestAnAddressThatLeadsToOneServerAgainGrantsLocks(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 2)
		b := &balancer{servers: servers}
		c := balanced(t, b)
		_, err := c.Mutex("x").TryLock(t.Context())
		if !errors.Is(err, quorumlock.ErrSeveralServers) {
			t.Fatalf("TryLock: %v, want ErrSeveralServers", err)
		}
		time.Sleep(time.Minute)
		b.lead(servers[1])
		began := time.Now()
		lease := locktest.Lock(t, c.Mutex("x"))
		if took := time.Since(began); took < time.Second || took > 2*time.Second {
			t.Errorf("granted after %v, want a second of connections to one server, and no more than two", took)
		}
		locktest.Unlock(t, lease)
	})
}

// As after a failover during the handshake: the first call finds the address of one server.
func TestAShortFaultOfAnAddressEndsWithoutCalls(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 2)
		b := &balancer{servers: servers}
		c := balanced(t, b)
		if _, err := c.Mutex("x").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrSeveralServers) {
			t.Fatalf("TryLock: %v, want ErrSeveralServers", err)
		}
		time.Sleep(3 * time.Second)
		b.lead(servers[1])
		time.Sleep(3 * time.Second)
		if _, err := c.Mutex("x").TryLock(t.Context()); err != nil {
			t.Errorf("TryLock: %v", err)
		}
	})
}

// The locks' connection is not renewed, but the subscription of a waiter leads to another server.
func TestASubscriptionShowsThatAnAddressIsThatOfSeveralServers(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 2)
		b := &balancer{servers: servers[:1]}
		c := balanced(t, b)
		locktest.Lock(t, c.Mutex("x"))
		b.lead(servers[1], servers[0]) // the third connection is the subscription
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Mutex("x").Lock(ctx); !errors.Is(err, quorumlock.ErrSeveralServers) {
			t.Errorf("Lock: %v, want ErrSeveralServers", err)
		}
	})
}

// The old server stays up, and so does the subscription to it.
func TestSubscriptionsFollowTheAddressToAnotherServer(t *testing.T) {
	for name, notice := range map[string]func(b *balancer, n *node.Node){
		"the lane is closed":       func(b *balancer, _ *node.Node) { _ = b.conns[0].Close() },
		"a new connection is made": func(_ *balancer, n *node.Node) { _ = n.Client().Ping(context.Background()).Err() },
	} {
		locktest.Run(t, name, func(t *testing.T) {
			servers, nodes := locktest.Nodes(t, 2)
			b := &balancer{servers: servers[:1]}
			n, err := node.Dial("redis://balanced", node.WithDialer(b.dial))
			if err != nil {
				t.Fatal(err)
			}
			c := locktest.Of(t, []*node.Node{n})
			locktest.Lock(t, c.Mutex("x"))
			go c.Mutex("x").Lock(t.Context()) //nolint:errcheck // it waits until the end of the test
			time.Sleep(time.Second)
			b.lead(servers[1])
			notice(b, n)
			time.Sleep(5 * time.Second)
			if channels, err := nodes[1].Client().PubSubChannels(t.Context(), "*").Result(); err != nil || len(channels) == 0 {
				t.Errorf("channels with a subscription at the new server: %v, error %v", channels, err)
			}
		})
	}
}

// Without the permission for INFO, the server of a connection is unknown. This is no fault.
func TestServersThatDoNotTellWhoTheyAreGrantLocks(t *testing.T) {
	for _, denied := range []string{"info", "client"} {
		locktest.Run(t, denied, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 1)
			servers[0].Deny(denied)
			b := &balancer{servers: servers}
			locktest.Lock(t, balanced(t, b).Mutex("x"))
		})
	}
}

// A restart changes the run ID, and a failover the server. Neither is a fault.
func TestAServerThatTakesOverGrantsLocks(t *testing.T) {
	for name, takeOver := range map[string]func(b *balancer, servers []*embedded.Server){
		"a restart":                func(_ *balancer, s []*embedded.Server) { s[0].Kill(); s[0].Restart(true) },
		"a failover":               func(b *balancer, s []*embedded.Server) { b.lead(s[1]); s[0].Kill() },
		"a failover from a frozen": func(b *balancer, s []*embedded.Server) { b.lead(s[1]); s[0].Stall() },
	} {
		locktest.Run(t, name, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 2)
			b := &balancer{servers: servers[:1]}
			c := balanced(t, b)
			lease := locktest.Lock(t, c.Mutex("x"))
			time.Sleep(quorumlock.DefaultTTL) // renewals have connected the other lane
			locktest.Held(t, lease)
			takeOver(b, servers)
			began := time.Now()
			locktest.Lock(t, c.Mutex("y"))
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("granted after %v", took)
			}
		})
	}
}

func TestCheckFindsAnAddressOfSeveralServers(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 4)
		b := &balancer{servers: []*embedded.Server{servers[0], servers[3]}}
		own := redis.NewClient(&redis.Options{Addr: "balanced:6379", Dialer: b.dial, DisableIdentity: true})
		t.Cleanup(func() { _ = own.Close() })
		dialled, err := node.Dial("redis://balanced", node.WithDialer(b.dial))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = dialled.Close() })
		for _, n := range []*node.Node{dialled, node.New(own)} {
			c := locktest.Of(t, []*node.Node{n, nodes[1], nodes[2]})
			h, err := c.Diagnose(t.Context())
			if err != nil || len(h.Findings) != 1 || h.Findings[0].Kind != redlock.SeveralServers || h.Findings[0].Severity != redlock.Failure || h.Findings[0].Node != n.String() {
				t.Errorf("%v, %v, want that %s is several servers", h, err, n)
			}
			for _, n := range []*node.Node{nodes[0], nodes[3]} {
				if s, _ := n.Status(t.Context()); !strings.Contains(h.String(), s.RunID) {
					t.Errorf("the report does not name the server %s:\n%v", s.RunID, h)
				}
			}
		}
	})
}
