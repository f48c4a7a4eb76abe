#!/usr/bin/env bash
# A Limiter of go-redis hears of a lock that is held as a failure of the server, or not, depending on the method.
#
# Expected: a limiter, such as a circuit breaker, is told of errors of the network and the server. A reply of nil is none.
# Seen:     ReportResult gets redis.Nil for SetArgs with NX, for a script that returns false, and for a pipeline whose first
#           command got nil, and nil for SetNX. NOSCRIPT, which Script.Run repairs itself, counts, and so does a ctx that the
#           caller cancelled. On a new connection, Allow runs again for the handshake, within the Allow of the command: a limiter
#           of one at a time meets itself. The handshake's own probes for newer features count as failures, too.
# Package:  github.com/redis/go-redis/v9 v9.23.0, Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
program github.com/redis/go-redis/v9@v9.23.0 <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

type limiter []string

func (l *limiter) Allow() error { *l = append(*l, "Allow"); return nil }

func (l *limiter) ReportResult(err error) {
	text, _, _ := strings.Cut(fmt.Sprint(err), ".")
	*l = append(*l, "["+text+"]")
}

func main() {
	ctx, heard := context.Background(), &limiter{}
	client := redis.NewClient(&redis.Options{Addr: os.Args[1], Limiter: heard, PoolSize: 1})
	show := func(what string, err error) {
		fmt.Printf("%s returns %v: %s\n", what, err, strings.Join(*heard, " "))
		*heard = nil
	}
	show("first SET", client.Set(ctx, "lock", "other", 0).Err())
	show("SetNX", client.SetNX(ctx, "lock", "mine", time.Minute).Err())
	show("SetArgs NX", client.SetArgs(ctx, "lock", "mine", redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err())
	show("Script.Run", redis.NewScript("return false").Run(ctx, client, []string{"lock"}).Err())
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetArgs(ctx, "lock", "mine", redis.SetArgs{Mode: "NX", TTL: time.Minute})
		p.Ping(ctx)
		return nil
	})
	show("pipeline", err)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	show("cancelled GET", client.Get(cancelled, "lock").Err())
}
END
port=$(port)
start "$port"
recorded "$("$program" "127.0.0.1:$port" 2>&1)" <<'END'
first SET returns <nil>: Allow Allow [<nil>] Allow [ERR unknown subcommand 'maint_notifications'] Allow [ERR unknown subcommand 'setinfo'] [<nil>]
SetNX returns <nil>: Allow [<nil>]
SetArgs NX returns redis: nil: Allow [redis: nil]
Script.Run returns redis: nil: Allow [NOSCRIPT No matching script] Allow [redis: nil]
pipeline returns redis: nil: Allow Allow [<nil>] Allow [ERR unknown subcommand 'setinfo'] [redis: nil]
cancelled GET returns context canceled: Allow [context canceled]
END
