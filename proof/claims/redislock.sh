#!/usr/bin/env bash
# What docs/coming-from.md and docs/compared.md say about redislock.
#
# Package: github.com/bsm/redislock v0.9.4, github.com/redis/go-redis/v9 v9.23.0, Debian's redis-server 7.0.15
# Date:    2026-11-29
. "$(dirname "$0")/../../findings/lib.bash"
server redis 7.0.15
port=$(port)
start "$port"
proxy "$port"
program github.com/bsm/redislock@v0.9.4 github.com/redis/go-redis/v9@v9.23.0 <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func main() {
	server := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	c := redislock.New(server)
	fmt.Println("methods:", methods(reflect.TypeFor[*redislock.Client]()), methods(reflect.TypeFor[*redislock.Lock]()))

	lock, err := c.Obtain(ctx, "job", 10*time.Second, &redislock.Options{Metadata: "who"})
	check(err)
	keys := server.Keys(ctx, "*").Val()
	fmt.Println("obtain: keys at the server:", keys, "for 10 s at most:", server.PTTL(ctx, "job").Val() <= 10*time.Second)
	fmt.Println("metadata:", lock.Metadata(), strings.HasSuffix(server.Get(ctx, "job").Val(), "who"))
	left, err := lock.TTL(ctx)
	check(err)
	fmt.Println("TTL: what is left:", left > 0 && left <= 10*time.Second)
	_, err = c.Obtain(ctx, "job", time.Second, nil)
	fmt.Println("held: without options, one try returns", kind(err))
	count := 0
	_, err = c.Obtain(ctx, "job", time.Second, &redislock.Options{RetryStrategy: counting{redislock.LimitRetry(redislock.LinearBackoff(time.Millisecond), 3), &count}})
	fmt.Printf("polls: with 3 retries, it returns %s, and the strategy was asked %d times\n", kind(err), count)
	began := time.Now()
	_, err = c.Obtain(ctx, "job", 300*time.Millisecond, &redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)})
	fmt.Println("wait: a wait without a deadline ends after the TTL of 300 ms, not of the holder's 10 s:", kind(err), time.Since(began) < 5*time.Second)
	deadline, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	time.AfterFunc(time.Second, func() { check(lock.Release(ctx)) })
	lock, err = c.Obtain(deadline, "job", 300*time.Millisecond, &redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)})
	fmt.Println("wait: with a deadline of ctx, it goes on:", kind(err))

	check(lock.Refresh(ctx, 10*time.Second, nil))
	fmt.Println("refresh: to the given TTL:", server.PTTL(ctx, "job").Val() > time.Second)
	fmt.Println("release:", kind(lock.Release(ctx)))
	fmt.Println("release: a second one returns", kind(lock.Release(ctx)))
	lock, err = c.Obtain(ctx, "job", 100*time.Millisecond, nil)
	check(err)
	time.Sleep(200 * time.Millisecond)
	fmt.Println("renewal: keys of a held lock after its TTL:", server.Exists(ctx, "job").Val())
	left, err = lock.TTL(ctx)
	check(err)
	fmt.Printf("loss: TTL %v, Refresh returns %s, Release %s\n", left, kind(lock.Refresh(ctx, time.Second, nil)), kind(lock.Release(ctx)))

	mine := &redislock.Options{Token: "mine"}
	outer, err := c.Obtain(ctx, "job", time.Minute, mine)
	check(err)
	inner, err := c.Obtain(ctx, "job", time.Minute, mine)
	fmt.Println("again: with the holder's token, it returns", kind(err))
	check(inner.Release(ctx))
	fmt.Printf("again: one Release leaves %d keys, and the second returns %s\n", server.Exists(ctx, "job").Val(), kind(outer.Release(ctx)))

	proxied := redis.NewClient(&redis.Options{Addr: os.Args[2]})
	lose := func() {
		check(proxied.Ping(ctx).Err())
		check(os.WriteFile(os.Args[3]+"/drop", nil, 0o600))
	}
	lose()
	lock, err = redislock.New(proxied).Obtain(ctx, "job", time.Minute, nil)
	fmt.Println("lost reply: Obtain of a free lock returns", kind(err))
	lose()
	fmt.Println("lost reply: Refresh returns", kind(lock.Refresh(ctx, time.Minute, nil)))
	lose()
	fmt.Println("lost reply: Release returns", kind(lock.Release(ctx)))
}

// counting counts how often a strategy is asked.
type counting struct {
	redislock.RetryStrategy
	count *int
}

func (c counting) NextBackoff() time.Duration {
	*c.count++
	return c.RetryStrategy.NextBackoff()
}

func methods(t reflect.Type) string {
	var names []string
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return strings.Join(names, " ")
}

func kind(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, redislock.ErrNotObtained):
		return "ErrNotObtained"
	case errors.Is(err, redislock.ErrLockNotHeld):
		return "ErrLockNotHeld"
	case errors.Is(err, context.DeadlineExceeded):
		return "DeadlineExceeded"
	}
	return err.Error()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$(timeout 60 "$program" "127.0.0.1:$port" "$proxy" "$faults" 2>&1)" <<'END'
methods: Obtain Key Metadata Obtain Refresh Release TTL Token
obtain: keys at the server: [job] for 10 s at most: true
metadata: who true
TTL: what is left: true
held: without options, one try returns ErrNotObtained
polls: with 3 retries, it returns ErrNotObtained, and the strategy was asked 4 times
wait: a wait without a deadline ends after the TTL of 300 ms, not of the holder's 10 s: DeadlineExceeded true
wait: with a deadline of ctx, it goes on: nil
refresh: to the given TTL: true
release: nil
release: a second one returns ErrLockNotHeld
renewal: keys of a held lock after its TTL: 0
loss: TTL 0s, Refresh returns ErrNotObtained, Release ErrLockNotHeld
again: with the holder's token, it returns nil
again: one Release leaves 0 keys, and the second returns ErrLockNotHeld
lost reply: Obtain of a free lock returns nil
lost reply: Refresh returns nil
lost reply: Release returns ErrLockNotHeld
END
