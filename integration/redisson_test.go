package integration

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/node"
)

// The scripts of Redisson's RedissonLock.
const (
	redissonLock = `
		if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
			redis.call('hincrby', KEYS[1], ARGV[2], 1);
			redis.call('pexpire', KEYS[1], ARGV[1]);
			return nil;
		end;
		return redis.call('pttl', KEYS[1]);`
	redissonRenew = `
		if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
			redis.call('pexpire', KEYS[1], ARGV[1]);
			return 1;
		end;
		return 0;`
	redissonUnlock = `
		if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end;
		local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
		if (counter > 0) then
			redis.call('pexpire', KEYS[1], ARGV[2]);
			return 0;
		end;
		redis.call('del', KEYS[1]);
		redis.call('publish', KEYS[2], ARGV[1]);
		return 1;`
)

// java is a thread of a service that locks with Redisson.
type java struct {
	t      *testing.T
	client *redis.Client
	name   string
	thread string
}

const javaTTL = 30_000 // ms, Redisson's default

// tryLock enters the lock, or returns the TTL of whoever has it.
func (j java) tryLock() (ttl time.Duration, entered bool) {
	j.t.Helper()
	ms, err := j.client.Eval(j.t.Context(), redissonLock, []string{j.name}, javaTTL, j.thread).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, true
	}
	must(j.t, err)
	return time.Duration(ms) * time.Millisecond, false
}

// renew is what its watchdog does.
func (j java) renew() bool {
	j.t.Helper()
	n, err := j.client.Eval(j.t.Context(), redissonRenew, []string{j.name}, javaTTL, j.thread).Int()
	must(j.t, err)
	return n == 1
}

// unlock returns 1 when the lock is free, 0 when entries are left, and -1 when the thread has none.
func (j java) unlock() int {
	j.t.Helper()
	keys := []string{j.name, "redisson_lock__channel:{" + j.name + "}"}
	n, err := j.client.Eval(j.t.Context(), redissonUnlock, keys, 0, javaTTL, j.thread).Int()
	if errors.Is(err, redis.Nil) {
		return -1
	}
	must(j.t, err)
	return n
}

// shared returns a thread with Redisson and a node of ours at one server.
func shared(t *testing.T, name string) (java, *node.Node) {
	t.Helper()
	s := five[0]
	t.Cleanup(func() { noLocks(t, five[:1], patience) })
	n, err := node.Dial(s.url())
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	return java{t, s.admin, name, "8743c9c0-0795-4907-87fd-6c719a6b4586:1"}, n
}

func TestRedissonKeepsUsOutAndWeKeepItOut(t *testing.T) {
	thread, n := shared(t, "shared")
	m := n.Mutex("shared", unhurried, quorumlock.WithTTL(time.Hour))

	if _, entered := thread.tryLock(); !entered {
		t.Fatal("Redisson cannot lock a free lock")
	}
	if _, err := m.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
		t.Errorf("TryLock of what Redisson holds: %v, want ErrHeld", err)
	}
	if thread.unlock() != 1 {
		t.Error("Redisson cannot unlock its lock after our attempt")
	}

	lease, err := m.TryLock(t.Context())
	must(t, err)
	ttl, entered := thread.tryLock()
	if entered || ttl < 59*time.Minute || ttl > time.Hour {
		t.Errorf("Redisson entered: %v; it is told to wait %v, want nearly our TTL", entered, ttl)
	}
	if thread.renew() || thread.unlock() != -1 {
		t.Error("Redisson could renew or unlock our lock")
	}
	must(t, lease.Unlock(t.Context()))
	if _, entered := thread.tryLock(); !entered {
		t.Error("Redisson cannot have the lock after our Unlock")
	}
	thread.unlock()
}

func TestHoldCountsAreSeenBothWays(t *testing.T) {
	thread, n := shared(t, "counted")
	ctx := t.Context()
	thread.tryLock()
	thread.tryLock()
	state, err := n.Inspect(ctx, "counted")
	must(t, err)
	if string(state.Owner) != thread.thread || state.HoldCount != 2 {
		t.Errorf("we see %q with %d entries, want Redisson's thread with 2", state.Owner, state.HoldCount)
	}
	if first, second := thread.unlock(), thread.unlock(); first != 0 || second != 1 {
		t.Errorf("Redisson's unlocks say %d and %d, want 0 and 1", first, second)
	}

	owner := quorumlock.NewOwner()
	for hold := 1; hold <= 3; hold++ {
		a, err := n.Acquire(ctx, "counted", owner, time.Minute, hold)
		must(t, err)
		if !a.Granted {
			t.Fatalf("entry %d is refused", hold)
		}
		count, err := thread.client.HGet(ctx, "counted", string(owner)).Int()
		must(t, err)
		if count != hold {
			t.Errorf("the hash says %d after entry %d", count, hold)
		}
	}
	for hold := 3; hold >= 1; hold-- {
		left, err := n.Release(ctx, "counted", owner, hold)
		must(t, err)
		count, err := thread.client.HGet(ctx, "counted", string(owner)).Int()
		if hold > 1 {
			must(t, err)
		}
		if left != hold-1 || count != left {
			t.Errorf("%d left, the hash says %d, want %d", left, count, hold-1)
		}
	}
}

// Messages that come one by one make a waiter try at once: far more often than it would by itself,
// every 600 ms.
func TestRedissonsUnlockWakesOurWaiter(t *testing.T) {
	const messages = 40
	thread, n := shared(t, "awaited")
	thread.tryLock()
	granted := make(chan error, 1)
	go func() {
		lease, err := n.Mutex("awaited", unhurried, quorumlock.WithRedissonWakeups()).Lock(t.Context())
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		granted <- err
	}()
	channel := "redisson_lock__channel:{awaited}"
	start := time.Now()
	for range messages {
		before := scriptsRun(t, thread.client)
		eventually(t, patience, "a waiter listens, and a message reaches it", func() bool {
			heard, err := thread.client.Publish(t.Context(), channel, 0).Result()
			must(t, err)
			return heard == 1
		})
		eventually(t, patience, "the waiter tries again", func() bool { return scriptsRun(t, thread.client) > before })
	}
	if took := time.Since(start); took > messages*500*time.Millisecond {
		t.Errorf("%d attempts took %v: the messages did not wake the waiter", messages, took)
	}
	if thread.unlock() != 1 {
		t.Error("Redisson cannot unlock")
	}
	must(t, <-granted)
}

// scriptsRun returns how many scripts the server has been asked for by their SHA: ours are.
func scriptsRun(t *testing.T, s *redis.Client) int {
	t.Helper()
	info, err := s.Info(t.Context(), "commandstats").Result()
	must(t, err)
	_, after, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
	digits, _, _ := strings.Cut(after, ",")
	calls, err := strconv.Atoi(cmp.Or(digits, "0"))
	must(t, err)
	return calls
}

func TestOurUnlockWakesRedissonsWaiters(t *testing.T) {
	thread, n := shared(t, "announced")
	sub := thread.client.Subscribe(t.Context(), "redisson_lock__channel:{announced}")
	t.Cleanup(func() { must(t, sub.Close()) })
	_, err := sub.Receive(t.Context()) // the subscription stands
	must(t, err)
	lease, err := n.Mutex("announced", unhurried).Lock(t.Context())
	must(t, err)
	must(t, lease.Unlock(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := sub.ReceiveMessage(ctx)
	must(t, err)
	if m.Payload != "0" {
		t.Errorf("the message is %q, want 0", m.Payload)
	}
	if _, entered := thread.tryLock(); !entered {
		t.Error("Redisson is told of the release, and cannot have the lock")
	}
	thread.unlock()
}
