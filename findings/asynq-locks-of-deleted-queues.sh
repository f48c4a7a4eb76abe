#!/usr/bin/env bash
# asynq keeps the unique locks of a queue that was deleted, and of tasks that failed for good.
#
# Expected: a task's unique lock ends with the task, or with its TTL.
# Seen:     a task whose last try has failed is archived with its lock: the same task is refused, though none will run. To delete
#           the archived task frees the lock. DeleteQueue with force removes the tasks, but not their locks: in a queue that no
#           longer exists, the task "already exists" for the TTL plus the delay it was scheduled with.
# Package:  github.com/hibiken/asynq v0.26.0, Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
program github.com/hibiken/asynq@v0.26.0 <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	opt := asynq.RedisClientOpt{Addr: os.Args[1]}
	client, inspector := asynq.NewClient(opt), asynq.NewInspector(opt)
	enqueue := func(when, queue string, delay time.Duration) {
		task := asynq.NewTask("report", nil, asynq.Unique(time.Hour), asynq.MaxRetry(0), asynq.Queue(queue), asynq.ProcessIn(delay))
		_, err := client.Enqueue(task)
		fmt.Printf("%s: %v\n", when, err)
	}

	enqueue("first", "default", 0)
	server := asynq.NewServer(opt, asynq.Config{LogLevel: asynq.FatalLevel})
	check(server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("failed") })))
	var archived []*asynq.TaskInfo
	for ; len(archived) == 0; time.Sleep(50 * time.Millisecond) {
		archived, _ = inspector.ListArchivedTasks("default")
	}
	server.Shutdown()
	enqueue("after its last failure", "default", 0)
	check(inspector.DeleteTask("default", archived[0].ID))
	enqueue("after the archived task is deleted", "default", 0)

	enqueue("in another queue", "other", time.Hour)
	check(inspector.DeleteQueue("other", true))
	_, err := inspector.GetQueueInfo("other")
	fmt.Println("that queue, deleted:", err)
	enqueue("in the deleted queue", "other", time.Hour)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
port=$(port)
start "$port"
seen=$(timeout 60 "$program" "127.0.0.1:$port" 2>&1)
ttl=$(on "$port" TTL "$(on "$port" KEYS '*other}:unique:*')")
recorded "$seen
the lock stays for more than 1.9 hours: $([ "$ttl" -gt 6840 ] && echo yes || echo no)" <<'END'
first: <nil>
after its last failure: task already exists
after the archived task is deleted: <nil>
in another queue: <nil>
that queue, deleted: NOT_FOUND: queue "other" does not exist
in the deleted queue: task already exists
the lock stays for more than 1.9 hours: yes
END
