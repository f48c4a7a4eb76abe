#!/usr/bin/env bash
# go-redis runs a script four times if the script's own error begins with one of the server's words.
#
# Expected: an error that a script returns is an answer: it was executed, and is not sent again.
# Seen:     redis.error_reply with READONLY, TRYAGAIN, LOADING, CLUSTERDOWN, MASTERDOWN or NOREPLICAS as its first word is taken for
#           the server's, and the script's writes happen four times; with OOM or BUSY, once. In a pipeline it depends on the
#           place: if the script comes first, its neighbours are repeated, too; if it comes last, nothing is.
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

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	refuse := func(word string) string {
		return "redis.call('INCR', KEYS[1]) return redis.error_reply('" + word + " by the script')"
	}
	for _, word := range []string{"READONLY", "TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "OOM", "BUSY", "HELD"} {
		err := client.Eval(ctx, refuse(word), []string{word}).Err()
		fmt.Printf("%v: ran %s times\n", err, client.Get(ctx, word).Val())
	}
	client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Eval(ctx, refuse("TRYAGAIN"), []string{"first"})
		p.Incr(ctx, "its neighbour")
		return nil
	})
	client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "another neighbour")
		p.Eval(ctx, refuse("TRYAGAIN"), []string{"last"})
		return nil
	})
	for _, key := range []string{"first", "its neighbour", "last", "another neighbour"} {
		fmt.Printf("in a pipeline, %s: %s\n", key, client.Get(ctx, key).Val())
	}
}
END
port=$(port)
start "$port"
recorded "$(timeout 60 "$program" "127.0.0.1:$port" 2>&1)" <<'END'
READONLY by the script: ran 4 times
TRYAGAIN by the script: ran 4 times
LOADING by the script: ran 4 times
CLUSTERDOWN by the script: ran 4 times
MASTERDOWN by the script: ran 4 times
NOREPLICAS by the script: ran 4 times
OOM by the script: ran 1 times
BUSY by the script: ran 1 times
HELD by the script: ran 1 times
in a pipeline, first: 4
in a pipeline, its neighbour: 4
in a pipeline, last: 1
in a pipeline, another neighbour: 1
END
