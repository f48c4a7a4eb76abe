package redlock_test

// Each example here is a row of the table in docs/redisson.md. They are compiled only: they need
// servers.

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// The variables of the rows.
var (
	ctx         = context.Background()
	client      *redlock.Client
	oneNode     *node.Node
	m           *redlock.Mutex
	lease       *quorumlock.Lease
	one, other  quorumlock.Locker
	urls        []string
	wait, least time.Duration
)

func Example_redissonTryLockWaitLease() {
	lease, err := client.Mutex("x", quorumlock.WithWait(wait), quorumlock.WithTTL(least), quorumlock.WithoutRenewal()).Lock(ctx)
	late := errors.Is(err, context.DeadlineExceeded)
	_, _ = lease, late
}

func Example_redissonLock() {
	lease, err := m.Lock(ctx)
	_, _ = lease, err
}

func Example_redissonLockLease() {
	lease, err := client.Mutex("x", quorumlock.WithTTL(least), quorumlock.WithoutRenewal()).Lock(ctx)
	_, _ = lease, err
}

func Example_redissonTryLock() {
	lease, err := m.TryLock(ctx)
	held := errors.Is(err, quorumlock.ErrHeld)
	_, _ = lease, held
}

func Example_redissonTryLockLease() {
	lease, err := client.Mutex("x", quorumlock.WithTTL(least), quorumlock.WithoutRenewal()).TryLock(ctx)
	_, _ = lease, err
}

func Example_redissonTryLockWait() {
	lease, err := client.Mutex("x", quorumlock.WithWait(wait)).Lock(ctx)
	late := errors.Is(err, context.DeadlineExceeded)
	_, _ = lease, late
}

func Example_redissonLockInterruptibly() {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lease, err := m.Lock(ctx)
	_, _ = lease, err
}

func Example_redissonUnlock() {
	err := lease.Unlock(ctx)
	_ = errors.Is(err, quorumlock.ErrNotHeld) || errors.Is(err, quorumlock.ErrLost)
}

func Example_redissonForceUnlock() {
	err := client.ForceUnlock(ctx, "x")
	_ = err
}

func Example_redissonIsLocked() {
	in, err := client.Inspect(ctx, "x")
	held := in.State.Held()
	_, _ = held, err
}

func Example_redissonIsLockedNode() {
	s, err := oneNode.Inspect(ctx, "x")
	held := s.Held()
	_, _ = held, err
}

func Example_redissonIsHeldByThread() {
	in, err := client.Inspect(ctx, "x")
	held := in.State.Owner == lease.Owner()
	_, _ = held, err
}

func Example_redissonIsHeldByCurrentThread() {
	held := lease.Context().Err() == nil
	_ = held
}

func Example_redissonGetHoldCount() {
	n := lease.HoldCount()
	_ = n
}

func Example_redissonRemainTimeToLive() {
	left := time.Until(lease.ValidUntil())
	_ = left
}

func Example_redissonReentry() {
	inner, err := m.Lock(lease.Context())
	_, _ = inner, err
}

func Example_redissonGetMultiLock() {
	all, err := multilock.New([]quorumlock.Locker{one, other})
	_, _ = all, err
}

func Example_redissonGetRedLock() {
	client, err := redlock.Dial(urls)
	_, _ = client, err
}

func Example_redissonGetFencedLock() {
	token := lease.Token()
	_ = token
}

func Example_redissonGetReadWriteLock() {
	rw := client.RWMutex("x")
	read, err := rw.RLock(ctx)
	write, err2 := rw.Lock(ctx)
	_, _, _, _ = read, write, err, err2
}

func Example_redissonGetSemaphore() {
	lease, err := client.Semaphore("x", 5).Lock(ctx)
	_, _ = lease, err
}

func Example_redissonGetCountDownLatch() {
	l := client.Latch("x", 3)
	err := l.Done(ctx, "part-1")
	err2 := l.Wait(ctx)
	_, _ = err, err2
}
