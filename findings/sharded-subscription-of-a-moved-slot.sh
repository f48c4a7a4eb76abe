#!/usr/bin/env bash
# A sharded subscription ends with the move of its slot: go-redis stays silent, and rueidis returns without an error.
#
# Expected: the cluster clients subscribe again at the slot's new node, as they follow MOVED for everything else; or they
#           end the subscription with an error.
# Seen:     the old node sends sunsubscribe. go-redis keeps the channel of messages open, and no later message arrives: a waiter
#           sleeps on. Only ChannelWithSubscriptions shows the sunsubscribe. In rueidis, Receive returns nil, as after an
#           unsubscription of the caller's own; called again, it goes on at the new node.
# Package:  Debian's redis-server 7.0.15, github.com/redis/go-redis/v9 v9.23.0, github.com/redis/rueidis v1.0.79
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
program github.com/redis/go-redis/v9@v9.23.0 github.com/redis/rueidis@v1.0.79 <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const slot = 15495 // of {a}

func main() {
	ctx := context.Background()
	from, to := redis.NewClient(&redis.Options{Addr: os.Args[1]}), redis.NewClient(&redis.Options{Addr: os.Args[2]})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: os.Args[1:]})
	other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: os.Args[1:]})
	check(err)

	messages := cluster.SSubscribe(ctx, "{a}released").Channel()
	received, returned := make(chan string, 20), make(chan error, 1)
	receive := func() {
		returned <- other.Receive(ctx, other.B().Ssubscribe().Channel("{a}released").Build(), func(m rueidis.PubSubMessage) { received <- m.Message })
	}
	go receive()
	for from.Do(ctx, "pubsub", "shardnumsub", "{a}released").Val().([]any)[1] != int64(2) {
		time.Sleep(20 * time.Millisecond)
	}
	check(cluster.SPublish(ctx, "{a}released", "first").Err())
	fmt.Println("before: go-redis", (<-messages).Payload+", rueidis", <-received)

	source, target := from.Do(ctx, "cluster", "myid").Val(), to.Do(ctx, "cluster", "myid").Val()
	check(to.Do(ctx, "cluster", "setslot", slot, "importing", source).Err())
	check(from.Do(ctx, "cluster", "setslot", slot, "migrating", target).Err())
	check(to.Do(ctx, "cluster", "setslot", slot, "node", target).Err())
	check(from.Do(ctx, "cluster", "setslot", slot, "node", target).Err())
	fmt.Println("rueidis returns:", <-returned)
	go receive()
	for to.Do(ctx, "pubsub", "shardnumsub", "{a}released").Val().([]any)[1] == int64(0) {
		time.Sleep(20 * time.Millisecond)
	}
	for range 12 { // longer than go-redis's pings of an idle subscription
		check(cluster.SPublish(ctx, "{a}released", "later").Err())
		time.Sleep(time.Second)
	}
	fmt.Println("after: rueidis, called again, received", len(received))
	select {
	case m, open := <-messages:
		fmt.Println("after: go-redis", m, open)
	default:
		fmt.Println("after: go-redis received nothing, and its channel is open")
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
from=$(port) to=$(port)
for p in "$from" "$to"; do start "$p" --cluster-enabled yes; done
cluster "$from" "$to"
recorded "$(timeout 60 "$program" "127.0.0.1:$from" "127.0.0.1:$to" 2>&1)" <<'END'
before: go-redis first, rueidis first
rueidis returns: <nil>
after: rueidis, called again, received 12
after: go-redis received nothing, and its channel is open
END
