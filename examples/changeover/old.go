package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/redis/rueidis/rueidislock"
)

// fromRedsync is a lock of redsync, which this process renews.
func fromRedsync(rs *redsync.Redsync, name string, expiry time.Duration) oldLock {
	return func(ctx context.Context) (context.Context, func(), error) {
		m := rs.NewMutex(name, redsync.WithExpiry(expiry))
		began := time.Now()
		if err := m.LockContext(ctx); err != nil {
			return nil, nil, err
		}
		held, stop := renew(ctx, began, expiry, func(ctx context.Context) error {
			ok, err := m.ExtendContext(ctx)
			if !ok && err == nil {
				err = redsync.ErrExtendFailed
			}
			return err
		})
		return held, func() {
			stop()
			_, _ = m.UnlockContext(context.WithoutCancel(ctx)) // or the lock ends with its expiry
		}, nil
	}
}

// fromRedislock is a lock of redislock, which this process renews.
func fromRedislock(c *redislock.Client, key string, ttl time.Duration, retry redislock.RetryStrategy) oldLock {
	return func(ctx context.Context) (context.Context, func(), error) {
		began := time.Now()
		lock, err := c.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: retry})
		if err != nil {
			return nil, nil, err
		}
		held, stop := renew(ctx, began, ttl, func(ctx context.Context) error { return lock.Refresh(ctx, ttl, nil) })
		return held, func() {
			stop()
			_ = lock.Release(context.WithoutCancel(ctx)) // or the lock ends with its TTL
		}, nil
	}
}

// fromRueidislock is a lock of rueidislock, which renews it until its context ends. So the lock's
// context must outlive ctx, and end after the work.
func fromRueidislock(l rueidislock.Locker, name string) oldLock {
	return func(ctx context.Context) (context.Context, func(), error) {
		kept, abort := context.WithCancel(context.WithoutCancel(ctx))
		waits := context.AfterFunc(ctx, abort)
		held, release, err := l.WithContext(kept, name)
		if err != nil {
			abort()
			return nil, nil, err
		}
		waits()
		held, end := context.WithCancelCause(held)
		stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
		return held, func() {
			stop()
			end(nil)
			release()
			abort()
		}, nil
	}
}

var errLost = errors.New("the old lock may be lost")

// renew extends a lock every third of its expiry, until stop, which waits for the last extension.
// The lock was acquired between began and now. held ends with ctx, or when nine tenths of the expiry
// have passed since the start of the last successful extension: the clocks need not agree on more.
func renew(ctx context.Context, began time.Time, expiry time.Duration, extend func(context.Context) error) (held context.Context, stop func()) {
	held, lose := context.WithCancelCause(ctx)
	end := func() time.Duration { return time.Until(began.Add(expiry * 9 / 10)) }
	loss := time.AfterFunc(end(), func() { lose(errLost) })
	renewing, done := context.WithCancel(context.WithoutCancel(ctx)) // the work may go on after ctx
	var loop sync.WaitGroup
	loop.Go(func() {
		for tick := time.Tick(expiry / 3); ; {
			select {
			case <-tick:
			case <-renewing.Done():
				return
			}
			asked := time.Now()
			if extend(renewing) == nil {
				began = asked
				loss.Reset(end())
			}
		}
	})
	return held, func() {
		done()
		loop.Wait()
		loss.Stop()
		lose(nil)
	}
}
