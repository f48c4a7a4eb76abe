#!/usr/bin/env bash
# What docs/coming-from.md and docs/compared.md say about redsync.
#
# Package: github.com/go-redsync/redsync/v4 v4.18.1, github.com/redis/go-redis/v9 v9.23.0, Debian's redis-server 7.0.15
# Date:    2026-11-29
. "$(dirname "$0")/../../findings/lib.bash"
server redis 7.0.15
ports=("$(port)" "$(port)" "$(port)")
for p in "${ports[@]}"; do start "$p"; done
proxy "${ports[0]}"
program github.com/go-redsync/redsync/v4@v4.18.1 github.com/redis/go-redis/v9@v9.23.0 <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func client(addr string, retries int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: retries})
}

func over(clients ...*redis.Client) *redsync.Redsync {
	var all []pools.Pool
	for _, c := range clients {
		all = append(all, goredis.NewPool(c))
	}
	return redsync.New(all...)
}

func main() {
	a, b, c := client(os.Args[1], 0), client(os.Args[2], 0), client(os.Args[3], 0)
	proxied, down := client(os.Args[4], 3), client("127.0.0.1:1", -1)
	three := over(a, b, c)
	everywhere := func(do func(*redis.Client)) {
		for _, c := range []*redis.Client{a, b, c} {
			do(c)
		}
	}
	try := func(rs *redsync.Redsync, name string) string { return kind(rs.NewMutex(name).TryLockContext(ctx)) }

	var methods []string
	for t, i := reflect.TypeFor[*redsync.Mutex](), 0; i < t.NumMethod(); i++ {
		methods = append(methods, t.Method(i).Name)
	}
	fmt.Println("methods:", strings.Join(methods, " "))

	m := three.NewMutex("job", redsync.WithExpiry(8*time.Second))
	check(m.LockContext(ctx))
	fmt.Println("lock: all servers have the key, for 8 s at most:", a.PTTL(ctx, "job").Val() <= 8*time.Second && a.Exists(ctx, "job").Val()+b.Exists(ctx, "job").Val()+c.Exists(ctx, "job").Val() == 3)
	fmt.Println("drift: Until is before the expiry less 1 %:", time.Until(m.Until()) <= 7920*time.Millisecond)
	valid, err := m.ValidContext(ctx)
	check(err)
	fmt.Println("valid:", valid)
	fmt.Println("taken: another caller's try returns", try(three, "job"))
	fmt.Println("again: the holder's try returns", kind(m.TryLockContext(ctx)))
	ok, err := m.ExtendContext(ctx)
	fmt.Println("extend:", ok, kind(err))
	ok, err = m.UnlockContext(ctx)
	fmt.Println("unlock:", ok, kind(err))

	fmt.Println("majority: with one server of three down, a try returns", try(over(a, b, down), "majority"))
	fmt.Println("no quorum: with two down, it returns", try(over(a, down, down), "no quorum"))

	short := three.NewMutex("renewal", redsync.WithExpiry(300*time.Millisecond))
	check(short.LockContext(ctx))
	time.Sleep(400 * time.Millisecond)
	fmt.Println("renewal: keys of a held lock after its expiry:", a.Exists(ctx, "renewal").Val())

	check(m.LockContext(ctx))
	everywhere(func(c *redis.Client) { c.Del(ctx, "job") })
	fmt.Println("loss: Until is still ahead:", time.Until(m.Until()) > time.Second)
	ok, err = m.UnlockContext(ctx)
	fmt.Println("loss: Unlock returns", ok, kind(err))
	everywhere(func(c *redis.Client) { c.Set(ctx, "job", "another", time.Minute) })
	ok, err = m.ExtendContext(ctx)
	fmt.Println("loss to another: Extend returns", ok, kind(err))
	ok, err = m.UnlockContext(ctx)
	fmt.Println("loss to another: Unlock returns", ok, kind(err))

	check(a.ConfigResetStat(ctx).Err())
	err = three.NewMutex("job", redsync.WithTries(4), redsync.WithRetryDelay(20*time.Millisecond)).LockContext(ctx)
	sets := regexp.MustCompile(`cmdstat_set:calls=(\d+)`).FindStringSubmatch(a.Info(ctx, "commandstats").Val())
	fmt.Printf("polls: 4 tries of a held lock return %s, SETs at a server: %s\n", kind(err), sets[1])
	ending, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	fmt.Println("ctx: a held lock, and the end of ctx between two tries:", kind(three.NewMutex("job", redsync.WithRetryDelay(time.Minute)).LockContext(ending)))

	shared := three.NewMutex("shared")
	check(shared.LockContext(ctx))
	err = shared.TryLockContext(ctx)
	ok, _ = shared.UnlockContext(ctx)
	fmt.Printf("shared: of two callers with one Mutex, the second gets %s, and its Unlock frees the lock of the first: %t\n", kind(err), ok)

	lose := func() {
		check(proxied.Ping(ctx).Err())
		check(os.WriteFile(os.Args[5]+"/drop", nil, 0o600))
	}
	one := over(proxied)
	lose()
	fmt.Println("lost reply: a try of a free lock returns", try(one, "lost"))
	m = one.NewMutex("lost")
	check(m.LockContext(ctx))
	lose()
	ok, err = m.ExtendContext(ctx)
	fmt.Println("lost reply: Extend returns", ok, kind(err))
	lose()
	ok, err = m.UnlockContext(ctx)
	fmt.Println("lost reply: Unlock returns", ok, kind(err))
}

// kind names the errors in err.
func kind(err error) string {
	if err == nil {
		return "nil"
	}
	var kinds []string
	for _, k := range []struct {
		name string
		is   bool
	}{
		{"ErrFailed", errors.Is(err, redsync.ErrFailed)},
		{"ErrLockAlreadyExpired", errors.Is(err, redsync.ErrLockAlreadyExpired)},
		{"ErrTaken", errors.As(err, new(*redsync.ErrTaken))},
		{"RedisError", errors.As(err, new(*redsync.RedisError))},
	} {
		if k.is {
			kinds = append(kinds, k.name)
		}
	}
	return strings.Join(kinds, "+")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$(timeout 60 "$program" "127.0.0.1:${ports[0]}" "127.0.0.1:${ports[1]}" "127.0.0.1:${ports[2]}" "$proxy" "$faults" 2>/dev/null)" <<'END'
methods: Extend ExtendContext Lock LockContext Name TryLock TryLockContext Unlock UnlockContext Until Valid ValidContext Value
lock: all servers have the key, for 8 s at most: true
drift: Until is before the expiry less 1 %: true
valid: true
taken: another caller's try returns ErrTaken
again: the holder's try returns ErrTaken
extend: true nil
unlock: true nil
majority: with one server of three down, a try returns nil
no quorum: with two down, it returns RedisError
renewal: keys of a held lock after its expiry: 0
loss: Until is still ahead: true
loss: Unlock returns false ErrLockAlreadyExpired
loss to another: Extend returns false ErrTaken
loss to another: Unlock returns false ErrTaken
polls: 4 tries of a held lock return ErrTaken, SETs at a server: 4
ctx: a held lock, and the end of ctx between two tries: ErrFailed
shared: of two callers with one Mutex, the second gets ErrTaken, and its Unlock frees the lock of the first: true
lost reply: a try of a free lock returns ErrTaken
lost reply: Extend returns true nil
lost reply: Unlock returns false ErrLockAlreadyExpired
END
