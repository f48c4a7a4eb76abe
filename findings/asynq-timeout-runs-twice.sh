#!/usr/bin/env bash
# asynq starts a task again while the handler of its first run still works; IsFailure does not save a last try.
#
# Expected: after a task's Timeout, the next try waits for the handler of the first to return. An error for which IsFailure is
#           false never counts as a failure: the task is tried again.
# Seen:     one server, one task, Timeout of a second: the second run begins while the first has not returned, so two handlers
#           of one task work at once. An error for which IsFailure is false leaves the count of retries alone, but a task without
#           retries left is archived all the same, with 0 failures.
# Package:  github.com/hibiken/asynq v0.26.0, Debian's redis-server 7.0.15
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
program github.com/hibiken/asynq@v0.26.0 <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	opt := asynq.RedisClientOpt{Addr: os.Args[1]}
	client, inspector := asynq.NewClient(opt), asynq.NewInspector(opt)
	busy := errors.New("busy")
	server := asynq.NewServer(opt, asynq.Config{
		LogLevel: asynq.FatalLevel, Concurrency: 4,
		IsFailure:                func(err error) bool { return !errors.Is(err, busy) },
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return time.Second },
		DelayedTaskCheckInterval: 100 * time.Millisecond,
	})
	var running, most atomic.Int64
	release := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.HandleFunc("slow", func(context.Context, *asynq.Task) error {
		most.Store(max(most.Load(), running.Add(1)))
		<-release // the write that the timeout does not stop
		running.Add(-1)
		return nil
	})
	mux.HandleFunc("busy", func(context.Context, *asynq.Task) error { return busy })
	check(server.Start(mux))

	_, err := client.Enqueue(asynq.NewTask("slow", nil), asynq.Timeout(time.Second), asynq.MaxRetry(5))
	check(err)
	for i := 0; i < 200 && most.Load() < 2; i++ {
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Println("handlers of the one task at the same time:", min(most.Load(), 2))
	close(release)

	_, err = client.Enqueue(asynq.NewTask("busy", nil), asynq.MaxRetry(0))
	check(err)
	var archived []*asynq.TaskInfo
	for i := 0; i < 200 && len(archived) == 0; i++ {
		time.Sleep(50 * time.Millisecond)
		archived, _ = inspector.ListArchivedTasks("default")
	}
	for _, a := range archived {
		fmt.Printf("archived: %s after %d failures: %s\n", a.Type, a.Retried, a.LastErr)
	}
	server.Shutdown()
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
handlers of the one task at the same time: 2
archived: busy after 0 failures: busy
END
