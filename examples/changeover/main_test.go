package main

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
	"github.com/quorumlock/quorumlock/redlock"
)

func Example() {
	try.Main(main)
	// Output: the job has both locks: true
}

// start starts a Redis server, and returns its address and its process.
func start(t *testing.T) (addr string, server *os.Process) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		require.Skip(t, "QUORUMLOCK_REQUIRE_REDIS", "redis-server is not installed, and rueidislock needs a real one")
	}
	if addr, err = freeport.Addr(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--port", addr[strings.LastIndexByte(addr, ':')+1:], "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	for until := time.Now().Add(10 * time.Second); c.Ping(t.Context()).Err() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("redis-server does not answer")
		}
	}
	return addr, cmd.Process
}

const expiry = time.Second // of the old locks

// An old process has the old lock alone, a process of the first deployment has both, one of the
// second the new lock alone. Old and second never run at the same time.
func TestNoTwoProcessesWorkDuringAChangeover(t *testing.T) {
	var addrs, urls []string
	var servers []*os.Process
	var all []pools.Pool
	for range 3 {
		addr, server := start(t)
		addrs, urls, servers = append(addrs, addr), append(urls, "redis://"+addr), append(servers, server)
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, goredis.NewPool(c))
	}
	single := redis.NewClient(&redis.Options{Addr: addrs[0]})
	t.Cleanup(func() { _ = single.Close() })
	rueidis, err := rueidislock.NewLocker(rueidislock.LockerOption{KeyMajority: 1, KeyValidity: expiry, NoLoopTracking: true,
		ClientOption: rueidis.ClientOption{InitAddress: addrs[:1]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rueidis.Close)
	client, err := redlock.Dial(urls, quorumlock.WithTTL(expiry))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })

	for name, old := range map[string]oldLock{
		"redsync":     fromRedsync(redsync.New(all...), "redsync", expiry),
		"redislock":   fromRedislock(redislock.New(single), "redislock", expiry, redislock.LinearBackoff(5*time.Millisecond)),
		"rueidislock": fromRueidislock(rueidis, "rueidislock"),
	} {
		t.Run(name, func(t *testing.T) {
			lock := client.Mutex(name + ":2")
			var inside atomic.Int32
			var done [3]atomic.Int32 // jobs of each kind of process
			var broken atomic.Int32  // jobs that a loss has ended
			job := func(kind int, d time.Duration) func(context.Context) error {
				return func(ctx context.Context) error {
					if inside.Add(1) > 1 {
						t.Error("two work")
					}
					defer inside.Add(-1)
					select {
					case <-time.After(d):
						done[kind].Add(1)
					case <-ctx.Done():
						broken.Add(1)
					}
					return nil
				}
			}
			jobs := []func(ctx context.Context) error{
				func(ctx context.Context) error { // as before: short, since nothing renews its lock
					_, release, err := old(ctx)
					if err != nil {
						return err
					}
					defer release()
					return job(0, 5*time.Millisecond)(context.Background())
				},
				func(ctx context.Context) error {
					d := 5 * time.Millisecond
					if rand.N(20) == 0 {
						d = 3 * expiry / 2
					}
					return both(ctx, old, lock, job(1, d))
				},
				func(ctx context.Context) error { return quorumlock.Do(ctx, lock, job(2, 5*time.Millisecond)) },
			}
			for phase, kinds := range [][]int{{0, 1}, {1, 2}} {
				ctx, stop := context.WithCancel(t.Context())
				var fleet sync.WaitGroup
				for _, kind := range append(kinds, kinds...) {
					fleet.Go(func() {
						for ctx.Err() == nil {
							_ = jobs[kind](ctx) // fails while a server is frozen
							time.Sleep(time.Duration(rand.N(5)) * time.Millisecond)
						}
					})
				}
				// The old lock has its only server, or one of three, frozen until it is over.
				time.Sleep(2 * expiry)
				_ = servers[0].Signal(syscall.SIGSTOP)
				time.Sleep(3 * expiry / 2)
				_ = servers[0].Signal(syscall.SIGCONT)
				time.Sleep(2 * expiry)
				for _, kind := range kinds { // the old locks are in no order
					for until := time.Now().Add(time.Minute); done[kind].Load() == 0; time.Sleep(10 * time.Millisecond) {
						if time.Now().After(until) {
							t.Fatalf("in phase %d, processes of kind %d have done nothing", phase, kind)
						}
					}
				}
				stop()
				fleet.Wait()
				for i := range done {
					done[i].Store(0)
				}
			}
			t.Log(broken.Load(), "jobs were ended by a loss")
		})
	}
}
