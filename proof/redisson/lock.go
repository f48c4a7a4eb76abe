package redisson

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/settings"
)

func script(source string) *redis.Script { return redis.NewScript(source) }

func channel(name string) string { return prefixed("redisson_lock__channel", name) }

func silent(string) string { return "" }

var (
	rLock       = kind{try: script(tryLock), unlock: script(unlock), renew: script(renew), channel: channel, message: "0"}
	spinLock    = kind{try: rLock.try, unlock: script(unlockSpin), renew: rLock.renew, channel: silent}
	fencedLock  = kind{try: script(tryFenced), unlock: rLock.unlock, renew: rLock.renew, channel: channel, message: "0"}
	fairLock    = kind{try: script(fmt.Sprintf(stale, 2, 3, 4) + tryFair), unlock: script(seen + fmt.Sprintf(stale, 4, 5, 6) + unlockFair), renew: rLock.renew, channel: channel, message: "0"}
	readLock    = kind{try: script(tryRead), unlock: script(unlockRead), renew: rLock.renew, channel: rwChannel, message: "0", mode: "read"}
	writeLock   = kind{try: script(tryWrite), unlock: script(unlockWrite), renew: rLock.renew, channel: rwChannel, message: "1", field: ":write", mode: "write"}
	giveUp      = script(giveUpFair)
	forceScript = script(forceUnlock)
)

func rwChannel(name string) string { return prefixed("redisson_rwlock", name) }

// Lock is an RLock of one of the classes, as one thread uses it.
type Lock struct {
	client *Client
	kind   *kind
	name   string
	thread int // less one
}

// OnThread returns the lock as another thread uses it. The others are of thread 1.
func (l Lock) OnThread(n int) *Lock {
	l.thread = n - 1
	return &l
}

// Lock returns an RLock.
func (c *Client) Lock(name string) *Lock { return &Lock{client: c, kind: &rLock, name: name} }

// FairLock returns an RFairLock.
func (c *Client) FairLock(name string) *Lock { return &Lock{client: c, kind: &fairLock, name: name} }

// SpinLock returns an RSpinLock with the default back-off.
func (c *Client) SpinLock(name string) *Lock { return &Lock{client: c, kind: &spinLock, name: name} }

// FencedLock returns an RFencedLock.
func (c *Client) FencedLock(name string) *Lock {
	return &Lock{client: c, kind: &fencedLock, name: name}
}

// ReadLock returns the read lock of an RReadWriteLock.
func (c *Client) ReadLock(name string) *Lock { return &Lock{client: c, kind: &readLock, name: name} }

// WriteLock returns the write lock of an RReadWriteLock.
func (c *Client) WriteLock(name string) *Lock { return &Lock{client: c, kind: &writeLock, name: name} }

// Owner returns the field of the hash that the thread has.
func (l *Lock) Owner() quorumlock.Owner { return quorumlock.Owner(l.field()) }

func (l *Lock) threadName() string { return fmt.Sprintf("%s:%d", l.client.ID, l.thread+1) }

func (l *Lock) field() string { return l.threadName() + l.kind.field }

// fairWait is for how long a thread waits for a fair lock before it counts as dead.
const fairWait = 5 * time.Minute

// attempt runs the script once, to its end: a grant with an unread reply would last for the lease.
// once means that the thread does not wait: a fair lock does not queue it.
func (l *Lock) attempt(ctx context.Context, lease time.Duration, once bool) (granted bool, ttl time.Duration, err error) {
	keys, args := []string{l.name}, []any{lease.Milliseconds(), l.field()}
	switch l.kind {
	case &fairLock:
		how := "wait"
		if once {
			how = "once"
		}
		keys = append(keys, prefixed("redisson_lock_queue", l.name), prefixed("redisson_lock_timeout", l.name))
		args = append(args, fairWait.Milliseconds(), time.Now().UnixMilli(), how)
	case &readLock:
		keys = append(keys, l.timeouts())
	case &fencedLock:
		keys = append(keys, prefixed("redisson_lock_token", l.name))
	}
	reply, err := l.kind.try.Run(context.WithoutCancel(ctx), l.client.redis, keys, args...).Result()
	if errors.Is(err, redis.Nil) {
		return true, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	ms, _ := reply.(int64)
	return false, time.Duration(ms) * time.Millisecond, nil
}

// timeouts begins the keys of a reader's entries.
func (l *Lock) timeouts() string {
	return prefixed("", l.name)[1:] + ":" + l.threadName() + ":rwlock_timeout"
}

// lease returns the lease of an acquire: the watchdog's time if none is given.
func (l *Lock) lease(given time.Duration) time.Duration {
	if given > 0 {
		return given
	}
	return l.client.Watchdog
}

func (l *Lock) entered(given time.Duration) {
	if given <= 0 {
		l.client.watch(l)
	}
}

// TryLock is tryLock(): it asks once.
func (l *Lock) TryLock(ctx context.Context) (bool, error) {
	granted, _, err := l.attempt(ctx, l.lease(0), true)
	if granted {
		l.entered(0)
	}
	return granted, err
}

// Lock is lock(): it waits until it has the lock, or ctx is done.
func (l *Lock) Lock(ctx context.Context) error { return l.LockFor(ctx, 0) }

// LockFor is lock(lease). A lease of 0 is renewed.
func (l *Lock) LockFor(ctx context.Context, lease time.Duration) error {
	_, err := l.wait(ctx, -1, lease)
	return err
}

// TryLockFor is tryLock(wait, lease). A lease of 0 is renewed.
func (l *Lock) TryLockFor(ctx context.Context, wait, lease time.Duration) (bool, error) {
	return l.wait(ctx, max(wait, 0), lease)
}

// wait tries, subscribes, and tries again after each message, or after the time given by a refusal.
// A negative wait has no end.
func (l *Lock) wait(ctx context.Context, wait, lease time.Duration) (bool, error) {
	began := time.Now()
	late := func() bool { return wait >= 0 && time.Since(began) >= wait }
	granted, _, err := l.attempt(ctx, l.lease(lease), false)
	switch {
	case err != nil:
		return false, err
	case granted:
		l.entered(lease)
		return true, nil
	case late():
		return false, l.gaveUp(ctx)
	case l.kind == &spinLock:
		return l.spin(ctx, late, lease)
	}
	name := l.kind.channel(l.name)
	if l.kind == &fairLock {
		name += ":" + l.threadName()
	}
	e, err := l.client.subscribe(ctx, name)
	if err != nil {
		return false, err
	}
	defer l.client.unsubscribe(name, e)
	for {
		granted, ttl, err := l.attempt(ctx, l.lease(lease), false)
		switch {
		case err != nil:
			return false, err
		case granted:
			l.entered(lease)
			return true, nil
		case late():
			return false, l.gaveUp(ctx)
		}
		if ttl == 0 { // Java asks again at once; here, a request may take no time
			ttl = 100 * time.Microsecond
		}
		var over <-chan time.Time // a key without an expiry has none
		if wait >= 0 {
			left := wait - time.Since(began)
			if ttl >= 0 {
				left = min(left, ttl)
			}
			over = time.After(left)
		} else if ttl >= 0 {
			over = time.After(ttl)
		}
		e.blocked.Add(1)
		select {
		case <-e.latch:
		case <-over:
		case <-ctx.Done():
			e.blocked.Add(-1)
			_ = l.gaveUp(context.WithoutCancel(ctx))
			return false, ctx.Err()
		}
		e.blocked.Add(-1)
	}
}

// The default back-off of an RSpinLock.
const (
	firstSpin = time.Millisecond
	lastSpin  = 128 * time.Millisecond
)

func (l *Lock) spin(ctx context.Context, late func() bool, lease time.Duration) (bool, error) {
	for pause := firstSpin; ; pause = min(2*pause, lastSpin) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
		granted, _, err := l.attempt(ctx, l.lease(lease), false)
		if granted {
			l.entered(lease)
		}
		if granted || err != nil || late() {
			return granted, err
		}
	}
}

// gaveUp takes a thread out of the queue of a fair lock.
func (l *Lock) gaveUp(ctx context.Context) error {
	if l.kind != &fairLock {
		return nil
	}
	keys := []string{prefixed("redisson_lock_queue", l.name), prefixed("redisson_lock_timeout", l.name)}
	if err := giveUp.Run(ctx, l.client.redis, keys, l.threadName(), fairWait.Milliseconds()).Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

// Unlock is unlock(). It returns [ErrNotHeld] where Java throws.
func (l *Lock) Unlock(ctx context.Context) error {
	c := l.client
	latch := prefixed("redisson_unlock_latch", l.name) + ":" + settings.NewID()
	keys := []string{l.name, l.kind.channel(l.name), latch}
	args := []any{c.Watchdog.Milliseconds(), l.field(), l.kind.message, 5000, c.publish()}
	switch l.kind {
	case &fairLock:
		keys = append(keys, prefixed("redisson_lock_queue", l.name), prefixed("redisson_lock_timeout", l.name))
		args = append(args, time.Now().UnixMilli())
	case &readLock:
		keys, args = append(keys, l.timeouts()), append(args, prefixed("", l.name)[1:])
	case &spinLock:
		keys[1] = l.name // a spin lock has no channel
	}
	err := l.kind.unlock.Run(ctx, c.redis, keys, args...).Err()
	c.unwatch(l)
	switch {
	case errors.Is(err, redis.Nil):
		return ErrNotHeld
	case err != nil:
		return err
	}
	return c.redis.Del(ctx, latch).Err()
}

// ForceUnlock is forceUnlock(): it deletes the key, of any kind, and reports whether there was one.
// ForceUnlock of a read or write lock deletes only a key of its own mode.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	n, err := forceScript.Run(ctx, l.client.redis, []string{l.name, l.kind.channel(l.name)}, l.kind.message, l.client.publish(), l.kind.mode).Int()
	return n == 1, err
}

// HoldCount is getHoldCount(): how often the thread has entered.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	n, err := l.client.redis.HGet(ctx, l.name, l.field()).Int()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return n, err
}

// Token is getToken() of an RFencedLock.
func (l *Lock) Token(ctx context.Context) (uint64, error) {
	return l.client.redis.Get(ctx, prefixed("redisson_lock_token", l.name)).Uint64()
}
