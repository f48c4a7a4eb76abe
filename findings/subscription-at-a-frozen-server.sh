#!/usr/bin/env bash
# go-redis keeps a subscription at a frozen server for longer than a minute, without an error and without a second try.
#
# Expected: Channel's documentation says that it pings, and subscribes again if no ping is received for a minute. So a waiter
#           hears of the freeze: another connection is tried, or a message is logged.
# Seen:     the pings are written, and nobody waits for their pongs: in 70 s, with a check each 500 ms, go-redis opens no other
#           connection, and logs nothing. A waiter whose server is gone without a closing packet sleeps on.
#           A plain command fails within its timeouts.
# Package:  github.com/redis/go-redis/v9 v9.23.0, Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
program github.com/redis/go-redis/v9@v9.23.0 <<'END'
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

type logger struct{ lines atomic.Int64 }

func (l *logger) Printf(context.Context, string, ...any) { l.lines.Add(1) }

func main() {
	ctx, log := context.Background(), &logger{}
	redis.SetLogger(log)
	pid, err := strconv.Atoi(os.Args[2])
	check(err)
	var dials atomic.Int64
	waiter := redis.NewClient(&redis.Options{Addr: os.Args[1], Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return net.Dial(network, addr)
	}})
	subscription := waiter.Subscribe(ctx, "released")
	_, err = subscription.Receive(ctx)
	check(err)
	heard := subscription.Channel(
		redis.WithChannelHealthCheckInterval(500*time.Millisecond), redis.WithChannelPingTimeout(500*time.Millisecond))
	other := redis.NewClient(&redis.Options{Addr: os.Args[1], MaxRetries: -1})
	check(other.Ping(ctx).Err())
	before, lines := dials.Load(), log.lines.Load()

	check(syscall.Kill(pid, syscall.SIGSTOP))
	begin := time.Now()
	err = other.Ping(ctx).Err()
	fmt.Println("a command fails within 10 s:", err != nil && time.Since(begin) < 10*time.Second)
	time.Sleep(70*time.Second - time.Since(begin))
	fmt.Println("after 70 s, the subscription: new connections", dials.Load()-before, "lines of the log", log.lines.Load()-lines, "heard", len(heard))
	check(syscall.Kill(pid, syscall.SIGCONT))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
port=$(port)
start "$port"
recorded "$(timeout 120 "$program" "127.0.0.1:$port" "$pid" 2>&1)" <<'END'
a command fails within 10 s: true
after 70 s, the subscription: new connections 0 lines of the log 0 heard 0
END
