package redisson

import (
	"context"
	"sync"
	"time"
)

// MultiLock is a RedissonMultiLock, or a RedissonRedLock: it takes its members one after the other.
type MultiLock struct {
	// AtOnce has Unlock release all members at the same time, as older versions of Redisson do.
	AtOnce bool

	locks []*Lock
	limit int // how many members may fail
}

// NewMultiLock returns a lock of all members.
func NewMultiLock(locks ...*Lock) *MultiLock { return &MultiLock{locks: locks} }

// NewRedLock returns a lock of most members.
func NewRedLock(locks ...*Lock) *MultiLock {
	return &MultiLock{locks: locks, limit: len(locks) - (len(locks)/2 + 1)}
}

// Lock is lock(): it tries for 1.5 s for each member, again and again.
func (m *MultiLock) Lock(ctx context.Context) error {
	for {
		won, err := m.TryLockFor(ctx, time.Duration(len(m.locks))*1500*time.Millisecond)
		if won || err != nil {
			return err
		}
	}
}

// TryLockFor is tryLock(wait). A member that fails counts as not acquired.
func (m *MultiLock) TryLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	began, each := time.Now(), wait
	if m.limit > 0 {
		each = max(wait/time.Duration(len(m.locks)), time.Millisecond)
	}
	var got []*Lock
	failed := 0
	for i := 0; i < len(m.locks); i++ {
		l := m.locks[i]
		won, err := l.TryLockFor(ctx, min(each, wait-time.Since(began)), 0)
		if ctx.Err() != nil {
			m.unlock(context.WithoutCancel(ctx), got)
			return false, ctx.Err()
		}
		switch {
		case won && err == nil:
			got = append(got, l)
		case len(m.locks)-len(got) == m.limit:
			i = len(m.locks) // there are enough
		case failed == m.limit:
			m.unlock(ctx, got)
			got, failed, i = nil, 0, -1
		default:
			failed++
		}
		if time.Since(began) >= wait && i < len(m.locks)-1 {
			m.unlock(ctx, got)
			return false, nil
		}
	}
	return true, nil
}

// Unlock is unlock(). Members that are not held do not matter.
func (m *MultiLock) Unlock(ctx context.Context) {
	if !m.AtOnce {
		m.unlock(ctx, m.locks)
		return
	}
	var all sync.WaitGroup
	for _, l := range m.locks {
		all.Go(func() { m.unlock(ctx, []*Lock{l}) })
	}
	all.Wait()
}

func (m *MultiLock) unlock(ctx context.Context, locks []*Lock) {
	for _, l := range locks {
		_ = l.Unlock(ctx)
	}
}
