package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/proof/redisson"
	"github.com/quorumlock/quorumlock/redlock"
)

// java is a thread of a service that locks with Redisson.
type java struct {
	t      *testing.T
	client *redis.Client
	lock   *redisson.Lock
}

// tryLock enters the lock, or reports that somebody else has it.
func (j java) tryLock() (entered bool) {
	j.t.Helper()
	entered, err := j.lock.TryLock(j.t.Context())
	must(j.t, err)
	return entered
}

// unlock reports whether the thread had an entry.
func (j java) unlock() bool {
	j.t.Helper()
	err := j.lock.Unlock(j.t.Context())
	if errors.Is(err, redisson.ErrNotHeld) {
		return false
	}
	must(j.t, err)
	return true
}

// jvm returns a client of Redisson's at a server.
func jvm(t *testing.T, r redis.UniversalClient, opts ...redisson.Option) *redisson.Client {
	c := redisson.New(r, opts...)
	t.Cleanup(c.Close)
	return c
}

// shared returns a thread with Redisson and a node of ours at one server.
func shared(t *testing.T, name string) (java, *node.Node) {
	t.Helper()
	s := five[0]
	t.Cleanup(func() { noLocks(t, five[:1], patience) })
	n, err := node.Dial(s.url())
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	return java{t, s.admin, jvm(t, s.admin).Lock(name)}, n
}

func TestRedissonKeepsUsOutAndWeKeepItOut(t *testing.T) {
	needServers(t)
	thread, n := shared(t, "shared")
	m := n.Mutex("shared", unhurried, quorumlock.WithTTL(time.Hour))

	if !thread.tryLock() {
		t.Fatal("Redisson cannot lock a free lock")
	}
	if _, err := m.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
		t.Errorf("TryLock of what Redisson holds: %v, want ErrHeld", err)
	}
	if !thread.unlock() {
		t.Error("Redisson cannot unlock its lock after our attempt")
	}

	lease, err := m.TryLock(t.Context())
	must(t, err)
	if thread.tryLock() || thread.unlock() {
		t.Error("Redisson could enter or unlock our lock")
	}
	must(t, lease.Unlock(t.Context()))
	if !thread.tryLock() {
		t.Error("Redisson cannot have the lock after our Unlock")
	}
	thread.unlock()
}

func TestHoldCountsAreSeenBothWays(t *testing.T) {
	needServers(t)
	thread, n := shared(t, "counted")
	ctx := t.Context()
	thread.tryLock()
	thread.tryLock()
	state, err := transport.Of(n).Inspect(ctx, "counted")
	must(t, err)
	if state.Owner != thread.lock.Owner() || state.HoldCount != 2 {
		t.Errorf("we see %q with %d entries, want Redisson's thread with 2", state.Owner, state.HoldCount)
	}
	if first, second, third := thread.unlock(), thread.unlock(), thread.unlock(); !first || !second || third {
		t.Errorf("Redisson's unlocks say %v, %v and %v, want true, true and false", first, second, third)
	}

	owner := quorumlock.NewOwner()
	for hold := 1; hold <= 3; hold++ {
		a, err := n.Acquire(ctx, "counted", owner, time.Minute, hold)
		must(t, err)
		if !a.Granted {
			t.Fatalf("entry %d is refused", hold)
		}
		count, err := thread.client.HGet(ctx, "counted", string(owner)).Int()
		must(t, err)
		if count != hold {
			t.Errorf("the hash says %d after entry %d", count, hold)
		}
	}
	for hold := 3; hold >= 1; hold-- {
		left, err := n.Release(ctx, "counted", owner, hold)
		must(t, err)
		count, err := thread.client.HGet(ctx, "counted", string(owner)).Int()
		if hold > 1 {
			must(t, err)
		}
		if left != hold-1 || count != left {
			t.Errorf("%d left, the hash says %d, want %d", left, count, hold-1)
		}
	}
}

// A waiter that is refused by Redisson listens to it, and hears of its release long before it would look by itself.
func TestRedissonsUnlockWakesOurWaiter(t *testing.T) {
	needServers(t)
	const rounds = 20
	thread, n := shared(t, "awaited")
	m := n.Mutex("awaited", unhurried)
	late := time.Duration(0)
	for range rounds {
		if !thread.tryLock() {
			t.Fatal("Redisson cannot lock")
		}
		got := make(chan *quorumlock.Lease, 1)
		go func() {
			lease, err := m.Lock(t.Context())
			must(t, err)
			got <- lease
		}()
		eventually(t, patience, "the waiter listens", func() bool {
			heard, err := thread.client.PubSubNumSub(t.Context(), "redisson_lock__channel:{awaited}").Result()
			must(t, err)
			return heard["redisson_lock__channel:{awaited}"] == 1
		})
		time.Sleep(20 * time.Millisecond) // until it waits
		released := time.Now()
		thread.unlock()
		lease := <-got
		late += time.Since(released)
		must(t, lease.Unlock(t.Context()))
	}
	if late > rounds*150*time.Millisecond {
		t.Errorf("%d releases were noticed after %v in all: the messages did not wake the waiter", rounds, late)
	}
}

func TestOurUnlockWakesRedissonsWaiters(t *testing.T) {
	needServers(t)
	thread, n := shared(t, "announced")
	sub := thread.client.Subscribe(t.Context(), "redisson_lock__channel:{announced}")
	t.Cleanup(func() { must(t, sub.Close()) })
	_, err := sub.Receive(t.Context()) // the subscription stands
	must(t, err)
	lease, err := n.Mutex("announced", unhurried).Lock(t.Context())
	must(t, err)
	must(t, lease.Unlock(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := sub.ReceiveMessage(ctx)
	must(t, err)
	if number, err := strconv.ParseInt(m.Payload, 10, 64); err != nil || number != 0 {
		t.Errorf("the message is %q, want a number that is 0", m.Payload)
	}
	if !thread.tryLock() {
		t.Error("Redisson is told of the release, and cannot have the lock")
	}
	thread.unlock()
}

// Java and Go contend for one lock. Each side gets its share, and nobody is in it beside another.
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
			if part := float64(golang) / float64(java+golang); part < 0.25 || part > 0.75 { // five seconds on a busy machine
				t.Errorf("Go has %.0f %% of the grants", 100*part)
			}
		})
	}
}

// In a cluster of Redis 7 both publish and listen on shard channels. So no message crosses the bus of the cluster.
func TestJavaAndGoHearEachOtherInACluster(t *testing.T) {
	needServers(t)
	t.Parallel() // on servers of its own
	client, servers := cluster(t)
	t.Cleanup(func() { must(t, client.Close()) })
	n := node.New(client, node.WithName("cluster"))
	must(t, transport.Of(n).Err())
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

// Redisson's kinds that are no RLock and this library's locks keep out of each other, or are refused with an error that names the kind.
func TestKindsOfRedissonStayOut(t *testing.T) {
	needServers(t)
	thread, n := shared(t, "kinds")
	ctx := t.Context()
	c := jvm(t, thread.client)
	lease, err := n.Mutex("kinds", unhurried).Lock(ctx)
	must(t, err)
	for what, l := range map[string]*redisson.Lock{
		"RReadWriteLock.readLock": c.ReadLock("kinds"), "RReadWriteLock.writeLock": c.WriteLock("kinds"), "RFairLock": c.FairLock("kinds"), "RSpinLock": c.SpinLock("kinds"), "RFencedLock": c.FencedLock("kinds"),
	} {
		if entered, err := l.TryLock(ctx); entered || err != nil {
			t.Errorf("%s enters while Go has the lock: %v, %v", what, entered, err)
		}
		if err := l.Unlock(ctx); !errors.Is(err, redisson.ErrNotHeld) {
			t.Errorf("%s unlocks Go's lock: %v", what, err)
		}
	}
	if err := thread.client.Decr(ctx, "kinds").Err(); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a semaphore of Redisson's counts at Go's lock: %v", err)
	}
	must(t, lease.Extend(ctx))
	must(t, lease.Unlock(ctx))
	must(t, n.Latch("kinds of locks", 2).Done(ctx, "a"))
	for what, l := range map[string]*redisson.Lock{"readLock": c.ReadLock("kinds of locks"), "writeLock": c.WriteLock("kinds of locks")} {
		if entered, err := l.TryLock(ctx); entered || err != nil {
			t.Errorf("%s enters a latch: %v, %v", what, entered, err)
		}
		if err := l.Unlock(ctx); !errors.Is(err, redisson.ErrNotHeld) {
			t.Errorf("%s unlocks a latch: %v", what, err)
		}
	}
	if done, err := n.Latch("kinds of locks", 2).Count(ctx); err != nil || done != 1 {
		t.Errorf("the latch has %d ids, %v, want 1", done, err)
	}
	must(t, thread.client.Del(ctx, "kinds of locks", "quorumlock_latch:{kinds of locks}").Err())

	for what, use := range map[string]func() (end func()){
		"a read-write lock of Redisson's": func() func() {
			l := c.ReadLock("kinds")
			must(t, l.LockFor(ctx, time.Minute))
			return func() { must(t, l.Unlock(ctx)) }
		},
		"a string, for example, as redsync and redislock write it for a lock, or Redisson for a semaphore or a latch": func() func() {
			must(t, thread.client.Set(ctx, "kinds", 3, 0).Err())
			return func() { must(t, thread.client.Del(ctx, "kinds").Err()) }
		},
	} {
		end := use()
		for call, err := range map[string]error{
			"TryLock": second(n.Mutex("kinds").TryLock(ctx)), "Lock": second(n.Mutex("kinds").Lock(ctx)), "RLock": second(n.RWMutex("kinds").RLock(ctx)),
			"Inspect": second(n.Mutex("kinds").Inspect(ctx)), "ForceUnlock": n.Mutex("kinds").ForceUnlock(ctx),
		} {
			if !errors.Is(err, quorumlock.ErrWrongKind) || !errors.Is(err, quorumlock.ErrNotALock) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s of %s: %v", call, what, err)
			}
		}
		end()
	}
	noLocks(t, five[:1], patience)
}

func second[T any](_ T, err error) error { return err }

// A Redisson client that subscribes at a replica (SubscriptionMode.SLAVE) is not among those whom the master counts as its
// subscribers. While Go hands the lock over, the master sees nobody who listens.
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
