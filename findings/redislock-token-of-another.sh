#!/usr/bin/env bash
# redislock: the owner worker-1 takes the lock that worker-10 holds.
#
# Expected: Options.Token names the owner: a caller with the same token enters again, and any other gets ErrNotObtained.
# Seen:     the tokens are compared only as far as the new one is long. A token that another begins with takes over its lock at
#           once, and the holder's Release returns ErrLockNotHeld. In the other direction, it is refused. Random tokens, the
#           default, all have the same length.
# Package:  github.com/bsm/redislock v0.9.4, github.com/redis/go-redis/v9 v9.23.0, Debian's redis-server 7.0.15
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
program github.com/bsm/redislock@v0.9.4 github.com/redis/go-redis/v9@v9.23.0 <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	locks := redislock.New(redis.NewClient(&redis.Options{Addr: os.Args[1]}))
	for _, c := range []struct{ name, holder, other string }{
		{"a", "worker-10", "worker-2"},
		{"b", "worker-10", "worker-1"},
		{"c", "worker-1", "worker-10"},
	} {
		lock, err := locks.Obtain(ctx, c.name, time.Minute, &redislock.Options{Token: c.holder})
		if err != nil {
			panic(err)
		}
		_, err = locks.Obtain(ctx, c.name, time.Minute, &redislock.Options{Token: c.other})
		fmt.Printf("%s holds, %s obtains: %v; the holder releases: %v\n", c.holder, c.other, err, lock.Release(ctx))
	}
}
END
port=$(port)
start "$port"
recorded "$(timeout 60 "$program" "127.0.0.1:$port" 2>&1)" <<'END'
worker-10 holds, worker-2 obtains: redislock: not obtained; the holder releases: <nil>
worker-10 holds, worker-1 obtains: <nil>; the holder releases: redislock: lock not held
worker-1 holds, worker-10 obtains: redislock: not obtained; the holder releases: <nil>
END
