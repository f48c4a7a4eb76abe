#!/usr/bin/env bash
# gocron gives a running job's lock back with a ctx that is already cancelled, if the job is removed or the scheduler ends.
#
# Expected: Shutdown and StopJobs wait for the job, and then the lock is released, as after every run.
# Seen:     RemoveJob, Update, StopJobs and Shutdown cancel the ctx of the job, and Unlock gets that ctx. A locker that passes
#           it on to Redis sends nothing, and gocron ignores the error: a deployment in the middle of a run leaves
#           the lock for its whole TTL, and no other scheduler can run the job.
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
	"time"

	"github.com/bsm/redislock"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"
)

type locker struct {
	client   *redislock.Client
	released chan error
}

type lock struct {
	*redislock.Lock
	released chan error
}

func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	held, err := l.client.Obtain(ctx, key, time.Minute, nil)
	return lock{held, l.released}, err
}

func (l lock) Unlock(ctx context.Context) error {
	err := l.Release(ctx)
	l.released <- err
	return err
}

func main() {
	client := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	for _, c := range []struct {
		name string
		end  func(gocron.Scheduler, gocron.Job) error
	}{
		{"nothing", func(gocron.Scheduler, gocron.Job) error { return nil }},
		{"RemoveJob", func(s gocron.Scheduler, j gocron.Job) error { return s.RemoveJob(j.ID()) }},
		{"StopJobs", func(s gocron.Scheduler, j gocron.Job) error { return s.StopJobs() }},
		{"Shutdown", func(s gocron.Scheduler, j gocron.Job) error { return s.Shutdown() }},
	} {
		started, released := make(chan struct{}), make(chan error, 1)
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker{redislock.New(client), released}))
		check(err)
		job, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func() {
			close(started)
			time.Sleep(time.Second)
		}), gocron.WithName(c.name))
		check(err)
		s.Start()
		<-started
		check(c.end(s, job))
		err = <-released
		fmt.Printf("%s during the run: the release returns %v, keys left: %d\n", c.name, err, client.Exists(context.Background(), c.name).Val())
	}
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
nothing during the run: the release returns <nil>, keys left: 0
RemoveJob during the run: the release returns context canceled, keys left: 1
StopJobs during the run: the release returns context canceled, keys left: 1
Shutdown during the run: the release returns context canceled, keys left: 1
END
