package sick

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
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
	testkit.Must(t, err, "Dial")
	return testkit.Of(t, []*node.Node{n})
}

// Two clients with connections to different servers would both get the lock.
func TestAnAddressOfSeveralServersGrantsNoLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 2)
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
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 2)
		b := &balancer{servers: servers[:1]}
		c := balanced(t, b)
		lease := testkit.Lock(t, c.Mutex("x"))
		b.lead(servers...)
		testkit.Lost(t, lease, 3*quorumlock.DefaultTTL/2) // a last renewal may go over the old connection
		testkit.Is(t, testkit.Err(c.Mutex("x").TryLock(t.Context())), quorumlock.ErrSeveralServers, "TryLock")
	})
}

// Locks are granted soon after a fault ends, and at the first call if the fault was short: as after
// a failover during the handshake.
func TestAnAddressThatLeadsToOneServerAgainGrantsLocks(t *testing.T) {
	for name, tt := range map[string]struct{ fault, pause time.Duration }{
		"a long fault": {time.Minute, 0}, "a short fault, and no calls": {3 * time.Second, 3 * time.Second},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 2)
			b := &balancer{servers: servers}
			c := balanced(t, b)
			testkit.Is(t, testkit.Err(c.Mutex("x").TryLock(t.Context())), quorumlock.ErrSeveralServers, "TryLock")
			time.Sleep(tt.fault)
			b.lead(servers[1])
			time.Sleep(tt.pause)
			began := time.Now()
			if tt.pause > 0 {
				testkit.TryLock(t, c.Mutex("x"))
				return
			}
			lease := testkit.Lock(t, c.Mutex("x"))
			testkit.Took(t, began, time.Second, 2*time.Second, "Lock")
			testkit.Unlock(t, lease)
		})
	}
}

// The locks' connection is not renewed, but the subscription of a waiter leads to another server.
func TestASubscriptionShowsThatAnAddressIsThatOfSeveralServers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 2)
		b := &balancer{servers: servers[:1]}
		c := balanced(t, b)
		testkit.Lock(t, c.Mutex("x"))
		b.lead(servers[1], servers[0]) // the third connection is the subscription
		ctx := testkit.Within(t, time.Second)
		testkit.Is(t, testkit.Err(c.Mutex("x").Lock(ctx)), quorumlock.ErrSeveralServers, "Lock")
	})
}

// The old server stays up, and so does the subscription to it.
func TestSubscriptionsFollowTheAddressToAnotherServer(t *testing.T) {
	for name, notice := range map[string]func(b *balancer, n *node.Node){
		"the lane is closed":       func(b *balancer, _ *node.Node) { _ = b.conns[0].Close() },
		"a new connection is made": func(_ *balancer, n *node.Node) { _ = n.Client().Ping(context.Background()).Err() },
	} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, nodes := testkit.Nodes(t, 2)
			b := &balancer{servers: servers[:1]}
			n, err := node.Dial("redis://balanced", node.WithDialer(b.dial))
			testkit.Must(t, err, "Dial")
			c := testkit.Of(t, []*node.Node{n})
			testkit.Lock(t, c.Mutex("x"))
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
		testkit.Run(t, denied, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			servers[0].Deny(denied)
			b := &balancer{servers: servers}
			testkit.Lock(t, balanced(t, b).Mutex("x"))
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
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 2)
			b := &balancer{servers: servers[:1]}
			c := balanced(t, b)
			lease := testkit.Lock(t, c.Mutex("x"))
			time.Sleep(quorumlock.DefaultTTL) // renewals have connected the other lane
			testkit.Held(t, lease)
			takeOver(b, servers)
			began := time.Now()
			testkit.Lock(t, c.Mutex("y"))
			testkit.Took(t, began, 0, 2*time.Second, "granted")
		})
	}
}

func TestCheckFindsAnAddressOfSeveralServers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 4)
		b := &balancer{servers: []*embedded.Server{servers[0], servers[3]}}
		own := redis.NewClient(&redis.Options{Addr: "balanced:6379", Dialer: b.dial, DisableIdentity: true,
			// Otherwise go-redis looks up the name, outside the bubble.
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		t.Cleanup(func() { _ = own.Close() })
		dialled, err := node.Dial("redis://balanced", node.WithDialer(b.dial))
		testkit.Must(t, err, "Dial")
		t.Cleanup(func() { _ = dialled.Close() })
		adopted, err := node.New(own)
		testkit.Must(t, err, "New")
		for _, n := range []*node.Node{dialled, adopted} {
			c := testkit.Of(t, []*node.Node{n, nodes[1], nodes[2]})
			h, err := c.Diagnose(t.Context())
			if err != nil || len(h.Findings) != 1 || h.Findings[0].Kind != redlock.FindingSeveralServers || h.Findings[0].Severity != redlock.SeverityFailure || h.Findings[0].Node != n.String() {
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

// A server with two addresses has one vote, for every kind of grant, and even if one of the
// addresses missed messages. With both servers the lease goes on, and with the one it ends. The
// next call's error names the reason.
func TestTwoAddressesOfOneServerCountOnce(t *testing.T) {
	loseReplies := func(n int) func(p *embedded.Server) { return func(p *embedded.Server) { p.LoseReplies(n) } }
	loseMessages := func(p *embedded.Server) { p.LoseMessages(true) }
	nothing := func(*embedded.Server) {}
	mutex := func(c *redlock.Client) quorumlock.Locker { return c.Mutex("x") }
	reader := func(c *redlock.Client) quorumlock.Locker { return c.RWMutex("x").RLocker() }
	for _, tt := range []struct {
		name       string
		kind       func(c *redlock.Client) quorumlock.Locker
		handed     bool
		slower, at int  // addresses: which of the two is slower, and which misses something
		then       bool // when the lock was granted or handed over, and not before
		miss       func(p *embedded.Server)
	}{
		{"acquired", mutex, false, 0, 0, false, nothing},
		{"handed over", mutex, true, 2, 0, false, nothing},
		{"a reader", reader, false, 0, 0, false, nothing},
		{"the first grant is not heard", mutex, false, 0, 0, false, loseReplies(1)},
		{"the second grant is not heard", mutex, false, 0, 2, false, loseReplies(1)},
		{"the second grant of a reader is not heard", reader, false, 0, 2, false, loseReplies(1)},
		{"the first handoff is not heard", mutex, true, 2, 0, false, loseMessages},
		{"the second handoff is not heard", mutex, true, 0, 2, false, loseMessages},
		{"renewals by the first are not heard", mutex, true, 0, 0, true, loseReplies(3)},
		{"renewals by the second are not heard", mutex, false, 2, 2, true, loseReplies(3)},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 2)
			first, _ := testkit.Twin(t, servers)
			second, paths := testkit.Twin(t, servers)
			testkit.Warm(t, first)
			testkit.Warm(t, second)
			testkit.Arrive(paths[tt.slower], time.Millisecond)
			if !tt.handed && !tt.then {
				tt.miss(paths[tt.at])
			}
			var holder *quorumlock.Lease
			if tt.handed {
				holder = testkit.Lock(t, tt.kind(first))
			}
			got := testkit.Waiter(t, tt.kind(second))
			if tt.handed {
				if !tt.then {
					tt.miss(paths[tt.at])
				}
				testkit.MustUnlock(t, holder)
			}
			lease := <-got
			if tt.then {
				tt.miss(paths[tt.at])
			}
			time.Sleep(20 * time.Millisecond)
			testkit.Each(paths, func(p *embedded.Server) { p.LoseMessages(false) })
			time.Sleep(time.Minute)
			testkit.Held(t, lease)
			servers[1].Kill()
			time.Sleep(2 * quorumlock.DefaultTTL)
			testkit.Is(t, context.Cause(lease.Context()), quorumlock.ErrLost, "the lease goes on with one server of three nodes")
			_ = lease.Unlock(t.Context()) // it is lost
			_, err := tt.kind(second).TryLock(t.Context())
			if few, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || few.Granted > 1 || !strings.Contains(err.Error(), "same server") {
				t.Errorf("TryLock at one server of three nodes: %v, want a QuorumError that says so", err)
			}
			servers[1].Restart(true)
			time.Sleep(quorumlock.DefaultTTL)
			testkit.NoLocks(t, servers)
		})
	}
}

// A server hands over once. Its two addresses are no quorum for a handoff, nor for a latch.
func TestTwoAddressesOfOneServerAreNoQuorum(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 2)
		first, _ := testkit.Twin(t, servers)
		second, _ := testkit.Twin(t, servers)
		holder := testkit.Lock(t, first.Mutex("x"))
		got := testkit.Waiter(t, second.Mutex("x"))
		testkit.Done(t, first.Latch("latch", 2), "a")
		servers[1].Stall()
		go holder.Unlock(context.Background()) //nolint:errcheck // one server of three nodes does not confirm
		if testkit.Has(got) {
			t.Fatal("one server has handed over for two nodes")
		}
		for i, latch := range []*redlock.Latch{first.Latch("latch", 2), first.Latch("another", 2)} {
			ctx := testkit.Within(t, time.Second)
			if err := latch.Done(ctx, fmt.Sprint(i)); err == nil || !strings.Contains(err.Error(), "same server") {
				t.Errorf("Done of latch %d at one server of three nodes: %v, want an error that says so", i, err)
			}
		}
		servers[1].Resume()
		testkit.MustUnlock(t, <-got)
	})
}
