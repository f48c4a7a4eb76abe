package redisson

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Semaphore is an RSemaphore or, if it is expirable, an RPermitExpirableSemaphore. Both keep the
// free permits as a string.
type Semaphore struct {
	client    *Client
	name      string
	expirable bool
}

// Semaphore returns an RSemaphore.
func (c *Client) Semaphore(name string) *Semaphore { return &Semaphore{c, name, false} }

// PermitExpirableSemaphore returns an RPermitExpirableSemaphore.
func (c *Client) PermitExpirableSemaphore(name string) *Semaphore { return &Semaphore{c, name, true} }

var (
	setPermits   = script(trySetPermits)
	takePermit   = script(tryAcquirePermit)
	returnPermit = script(releasePermit)
	takeTimed    = script(overdue + tryAcquireTimed)
	setCount     = script(trySetCount)
	countDown    = script(countDownOnce)
	enterGroup   = script(tryGroup)
	leaveGroup   = script(seen + unlockGroup)
)

func (s *Semaphore) keys() []string {
	return []string{s.name, prefixed("redisson_sc", s.name), prefixed("", s.name)[1:] + ":timeout"}
}

// TrySetPermits is trySetPermits(n).
func (s *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return setPermits.Run(ctx, s.client.redis, s.keys(), n, s.client.publish()).Bool()
}

// TryAcquire is tryAcquire(): it asks once.
func (s *Semaphore) TryAcquire(ctx context.Context) (bool, error) {
	if !s.expirable {
		return takePermit.Run(ctx, s.client.redis, s.keys()).Bool()
	}
	now := time.Now()
	won, err := takeTimed.Run(ctx, s.client.redis, s.keys(), now.UnixMilli(), now.Add(time.Minute).UnixMilli(), "id", s.client.publish()).Bool()
	return won, err
}

// Release is release() of an RSemaphore.
func (s *Semaphore) Release(ctx context.Context) error {
	return returnPermit.Run(ctx, s.client.redis, s.keys(), s.client.publish()).Err()
}

// CountDownLatch is an RCountDownLatch.
type CountDownLatch struct {
	client *Client
	name   string
}

// CountDownLatch returns an RCountDownLatch.
func (c *Client) CountDownLatch(name string) *CountDownLatch { return &CountDownLatch{c, name} }

func (l *CountDownLatch) keys() []string {
	return []string{l.name, "redisson_countdownlatch__channel__{" + l.name + "}"}
}

// TrySetCount is trySetCount(n).
func (l *CountDownLatch) TrySetCount(ctx context.Context, n int) (bool, error) {
	return setCount.Run(ctx, l.client.redis, l.keys(), n, l.client.publish()).Bool()
}

// CountDown is countDown().
func (l *CountDownLatch) CountDown(ctx context.Context) error {
	if err := countDown.Run(ctx, l.client.redis, l.keys(), l.client.publish()).Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

// GroupLock locks some values of a group, which are fields of one hash: getMultiLock(group,
// values).
type GroupLock struct {
	client        *Client
	group, thread string
	values        []any
}

// GroupLock returns a lock of values of a group. Redisson would hash the values.
func (c *Client) GroupLock(group string, values ...any) *GroupLock {
	return &GroupLock{c, group, c.ID + ":1", values}
}

// TryLock is tryLock(): it asks once.
func (l *GroupLock) TryLock(ctx context.Context) (bool, error) {
	args := append([]any{l.client.Watchdog.Milliseconds(), time.Now().UnixMilli(), l.thread}, l.values...)
	return enterGroup.Run(ctx, l.client.redis, []string{l.group}, args...).Bool()
}

// Unlock is unlock(). It returns [ErrNotHeld] where Java throws.
func (l *GroupLock) Unlock(ctx context.Context) error {
	keys := []string{l.group, channel(l.group), prefixed("redisson_unlock_latch", l.group) + ":1"}
	args := append([]any{time.Now().UnixMilli(), l.thread, "0", 5000, l.client.publish()}, l.values...)
	err := leaveGroup.Run(ctx, l.client.redis, keys, args...).Err()
	if errors.Is(err, redis.Nil) {
		return ErrNotHeld
	}
	return err
}
