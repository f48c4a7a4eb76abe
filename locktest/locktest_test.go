package locktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/locktest"
)

func lock(t *testing.T, l *locktest.Locker) *quorumlock.Lease {
	t.Helper()
	lease, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func unlock(t *testing.T, lease *quorumlock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHoldTakesAFreeLockAtOnce(t *testing.T) {
	l := locktest.New("x")
	release := l.Hold()
	_, err := l.TryLock(t.Context())
	held, ok := errors.AsType[*quorumlock.HeldError](err)
	if !ok || held.Name != "x" || held.Holder.Label() != "somebody-else" || held.TTL <= 0 {
		t.Errorf("TryLock: %v, want that somebody else has it", err)
	}
	release()
	release() // once more is no harm
	unlock(t, lock(t, l))
}

func TestHoldTakesAHeldLockBeforeAllWhoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New("x")
		lease := lock(t, l)
		waiter := make(chan *quorumlock.Lease, 1)
		go func() { waiter <- lock(t, l) }()
		synctest.Wait()
		release := l.Hold()
		if n := l.Waiting(); n != 1 {
			t.Errorf("%d calls wait, want 1", n)
		}
		unlock(t, lease)
		synctest.Wait()
		select {
		case <-waiter:
			t.Fatal("the waiter came before the one who holds")
		default:
		}
		release()
		unlock(t, <-waiter)
	})
}

func TestHoldThatIsReleasedBeforeItsTurnTakesNothing(t *testing.T) {
	l := locktest.New("x")
	lease := lock(t, l)
	l.Hold()()
	unlock(t, lease)
	unlock(t, lock(t, l))
}

func TestLoseEndsTheLeaseAndFreesTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New("x")
		if l.Lose() {
			t.Error("Lose of a free lock says that there was a lease")
		}
		release := l.Hold()
		if l.Lose() {
			t.Error("Lose of somebody else's hold says that there was a lease")
		}
		release()
		outer := lock(t, l)
		inner, err := l.Lock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiter := make(chan *quorumlock.Lease, 1)
		go func() { waiter <- lock(t, l) }()
		synctest.Wait()
		if !l.Lose() {
			t.Error("Lose says that there was no lease")
		}
		for _, lease := range []*quorumlock.Lease{outer, inner} {
			lost, ok := errors.AsType[*quorumlock.LostError](context.Cause(lease.Context()))
			if !ok || lost.Name != "x" || lost.Owner != outer.Owner() {
				t.Errorf("the cause is %v, want a *LostError", context.Cause(lease.Context()))
			}
			if time.Now().Before(lease.ValidUntil()) {
				t.Errorf("a lost lease is valid until %v", lease.ValidUntil())
			}
			if err := lease.Extend(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Extend: %v, want ErrLost", err)
			}
			if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Unlock: %v, want ErrLost", err)
			}
		}
		next := <-waiter
		if next.Token() <= outer.Token() {
			t.Errorf("token %d after %d", next.Token(), outer.Token())
		}
		unlock(t, next)
	})
}

func TestDelayMakesCallsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New("x")
		l.Delay(3 * time.Second)
		start := time.Now()
		unlock(t, lock(t, l))
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("Lock took %v, want 3 s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.TryLock(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 4*time.Second {
			t.Errorf("TryLock: %v after %v, want DeadlineExceeded after 1 s more", err, time.Since(start))
		}
		l.Delay(0)
		unlock(t, lock(t, l))
		if time.Since(start) != 4*time.Second {
			t.Error("a delay of 0 delays")
		}
	})
}

func TestFailFailsEveryCallAndThoseThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, outage := locktest.New("x"), &quorumlock.QuorumError{Needed: 3}
		lease := lock(t, l)
		waiter := make(chan error, 1)
		go func() {
			_, err := l.Lock(t.Context())
			waiter <- err
		}()
		synctest.Wait()
		l.Fail(outage)
		if err := <-waiter; err != outage {
			t.Errorf("the waiter returned %v, want the error of the test", err)
		}
		_, lockErr := l.Lock(t.Context())
		_, tryErr := l.TryLock(t.Context())
		for name, err := range map[string]error{"Lock": lockErr, "TryLock": tryErr, "Extend": lease.Extend(t.Context()), "Unlock": lease.Unlock(t.Context())} {
			if err != outage {
				t.Errorf("%s: %v, want the error of the test", name, err)
			}
		}
		l.Fail(nil)
		unlock(t, lock(t, l)) // Unlock has released it
	})
}

func TestLeasesEndAsTheOptionsSay(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	validity := quorumlock.DefaultDrift().Validity(ttl, 0)
	for name, tt := range map[string]struct {
		opts []quorumlock.Option
		ends time.Duration // 0: never
	}{
		"renewed":         {nil, 0},
		"without renewal": {[]quorumlock.Option{quorumlock.WithoutRenewal()}, validity},
		"with a max hold": {[]quorumlock.Option{quorumlock.WithMaxHold(time.Minute)}, time.Minute + validity},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, start := locktest.New("x", append(tt.opts, quorumlock.WithTTL(ttl))...), time.Now()
				lease := lock(t, l)
				if left := time.Until(lease.ValidUntil()); left != validity {
					t.Errorf("a new lease is valid for %v, want %v", left, validity)
				}
				if tt.ends == 0 {
					time.Sleep(time.Hour)
					unlock(t, lease)
					return
				}
				<-lease.Context().Done()
				if !errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost) || time.Since(start) != tt.ends {
					t.Errorf("it ended after %v: %v, want %v and ErrLost", time.Since(start), context.Cause(lease.Context()), tt.ends)
				}
				unlock(t, lock(t, l))
			})
		})
	}
}

func TestExtendMovesTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New("x", quorumlock.WithoutRenewal())
		lease := lock(t, l)
		for range 5 {
			time.Sleep(8 * time.Second)
			if err := lease.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		unlock(t, lease)
	})
}

// A waiter whose time is over at the very time at which its turn comes leaves the lock free,
// whichever it notices.
func TestWaiterThatLeavesAsItsTurnComesLeavesTheLockFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, refused := locktest.New("x", quorumlock.WithWait(time.Second)), 0
		for range 300 {
			lease, over := lock(t, l), make(chan struct{})
			go func() {
				defer close(over)
				if lease, err := l.Lock(t.Context()); err == nil {
					unlock(t, lease)
				} else {
					refused++
				}
			}()
			synctest.Wait()
			time.Sleep(time.Second)
			unlock(t, lease)
			<-over
			next, err := l.TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			unlock(t, next)
		}
		t.Logf("%d of 300 waiters were refused", refused)
	})
}

func TestWithWaitBoundsTheWaitAndNotTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New("x", quorumlock.WithWait(time.Second))
		lease, start := lock(t, l), time.Now()
		if _, err := l.Lock(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) || time.Since(start) != time.Second {
			t.Errorf("Lock: %v after %v, want DeadlineExceeded with ErrHeld after a second", err, time.Since(start))
		}
		if lease.Context().Err() != nil {
			t.Error("the lease ended with the wait")
		}
		unlock(t, lease)
	})
}

func TestNoTimeToWaitIsNoWaiting(t *testing.T) {
	l := locktest.New("x", quorumlock.WithWait(0))
	lease := lock(t, l)
	if _, err := l.Lock(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) {
		t.Errorf("Lock: %v, want DeadlineExceeded with ErrHeld", err)
	}
	if _, err := l.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("TryLock: %v, want ErrHeld alone", err)
	}
	unlock(t, lease)
}

func TestBadNamesAndOptionsAreErrorsOfTheCalls(t *testing.T) {
	for name, l := range map[string]*locktest.Locker{
		"an empty name": locktest.New(""),
		"a bad TTL":     locktest.New("x", quorumlock.WithTTL(1)),
		"WithOwner":     locktest.New("x", quorumlock.WithOwner(quorumlock.NewOwner())),
	} {
		if _, err := l.Lock(t.Context()); !errors.Is(err, quorumlock.ErrMisuse) {
			t.Errorf("%s: Lock: %v, want ErrMisuse", name, err)
		}
		if _, err := l.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrMisuse) {
			t.Errorf("%s: TryLock: %v, want ErrMisuse", name, err)
		}
	}
}
