#!/usr/bin/env bash
# A one-time job of gocron whose lock is taken is never run, and stays in the list of jobs.
#
# Expected: a refused run is tried again, as with periodic jobs at their next tick; or the job is over, and leaves the list.
# Seen:     the job does not run after the lock is free either. Jobs still lists it, without a next run. Without the listener
#           AfterLockError nothing tells: no error is logged. RunNow returns nil, though the lock is refused.
# Package:  github.com/go-co-op/gocron/v2 v2.21.2, github.com/bsm/redislock v0.9.4, Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
program github.com/go-co-op/gocron/v2@v2.21.2 github.com/bsm/redislock@v0.9.4 github.com/redis/go-redis/v9@v9.23.0 <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

type locker struct{ *redislock.Client }
type lock struct{ *redislock.Lock }

func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	held, err := l.Obtain(ctx, key, time.Minute, nil)
	return lock{held}, err
}

func (l lock) Unlock(ctx context.Context) error { return l.Release(ctx) }

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	other, err := redislock.Obtain(ctx, client, "report", time.Minute, nil)
	check(err)
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker{redislock.New(client)}), gocron.WithLogger(gocron.NewLogger(gocron.LogLevelWarn)))
	check(err)
	var runs atomic.Int64
	refused := make(chan error, 10)
	job, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(time.Now().Add(200*time.Millisecond))),
		gocron.NewTask(func() { runs.Add(1) }), gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err })))
	check(err)
	s.Start()
	fmt.Println("the listener:", <-refused)
	check(other.Release(ctx))
	time.Sleep(3 * time.Second)
	next, err := job.NextRun()
	fmt.Println("3 s after the lock is free: runs", runs.Load(), "listed", len(s.Jobs()), "next run", next.IsZero(), err)
	other, err = redislock.Obtain(ctx, client, "report", time.Minute, nil)
	check(err)
	fmt.Println("RunNow while the lock is taken:", job.RunNow())
	fmt.Println("the listener:", <-refused)
	fmt.Println("runs", runs.Load())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
port=$(port)
start "$port"
recorded "$(timeout 60 "$program" "127.0.0.1:$port" 2>&1)" <<'END'
the listener: redislock: not obtained
3 s after the lock is free: runs 0 listed 1 next run true <nil>
RunNow while the lock is taken: <nil>
the listener: redislock: not obtained
runs 0
END
