#!/usr/bin/env bash
# What docs/coming-from.md and docs/compared.md say about rueidislock.
#
# Package: github.com/redis/rueidis v1.0.79 (its package rueidislock), Debian's redis-server 7.0.15
# Date:    2026-11-29
. "$(dirname "$0")/../../findings/lib.bash"
server redis 7.0.15
port=$(port)
start "$port"
proxy "$port"
program github.com/redis/rueidis@v1.0.79 <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

var ctx = context.Background()

// locker has the defaults but for the validity, the wait for a key, and the majority.
func locker(addr string, validity time.Duration, majority int32) rueidislock.Locker {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		KeyValidity:  validity, KeyMajority: majority, TryNextAfter: 2 * time.Second,
	})
	check(err)
	return l
}

func main() {
	a, b := locker(os.Args[1], time.Second, 0), locker(os.Args[1], time.Second, 0)
	do := func(command ...string) rueidis.RedisResult {
		return a.Client().Do(ctx, a.Client().B().Arbitrary(command[0]).Args(command[1:]...).Build())
	}
	keys := func(name string) []string {
		found, err := do("KEYS", "*:"+name).AsStrSlice()
		check(err)
		slices.Sort(found)
		return found
	}
	var methods []string
	for t, i := reflect.TypeFor[rueidislock.Locker](), 0; i < t.NumMethod(); i++ {
		methods = append(methods, t.Method(i).Name)
	}
	fmt.Println("methods:", strings.Join(methods, " "))

	held, cancel, err := a.WithContext(ctx, "job")
	check(err)
	fmt.Println("keys: by default, of one server:", soon(func() bool { return len(keys("job")) == 3 }), keys("job"))
	_, _, err = b.TryWithContext(ctx, "job")
	fmt.Println("held: another process's try returns", kind(err))
	_, _, err = a.TryWithContext(ctx, "job")
	fmt.Println("again: the holder's try returns", kind(err))
	_, _, err = a.TryWithContext(held, "job")
	fmt.Println("again: with the context of the lock, it returns", kind(err))
	left, err := do("PTTL", "rueidislock:0:job").AsInt64()
	check(err)
	fmt.Println("validity: a key is kept for KeyValidity:", left > 0 && left <= 1000)
	time.Sleep(3 * time.Second)
	fmt.Println("renewal: held after three times KeyValidity:", held.Err() == nil, len(keys("job")))
	cancel()
	fmt.Println("release: cancel returns nothing, keys left:", len(keys("job")), "ctx:", held.Err())

	parent, end := context.WithCancel(ctx)
	_, _, err = a.WithContext(parent, "parent")
	check(err)
	end()
	fmt.Println("release: the end of the given ctx releases the lock:", soon(func() bool { return len(keys("parent")) == 0 }))

	held, cancel, err = a.WithContext(ctx, "lost")
	check(err)
	check(do(append([]string{"DEL"}, keys("lost")...)...).Error())
	fmt.Println("loss: the ctx ends, with the cause:", soon(func() bool { return held.Err() != nil }), context.Cause(held))
	cancel()

	long := locker(os.Args[1], time.Minute, 0)
	_, cancel, err = long.WithContext(ctx, "wait")
	check(err)
	soon(func() bool { return len(keys("wait")) == 3 })
	waiter := locker(os.Args[1], time.Minute, 0)
	granted := make(chan error)
	go func() {
		_, _, err := waiter.WithContext(ctx, "wait")
		granted <- err
	}()
	time.Sleep(time.Second) // the waiter has tried
	check(do("CONFIG", "RESETSTAT").Error())
	time.Sleep(time.Second)
	stats, err := do("INFO", "commandstats").ToString()
	check(err)
	fmt.Println("waiting: a waiter sends scripts in a second:", strings.Contains(stats, "evalsha"))
	cancel()
	fmt.Println("waiting: a release wakes it:", kind(<-granted))

	one := locker(os.Args[2], time.Minute, 1)
	_, cancel, err = one.TryWithContext(ctx, "warm")
	check(err)
	cancel()
	check(os.WriteFile(os.Args[3]+"/drop", nil, 0o600))
	_, _, err = one.TryWithContext(ctx, "reply")
	fmt.Printf("lost reply: a try of a free lock returns %s, keys left: %d\n", kind(err), len(keys("reply")))
}

// soon reports whether something becomes true within ten seconds.
func soon(done func() bool) bool {
	for range 1000 {
		if done() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func kind(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, rueidislock.ErrNotLocked):
		return "ErrNotLocked"
	}
	return err.Error()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$(timeout 90 "$program" "127.0.0.1:$port" "$proxy" "$faults" 2>&1)" <<'END'
methods: Client Close ForceWithContext TryWithContext WithContext
keys: by default, of one server: true [rueidislock:0:job rueidislock:1:job rueidislock:2:job]
held: another process's try returns ErrNotLocked
again: the holder's try returns ErrNotLocked
again: with the context of the lock, it returns ErrNotLocked
validity: a key is kept for KeyValidity: true
renewal: held after three times KeyValidity: true 3
release: cancel returns nothing, keys left: 0 ctx: context canceled
release: the end of the given ctx releases the lock: true
loss: the ctx ends, with the cause: true context canceled
waiting: a waiter sends scripts in a second: false
waiting: a release wakes it: nil
lost reply: a try of a free lock returns ErrNotLocked, keys left: 1
END
