#!/usr/bin/env bash
# The first commands of a cluster client of go-redis outlast the deadlines of their contexts, each by the wait of all before it.
#
# Expected: with ContextTimeoutEnabled, a command ends at the deadline of its ctx, 100 ms, while the server pauses for 2 s.
# Seen:     a plain client's does. A cluster client first asks for COMMAND, with a limit of its own of 5 s, under a mutex that all
#           of its commands want: five commands with 100 ms end together when the pause ends. Once the client has the answer,
#           their deadlines count.
# Package:  github.com/redis/go-redis/v9 v9.23.0, Debian's redis-server 7.0.15
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
program github.com/redis/go-redis/v9@v9.23.0 <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, addr := context.Background(), os.Args[1]
	admin := redis.NewClient(&redis.Options{Addr: addr})
	plain := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true, MaxRedirects: -1,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		}})
	for _, t := range []struct {
		what   string
		client redis.UniversalClient
	}{{"plain client", plain}, {"cluster client", cluster}, {"cluster client, again", cluster}} {
		if err := admin.Do(ctx, "client", "pause", "2000", "all").Err(); err != nil {
			fmt.Println(err)
		}
		type end struct {
			after time.Duration
			err   error
		}
		ends := make(chan end)
		for range 5 {
			go func() {
				within, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				began := time.Now()
				err := t.client.Get(within, "key").Err()
				ends <- end{time.Since(began), err}
			}()
		}
		onTime, late := 0, 0
		for range 5 {
			switch e := <-ends; {
			case e.err == nil || errors.Is(e.err, redis.Nil):
				fmt.Println("answered")
			case e.after < time.Second:
				onTime++
			default:
				late++
			}
		}
		fmt.Printf("%s: %d commands failed within 1 s, %d later\n", t.what, onTime, late)
		for admin.Ping(ctx).Err() != nil { // until the pause is over
			time.Sleep(100 * time.Millisecond)
		}
	}
}
END
port=$(port)
start "$port" --cluster-enabled yes
cluster "$port"
recorded "$("$program" "127.0.0.1:$port" 2>/dev/null)" <<'END'
plain client: 5 commands failed within 1 s, 0 later
cluster client: 0 commands failed within 1 s, 5 later
cluster client, again: 5 commands failed within 1 s, 0 later
END
