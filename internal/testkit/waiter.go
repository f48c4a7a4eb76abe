package testkit

import (
	"context"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// MustLock acquires l, or ends the test. Any goroutine of a bubble may call it, unlike [Lock].
func MustLock(t testing.TB, l quorumlock.Locker) *quorumlock.Lease {
	t.Helper()
	lease, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// MustUnlock unlocks the lease, or fails the test. Any goroutine of a bubble may call it.
func MustUnlock(t testing.TB, lease *quorumlock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// Waiter calls Lock, and returns a channel for the lease. The call is queued when Waiter returns.
func Waiter(t testing.TB, l quorumlock.Locker) <-chan *quorumlock.Lease {
	t.Helper()
	time.Sleep(time.Millisecond) // until all nodes have granted the lock to its holder
	got := make(chan *quorumlock.Lease, 1)
	go func() {
		lease, err := l.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	time.Sleep(20 * time.Millisecond)
	return got
}

// Served checks that a waiter gets the lock soon after its previous holder, with a token near the
// clock.
func Served(t testing.TB, got <-chan *quorumlock.Lease, before *quorumlock.Lease) *quorumlock.Lease {
	t.Helper()
	select {
	case lease := <-got:
		if lease == nil {
			t.FailNow()
		}
		if lease.Token() <= before.Token() || lease.Token() > before.Token()+uint64(time.Hour/time.Microsecond) {
			t.Errorf("token %d after %d", lease.Token(), before.Token())
		}
		return lease
	case <-time.After(2 * time.Second):
		t.Fatalf("a waiter for %q has not got it in 2 s", before.Name())
		return nil
	}
}

// Call begins a call, and returns when it waits or has returned. The channel receives its lease,
// and is closed when the call has returned.
func Call(t testing.TB, ctx context.Context, lock func(context.Context) (*quorumlock.Lease, error)) <-chan *quorumlock.Lease {
	t.Helper()
	got := make(chan *quorumlock.Lease, 1)
	go func() {
		lease, err := lock(ctx)
		if err != nil && ctx.Err() == nil {
			t.Errorf("a waiter fails: %v", err)
		}
		if lease != nil {
			got <- lease
		}
		close(got)
	}()
	time.Sleep(20 * time.Millisecond)
	return got
}

// Has reports whether a call has its lease.
func Has(got <-chan *quorumlock.Lease) bool { time.Sleep(20 * time.Millisecond); return len(got) > 0 }

// Go begins a call, and returns a channel for its result.
func Go[T any](call func() T) <-chan T {
	got := make(chan T, 1)
	go func() { got <- call() }()
	return got
}

// Pending checks that a call has not returned, or ends the test.
func Pending[T any](t testing.TB, got <-chan T, what string) {
	t.Helper()
	select {
	case v := <-got:
		t.Fatalf("%s: it returned %v", what, v)
	default:
	}
}

// Within returns a context that ends after d.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
