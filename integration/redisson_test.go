package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/proof/redisson"
	"github.com/quorumlock/quorumlock/redlock"
)

// jvm returns a client of Redisson's at a server.
func jvm(t *testing.T, r redis.UniversalClient, opts ...redisson.Option) *redisson.Client {
	c := redisson.New(r, opts...)
	t.Cleanup(c.Close)
	return c
}

// Java and Go contend for one lock. Each side gets its share, and there is one holder at a time.
func TestJavaAndGoShareALockFairly(t *testing.T) {
	needServers(t)
	for _, tt := range []struct{ each, servers int }{{1, 1}, {6, 1}, {3, 3}} {
		t.Run(fmt.Sprintf("%d and %d at %d", tt.each, tt.each, tt.servers), func(t *testing.T) {
			name := fmt.Sprintf("mixed-%d-%d", tt.each, tt.servers)
			t.Cleanup(func() { noLocks(t, five[:tt.servers], patience) })
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			var mu sync.Mutex
			var inside, java, golang int
			var wg sync.WaitGroup
			hold := func(count *int) {
				mu.Lock()
				if inside++; inside > 1 {
					t.Error("two have the lock")
				}
				*count++
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
				mu.Lock()
				inside--
				mu.Unlock()
			}
			for range tt.each {
				members, urls := []*redisson.Lock{}, []string{}
				for _, s := range five[:tt.servers] {
					members, urls = append(members, jvm(t, s.admin).Lock(name)), append(urls, s.url())
				}
				red := redisson.NewRedLock(members...)
				wg.Go(func() {
					for ctx.Err() == nil {
						if red.Lock(ctx) == nil {
							hold(&java)
							red.Unlock(context.WithoutCancel(ctx))
						}
					}
				})
				c := dialURLs(t, urls, unhurried)
				wg.Go(func() {
					for ctx.Err() == nil {
						if lease, err := c.Mutex(name).Lock(ctx); err == nil {
							hold(&golang)
							must(t, lease.Unlock(context.WithoutCancel(ctx)))
						}
					}
				})
			}
			wg.Wait()
			t.Logf("Java %d, Go %d", java, golang)
			// The shares of five seconds on a busy machine.
			if part := float64(golang) / float64(java+golang); part < 0.25 || part > 0.75 {
				t.Errorf("Go has %.0f %% of the grants", 100*part)
			}
		})
	}
}

// In a cluster of Redis 7 both publish and subscribe on shard channels. So no message crosses the
// bus of the cluster.
func TestJavaAndGoHearEachOtherInACluster(t *testing.T) {
	needServers(t)
	t.Parallel() // on servers of its own
	client, servers := cluster(t)
	t.Cleanup(func() { must(t, client.Close()) })
	n, err := node.New(client, node.WithName("cluster"))
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	c, err := redlock.New([]*node.Node{n}, unhurried)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	java := jvm(t, client, redisson.Sharded())
	prompt := func(what string, since time.Time) {
		t.Helper()
		if d := time.Since(since); d > 400*time.Millisecond {
			t.Errorf("%s took %v", what, d)
		}
	}
	for _, name := range []string{"a", "b", "c", "{e} in braces"} {
		lease := lock(t, c, name)
		got := make(chan error, 1)
		go func() { got <- java.Lock(name).Lock(t.Context()) }()
		time.Sleep(200 * time.Millisecond) // until it waits
		released := time.Now()
		must(t, lease.Unlock(t.Context()))
		must(t, <-got)
		prompt("Java's turn after Go", released)

		next := make(chan *quorumlock.Lease, 1)
		go func() {
			lease, err := c.Mutex(name).Lock(t.Context())
			must(t, err)
			next <- lease
		}()
		time.Sleep(250 * time.Millisecond)
		released = time.Now()
		must(t, java.Lock(name).Unlock(t.Context()))
		lease = <-next
		prompt("Go's turn after Java", released)

		go func() {
			lease, err := c.Mutex(name).Lock(t.Context())
			must(t, err)
			next <- lease
		}()
		time.Sleep(250 * time.Millisecond)
		released = time.Now()
		must(t, lease.Unlock(t.Context()))
		must(t, (<-next).Unlock(t.Context()))
		prompt("Go's turn after Go", released)
	}
	for _, s := range servers {
		info, err := s.admin.ClusterInfo(t.Context()).Result()
		must(t, err)
		if strings.Contains(info, "cluster_stats_messages_publish_sent") {
			t.Errorf("%s has sent messages over the bus of the cluster:\n%s", s.addr, info)
		}
	}
	noLocks(t, servers, patience)
}

// A Redisson client that subscribes at a replica (SubscriptionMode.SLAVE) is not counted as a
// subscriber by the master. While Go hands the lock over, the master sees no listener.
func TestJavaThatListensAtAReplicaHasItsPart(t *testing.T) {
	needServers(t)
	t.Parallel() // on servers of its own
	const name = "listened to elsewhere"
	master := start(t, &redis.Options{}, []string{"--repl-diskless-sync-delay", "0"})
	replica := startReplica(t, master)
	java := jvm(t, master.admin, redisson.SubscribingAt(replica.admin)).Lock(name)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var theirs, ours atomic.Int64
	wg.Go(func() {
		for ctx.Err() == nil {
			if java.Lock(ctx) == nil {
				theirs.Add(1)
				time.Sleep(2 * time.Millisecond)
				must(t, java.Unlock(context.WithoutCancel(ctx)))
			}
		}
	})
	for range 3 {
		c := dialURLs(t, []string{master.url()}, unhurried)
		wg.Go(func() {
			for ctx.Err() == nil {
				if lease, err := c.Mutex(name).Lock(ctx); err == nil {
					ours.Add(1)
					time.Sleep(2 * time.Millisecond)
					must(t, lease.Unlock(context.WithoutCancel(ctx)))
				}
			}
		})
	}
	wg.Wait()
	t.Logf("Java %d, Go %d", theirs.Load(), ours.Load())
	if part := float64(theirs.Load()) / float64(theirs.Load()+ours.Load()); part < 0.1 || part > 0.9 {
		t.Errorf("Java has %.0f %% of the grants", 100*part)
	}
	noLocks(t, []*server{master}, patience)
}
