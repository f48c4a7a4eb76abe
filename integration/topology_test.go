package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestClusterIsANode(t *testing.T) {
	needServers(t)
	client, servers := cluster(t)
	locksAsOneOfThree(t, client, servers)
}

// Since Redis 7 the messages of a channel stay at the server that has its slot. A listener must
// hear them even if it is the first call on the node, and also when the slot moves.
func TestListenersOfAClusterFollowTheirSlot(t *testing.T) {
	needShardChannels(t)
	t.Parallel() // on servers of its own
	client, servers := cluster(t)
	t.Cleanup(func() { must(t, client.Close()) })
	n, err := node.New(client)
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	const channel = "quorumlock_leader:{a}"
	heard := make(chan string, 1000)
	t.Cleanup(transport.Of(n).Listen(channel, func(message string) { heard <- message }))
	slot, err := client.ClusterKeySlot(t.Context(), channel).Result()
	must(t, err)
	at := int(slot) * len(servers) / 16384
	hears := func(message string) {
		t.Helper()
		eventually(t, patience, "the listener hears "+message, func() bool {
			must(t, servers[at].admin.SPublish(t.Context(), channel, message).Err())
			for {
				select {
				case m := <-heard:
					if m == message {
						return true
					}
				case <-time.After(50 * time.Millisecond):
					return false
				}
			}
		})
	}
	hears("before any call")

	to := (at + 1) % len(servers)
	id, err := servers[to].admin.Do(t.Context(), "cluster", "myid").Text()
	must(t, err)
	// The server with the latest epoch keeps the slot, though the former owner may still claim it.
	must(t, servers[to].admin.Do(t.Context(), "cluster", "bumpepoch").Err())
	for _, i := range []int{to, at} {
		must(t, servers[i].admin.Do(t.Context(), "cluster", "setslot", slot, "node", id).Err())
	}
	at = to
	hears("after the slot has moved")
	for _, s := range servers {
		channels, err := s.admin.PubSubChannels(t.Context(), "*").Result()
		must(t, err)
		if len(channels) > 0 {
			t.Errorf("%s has subscriptions that are not of a slot: %q", s.addr, channels)
		}
	}
}

// outOfReach fails commands of a client before they are sent, but not its subscriptions.
type outOfReach struct {
	only string // the name of the command; empty for all
	is   atomic.Bool
}

func (o *outOfReach) fails(cmd redis.Cmder) error {
	if !o.is.Load() || o.only != "" && cmd.Name() != o.only {
		return nil
	}
	err := errors.New("out of reach")
	cmd.SetErr(err)
	return err
}

func (o *outOfReach) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *outOfReach) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := o.fails(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (o *outOfReach) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := o.fails(cmd); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// channels returns how many channels of the servers match the pattern: shard channels, and others.
func channels(t *testing.T, servers []*server, pattern string) (sharded, others int) {
	t.Helper()
	for _, s := range servers {
		of, err := s.admin.PubSubShardChannels(t.Context(), pattern).Result()
		must(t, err)
		rest, err := s.admin.PubSubChannels(t.Context(), pattern).Result()
		must(t, err)
		sharded, others = sharded+len(of), others+len(rest)
	}
	return sharded, others
}

// At first it is unknown whether the cluster has shard channels. Listeners move to them once it is
// known, even without a call.
func TestListenersOfAClusterMoveOnceItsShardChannelsAreKnown(t *testing.T) {
	needShardChannels(t)
	t.Parallel() // on servers of its own
	client, servers := cluster(t)
	t.Cleanup(func() { must(t, client.Close()) })
	o := &outOfReach{only: "hello"}
	client.AddHook(o)
	o.is.Store(true)
	n, err := node.New(client)
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	const channel = "quorumlock_leader:{a}"
	t.Cleanup(transport.Of(n).Listen(channel, func(string) {}))
	eventually(t, patience, "it listens", func() bool {
		sharded, others := channels(t, servers, channel)
		return sharded == 0 && others == 1
	})
	o.is.Store(false)
	eventually(t, patience, "it listens on the shard channel alone", func() bool {
		sharded, others := channels(t, servers, channel)
		return sharded == 1 && others == 0
	})
}

// The first attempt of a waiter does not reach the cluster. So it is still unknown that the waiter
// is called on a shard channel.
func TestAWaiterOfAClusterThatWasOutOfReachIsCalledOnItsShardChannel(t *testing.T) {
	needShardChannels(t)
	client, servers := cluster(t)
	t.Cleanup(func() { must(t, client.Close()) })
	other := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].addr}, Dialer: inside(t, servers...)})
	t.Cleanup(func() { must(t, other.Close()) })
	var nodes []*node.Node
	for _, c := range []*redis.ClusterClient{client, other} {
		n, err := node.New(c)
		must(t, err)
		t.Cleanup(func() { must(t, n.Close()) })
		nodes = append(nodes, n)
	}
	lease, err := nodes[1].Mutex("a", unhurried).Lock(t.Context())
	must(t, err)

	o := new(outOfReach)
	client.AddHook(o)
	o.is.Store(true)
	granted := make(chan error, 1)
	go func() {
		next, err := nodes[0].Mutex("a", unhurried).Lock(t.Context())
		if err == nil {
			err = next.Unlock(t.Context())
		}
		granted <- err
	}()
	const pattern = "quorumlock_wake:*"
	eventually(t, patience, "it listens", func() bool {
		_, others := channels(t, servers, pattern)
		return others > 0
	})
	o.is.Store(false)
	eventually(t, patience, "it listens on the lock's shard channel", func() bool {
		sharded, _ := channels(t, servers, "quorumlock_wake:{a} *")
		return sharded == 1
	})
	must(t, lease.Unlock(t.Context()))
	must(t, <-granted)
	eventually(t, patience, "only shard channels are left", func() bool {
		_, others := channels(t, servers, pattern)
		return others == 0
	})
	noLocks(t, servers, patience)
}

// cluster returns a cluster of three masters.
func cluster(t *testing.T) (*redis.ClusterClient, []*server) {
	t.Helper()
	const masters, slots = 3, 16384
	servers := make([]*server, masters)
	var g errgroup.Group
	for i := range servers {
		g.Go(func() (err error) {
			servers[i], err = launch(&redis.Options{}, []string{"--cluster-enabled", "yes"})
			return err
		})
	}
	err := g.Wait()
	for _, s := range servers {
		if s != nil {
			t.Cleanup(func() { must(t, s.end()) })
		}
	}
	must(t, err)
	first := servers[0].ip(t)
	for i, s := range servers {
		must(t, s.admin.ClusterAddSlotsRange(t.Context(), i*slots/masters, (i+1)*slots/masters-1).Err())
		if i > 0 {
			must(t, s.admin.ClusterMeet(t.Context(), first, "6379").Err())
		}
	}
	for _, s := range servers {
		eventually(t, patience, s.addr+" sees the whole cluster", func() bool {
			info, err := s.admin.ClusterInfo(t.Context()).Result()
			must(t, err)
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", masters))
		})
	}

	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].addr}, Dialer: inside(t, servers...)})
	return client, servers
}

// inside returns a dialer for the addresses by which containers know each other.
func inside(t *testing.T, servers ...*server) func(ctx context.Context, network, addr string) (net.Conn, error) {
	t.Helper()
	outside := make(map[string]string)
	for _, s := range servers {
		ip := s.ip(t)
		outside[net.JoinHostPort(ip, "6379")] = s.addr
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if a, ok := outside[addr]; ok {
			addr = a
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

// locksAsOneOfThree uses client as a node with a decisive vote, under several names: in a cluster
// they belong to different servers.
func locksAsOneOfThree(t *testing.T, client redis.UniversalClient, servers []*server) {
	t.Helper()
	t.Cleanup(func() { must(t, client.Close()) })
	group, err := node.New(client, node.WithName("group"))
	must(t, err)
	nodes := []*node.Node{group}
	for _, s := range five[:2] {
		n, err := node.Dial(s.url())
		must(t, err)
		nodes = append(nodes, n)
	}
	c, err := redlock.New(nodes, unhurried, quorumlock.WithQuorum(3))
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })

	for _, name := range []string{"a", "b", "c", "d", "{e} in braces", "f {g} h"} {
		lease := lock(t, c, name)
		isHeld(t, c, name)
		must(t, lease.Extend(t.Context()))
		granted := make(chan error, 1)
		go func() {
			next, err := c.Mutex(name).Lock(t.Context()) // waits, and so subscribes
			if err == nil {
				err = next.Unlock(t.Context())
			}
			granted <- err
		}()
		must(t, lease.Unlock(t.Context()))
		must(t, <-granted)
	}
	noLocks(t, servers, patience)
	noLocks(t, five[:2], patience)
}

func TestTwoAddressesOfOneServerAreToldAndCountOnce(t *testing.T) {
	needServers(t)
	t.Cleanup(func() { noLocks(t, five, patience) })
	_, port, err := net.SplitHostPort(five[0].addr)
	must(t, err)
	twin := "redis://localhost:" + port
	same := func(err error) {
		t.Helper()
		e, ok := errors.AsType[*quorumlock.QuorumError](err)
		if !ok || !strings.Contains(err.Error(), "same server") {
			t.Errorf("%v, want a *QuorumError that tells of the same server", err)
		} else if e.Granted >= e.Needed {
			t.Errorf("%d votes counted of the %d needed", e.Granted, e.Needed)
		}
	}

	alone := dialURLs(t, []string{five[0].url(), twin}, unhurried)
	_, err = alone.Mutex("twins").TryLock(t.Context())
	same(err)
	noLocks(t, five, patience)

	c := dialURLs(t, []string{five[0].url(), twin, five[1].url()}, quorumlock.WithTTL(3*time.Second))
	lease := lock(t, c, "twins")
	five[1].kill(t)
	told(t, lease) // one server of the three is no majority
	_, err = c.Mutex("others").TryLock(t.Context())
	same(err)
}
