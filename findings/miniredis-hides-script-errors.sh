#!/usr/bin/env bash
# Scripts and options that fail on a server pass on miniredis, and the other way round: tests with it prove less of a lock.
#
# Expected: miniredis lacks commands, and its clock stands still; what it has answers as the server does.
# Seen:     a time in microseconds that is joined to a string keeps its digits (the server's loses them); a counter in a hash
#           wraps to a negative token (the server refuses); KEEPTTL beside PX, and NX beside XX, are no errors; a TTL of 1.6 s
#           is 1 (the server says 2); cjson writes an empty table as [], and gives nil for one with a hole; tonumber("1e3") is nil;
#           EVALSHA with capital letters finds no script.
# Package:  github.com/alicebob/miniredis/v2 v2.40.0, github.com/redis/go-redis/v9 v9.23.0, Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
program github.com/alicebob/miniredis/v2@v2.40.0 github.com/redis/go-redis/v9@v9.23.0 <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	mini, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	names := []string{"server", "miniredis"}
	clients := []*redis.Client{redis.NewClient(&redis.Options{Addr: os.Args[1]}), redis.NewClient(&redis.Options{Addr: mini.Addr()})}
	for _, lines := range [][][]any{
		{{"EVAL", "return 1795898458502123 .. ''", 0}},
		{{"HSET", "tokens", "name", "9223372036854775807"}, {"HINCRBY", "tokens", "name", 1}},
		{{"SET", "lock", "mine", "KEEPTTL", "PX", 5000}},
		{{"SET", "lock", "mine", "NX", "XX"}},
		{{"SET", "lock", "mine", "PX", 1600}, {"TTL", "lock"}},
		{{"EVAL", "return cjson.encode({})", 0}},
		{{"EVAL", "return cjson.encode({1, nil, 3})", 0}},
		{{"EVAL", "return tonumber('1e3')", 0}},
		{{"SCRIPT", "LOAD", "return 1"}, {"EVALSHA", "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB", 0}},
	} {
		last := lines[len(lines)-1]
		fmt.Println(strings.TrimSpace(fmt.Sprintln(last...)))
		for i, client := range clients {
			client.FlushAll(ctx)
			var v any
			for _, line := range lines {
				if v, err = client.Do(ctx, line...).Result(); err != nil {
					v, _, _ = strings.Cut(err.Error(), ".")
				}
			}
			fmt.Printf("  %s: %v\n", names[i], v)
		}
	}
}
END
port=$(port)
start "$port"
recorded "$(timeout 60 "$program" "127.0.0.1:$port" 2>&1)" <<'END'
EVAL return 1795898458502123 .. '' 0
  server: 1.7958984585021e+15
  miniredis: 1795898458502123
HINCRBY tokens name 1
  server: ERR increment or decrement would overflow
  miniredis: -9223372036854775808
SET lock mine KEEPTTL PX 5000
  server: ERR syntax error
  miniredis: OK
SET lock mine NX XX
  server: ERR syntax error
  miniredis: redis: nil
TTL lock
  server: 2
  miniredis: 1
EVAL return cjson.encode({}) 0
  server: {}
  miniredis: []
EVAL return cjson.encode({1, nil, 3}) 0
  server: [1,null,3]
  miniredis: redis: nil
EVAL return tonumber('1e3') 0
  server: 1000
  miniredis: redis: nil
EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0
  server: 1
  miniredis: NOSCRIPT No matching script
END
