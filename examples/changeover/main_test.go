//go:build unix

package main

import (
	"context"
	"errors"
	"math/rand/v2"
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
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/dbserver"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { try.Main(m, main) }

func TestTheProgram(t *testing.T) {
	fleet := try.New(t)
	fleet.Wait(fleet.Start(""))
	if line := fleet.Line(); line != "the job has both locks: true" {
		t.Error(line)
	}
}

const expiry = time.Second // of the old locks

// An old process has the old lock alone, a process of the first deployment has both, one of the
// second the new lock alone. Old and second never run at the same time.
func TestNoTwoProcessesWorkDuringAChangeover(t *testing.T) {
	var urls []string
	var servers []*dbserver.Server
	var clients []*redis.Client
	var all []pools.Pool
	for i := range 3 {
		server, err := dbserver.Redis()
		if _, missing := errors.AsType[*dbserver.MissingError](err); missing {
			require.Skip(t, "QUORUMLOCK_REQUIRE_REDIS", err.Error()) // rueidislock needs a real one
		}
		testkit.Must(t, err, "Redis")
		urls, servers = append(urls, "redis://"+server.Addr), append(servers, server)
		clients = append(clients, redis.NewClient(&redis.Options{Addr: server.Addr}))
		t.Cleanup(func() { _, _ = clients[i].Close(), server.Close() })
		testkit.Must(t, server.Await(func() error { return clients[i].Ping(t.Context()).Err() }), "Await")
		all = append(all, goredis.NewPool(clients[i]))
	}
	rueidis, err := rueidislock.NewLocker(rueidislock.LockerOption{KeyMajority: 1, KeyValidity: expiry, NoLoopTracking: true,
		ClientOption: rueidis.ClientOption{InitAddress: []string{servers[0].Addr}}})
	testkit.Must(t, err, "rueidislock")
	t.Cleanup(rueidis.Close)
	client, err := redlock.Dial(urls, quorumlock.WithTTL(expiry))
	testkit.Must(t, err, "Dial")
	t.Cleanup(func() { _ = client.Close() })

	for name, old := range map[string]oldLock{
		"redsync":     fromRedsync(redsync.New(all...), "redsync", expiry),
		"redislock":   fromRedislock(redislock.New(clients[0]), "redislock", expiry, redislock.LinearBackoff(5*time.Millisecond)),
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
				testkit.Must(t, servers[0].Signal(syscall.SIGSTOP), "SIGSTOP")
				time.Sleep(3 * expiry / 2)
				testkit.Must(t, servers[0].Signal(syscall.SIGCONT), "SIGCONT")
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
