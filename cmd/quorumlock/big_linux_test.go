package main

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// maxMemory is the limit of the tool's memory, in KB, for any number of locks.
const maxMemory = 150_000

// With 100,000 locks and a queue of 10,000 every command answers, in little memory. The test logs
// the times.
func TestManyLocksAndALongQueueTakeLittleMemory(t *testing.T) {
	needRedis(t)
	const locks, waiters = 100_000, 10_000
	servers, nodes := startServers(t, 3, "--appendonly", "no")
	for _, s := range servers {
		fill(t, s.admin, locks, waiters)
	}
	t.Run("serve", func(t *testing.T) { serveMany(t, nodes) })
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"list"}, "client-"},
		{[]string{"list", "lock:0000*"}, "lock:00000"},
		{[]string{"list", "--json", "long"}, `"waiting":10000`},
		{[]string{"inspect", "long"}, "and 9900 more"},
		{[]string{"inspect", "long", "--json"}, `"waiting":10000`},
		{[]string{"top", "-n", "1"}, "more"},
		{[]string{"top", "-n", "1", "long"}, "waiting=10000"},
		{[]string{"unlock", "long", "--force", "--yes"}, "10000 in the queue"},
	} {
		has(t, measure(t, nodes, c.args...), c.want)
	}
}

func TestListOfAllLocksTakesLittleMemory(t *testing.T) {
	needRedis(t)
	const locks = 50_000
	servers, nodes := startServers(t, 1, "--appendonly", "no")
	fill(t, servers[0].admin, locks, 0)
	out := measure(t, nodes, "list", "--limit", "0")
	testkit.Equal(t, strings.Count(out, "\nlock:"), locks, "locks in the list")
}

// measure runs the tool, and returns its output. It logs the time that this took, and checks the
// memory.
func measure(t *testing.T, nodes string, args ...string) string {
	t.Helper()
	c := command(nodes, args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	began := time.Now()
	out, err := c.Output()
	testkit.OK(t, err, "%q: %s", args, &stderr)
	memory := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	t.Logf("%q: %v, %d MB", args, time.Since(began).Round(time.Millisecond), memory/1000)
	if memory > maxMemory {
		t.Errorf("%q took %d KB of memory, want at most %d", args, memory, maxMemory)
	}
	return string(out)
}

// fill makes locks that are held, and one with a queue, as the library's scripts would.
func fill(t *testing.T, c *redis.Client, locks, waiters int) {
	t.Helper()
	ctx := context.Background()
	err := c.Eval(ctx, `
		for i = 0, ARGV[1] - 1 do
			local name = string.format('lock:%05d', i)
			redis.call('hset', name, 'client-' .. i .. '~0:1.0', 1, 'mode', 'mutex')
			redis.call('pexpire', name, 600000)
			redis.call('set', 'redisson_lock_token:{' .. name .. '}', 1000 + i, 'px', 600000)
		end
		return 1`, nil, locks).Err()
	if err == nil && waiters > 0 {
		err = c.Eval(ctx, `
			redis.call('hset', 'long', 'holder~0:1.0', 1, 'mode', 'mutex')
			redis.call('pexpire', 'long', 600000)
			for i = 1, ARGV[1] do
				redis.call('zadd', 'quorumlock_queue:{long}', ARGV[2] + i, 'waiter-' .. i .. '~0:1')
				redis.call('hset', 'quorumlock_waiters:{long}', 'waiter-' .. i .. '~0:1', ARGV[3] .. ' 1')
			end
			return 1`, nil, waiters, time.Now().UnixMicro(), time.Now().Add(time.Hour).UnixMilli()).Err()
	}
	testkit.Must(t, err, "fill %s", c)
}
