package locktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
)

// bubble runs a subtest in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T, l *locktest.Locker), opts ...quorumlock.Option) {
	t.Helper()
	testkit.Run(t, name, func(t *testing.T) { f(t, locktest.New("x", opts...)) })
}

func TestHold(t *testing.T) {
	bubble(t, "takes a free lock at once", func(t *testing.T, l *locktest.Locker) {
		release := l.Hold()
		_, err := l.TryLock(t.Context())
		held, ok := errors.AsType[*quorumlock.HeldError](err)
		if !ok || held.Name != "x" || held.Holder.Label() != "somebody-else" || held.TTL <= 0 {
			t.Errorf("TryLock: %v, want that somebody else has it", err)
		}
		release()
		release() // once more is no harm
		testkit.MustUnlock(t, testkit.MustLock(t, l))
	})
	bubble(t, "takes a held lock before all who wait", func(t *testing.T, l *locktest.Locker) {
		lease := testkit.MustLock(t, l)
		waiter := testkit.Waiter(t, l)
		release := l.Hold()
		testkit.Equal(t, l.Waiting(), 1, "calls that wait")
		testkit.MustUnlock(t, lease)
		synctest.Wait()
		testkit.Pending(t, waiter, "a waiter behind the one who holds")
		release()
		testkit.MustUnlock(t, <-waiter)
	})
	bubble(t, "takes nothing when it is released before its turn", func(t *testing.T, l *locktest.Locker) {
		lease := testkit.MustLock(t, l)
		l.Hold()()
		testkit.MustUnlock(t, lease)
		testkit.MustUnlock(t, testkit.MustLock(t, l))
	})
}

func TestFaults(t *testing.T) {
	bubble(t, "Lose ends the lease and frees the lock", func(t *testing.T, l *locktest.Locker) {
		testkit.Equal(t, l.Lose(), false, "Lose of a free lock")
		release := l.Hold()
		testkit.Equal(t, l.Lose(), false, "Lose of somebody else's hold")
		release()
		outer := testkit.MustLock(t, l)
		inner := testkit.LockIn(t, outer.Context(), l)
		waiter := testkit.Waiter(t, l)
		testkit.Equal(t, l.Lose(), true, "Lose of a lease")
		for _, lease := range []*quorumlock.Lease{outer, inner} {
			lost, ok := errors.AsType[*quorumlock.LostError](context.Cause(lease.Context()))
			if !ok || lost.Name != "x" || lost.Owner != outer.Owner() {
				t.Errorf("the cause is %v, want a *LostError", context.Cause(lease.Context()))
			}
			if time.Now().Before(lease.ValidUntil()) {
				t.Errorf("a lost lease is valid until %v", lease.ValidUntil())
			}
			testkit.Is(t, lease.Extend(t.Context()), quorumlock.ErrLost, "Extend")
			testkit.Is(t, lease.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
		}
		next := <-waiter
		testkit.Rises(t, outer, next)
		testkit.MustUnlock(t, next)
	})
	bubble(t, "Delay makes calls slow", func(t *testing.T, l *locktest.Locker) {
		l.Delay(3 * time.Second)
		start := time.Now()
		testkit.MustUnlock(t, testkit.MustLock(t, l))
		testkit.Took(t, start, 3*time.Second, 3*time.Second, "Lock")
		testkit.Is(t, testkit.Err(l.TryLock(testkit.Within(t, time.Second))), context.DeadlineExceeded, "TryLock")
		l.Delay(0)
		testkit.MustUnlock(t, testkit.MustLock(t, l))
		testkit.Took(t, start, 4*time.Second, 4*time.Second, "all, with a TryLock for 1 s, and a delay of 0")
	})
	bubble(t, "Fail fails every call and those that wait", func(t *testing.T, l *locktest.Locker) {
		outage := &quorumlock.QuorumError{Needed: 3}
		lease := testkit.MustLock(t, l)
		waiter := testkit.Go(func() error { return testkit.Err(l.Lock(t.Context())) })
		synctest.Wait()
		l.Fail(outage)
		testkit.Equal(t, <-waiter, error(outage), "the waiter")
		for name, err := range map[string]error{
			"Lock": testkit.Err(l.Lock(t.Context())), "TryLock": testkit.Err(l.TryLock(t.Context())),
			"Extend": lease.Extend(t.Context()), "Unlock": lease.Unlock(t.Context()),
		} {
			testkit.Equal(t, err, error(outage), "%s", name)
		}
		l.Fail(nil)
		testkit.MustUnlock(t, testkit.MustLock(t, l)) // Unlock has released it
	})
}

func TestLeasesEndAsTheOptionsSay(t *testing.T) {
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
		bubble(t, name, func(t *testing.T, l *locktest.Locker) {
			start, lease := time.Now(), testkit.MustLock(t, l)
			testkit.Equal(t, time.Until(lease.ValidUntil()), validity, "validity of a new lease")
			if tt.ends == 0 {
				time.Sleep(time.Hour)
				testkit.MustUnlock(t, lease)
				return
			}
			<-lease.Context().Done()
			testkit.Is(t, context.Cause(lease.Context()), quorumlock.ErrLost, "the end")
			testkit.Took(t, start, tt.ends, tt.ends, "the lease")
			testkit.MustUnlock(t, testkit.MustLock(t, l))
		}, append(tt.opts, quorumlock.WithTTL(ttl))...)
	}
}

func TestExtendAndWait(t *testing.T) {
	bubble(t, "Extend moves the end", func(t *testing.T, l *locktest.Locker) {
		lease := testkit.MustLock(t, l)
		for range 5 {
			time.Sleep(8 * time.Second)
			testkit.Must(t, lease.Extend(t.Context()), "Extend")
		}
		testkit.MustUnlock(t, lease)
		lease = testkit.MustLock(t, l)
		testkit.Must(t, lease.ExtendTo(t.Context(), time.Minute), "ExtendTo")
		time.Sleep(50 * time.Second)
		testkit.Must(t, lease.Context().Err(), "the context of a lease that was extended to a minute")
		testkit.Lost(t, lease, 10*time.Second)
	}, quorumlock.WithoutRenewal())
	bubble(t, "a waiter that leaves as its turn comes leaves the lock free, whichever it notices", func(t *testing.T, l *locktest.Locker) {
		refused := 0
		for range 300 {
			lease := testkit.MustLock(t, l)
			over := testkit.Go(func() error {
				next, err := l.Lock(t.Context())
				if err == nil {
					testkit.MustUnlock(t, next)
				}
				return err
			})
			synctest.Wait()
			time.Sleep(time.Second)
			testkit.MustUnlock(t, lease)
			if <-over != nil {
				refused++
			}
			testkit.MustUnlock(t, testkit.TryLock(t, l))
		}
		t.Logf("%d of 300 waiters were refused", refused)
	}, quorumlock.WithWait(time.Second))
	bubble(t, "WithWait bounds the wait and not the lease", func(t *testing.T, l *locktest.Locker) {
		lease, start := testkit.MustLock(t, l), time.Now()
		if _, err := l.Lock(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) || time.Since(start) != time.Second {
			t.Errorf("Lock: %v after %v, want DeadlineExceeded with ErrHeld after a second", err, time.Since(start))
		}
		testkit.Held(t, lease)
		testkit.MustUnlock(t, lease)
	}, quorumlock.WithWait(time.Second))
	bubble(t, "no time to wait is no waiting", func(t *testing.T, l *locktest.Locker) {
		lease := testkit.MustLock(t, l)
		if _, err := l.Lock(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("Lock: %v, want DeadlineExceeded with ErrHeld", err)
		}
		if _, err := l.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryLock: %v, want ErrHeld alone", err)
		}
		testkit.MustUnlock(t, lease)
	}, quorumlock.WithWait(0))
}

func TestBadNamesAndOptionsAreErrorsOfTheCalls(t *testing.T) {
	for name, l := range map[string]*locktest.Locker{
		"an empty name": locktest.New(""),
		"a bad TTL":     locktest.New("x", quorumlock.WithTTL(1)),
		"WithOwner":     locktest.New("x", quorumlock.WithOwner(quorumlock.NewOwner())),
	} {
		testkit.Is(t, testkit.Err(l.Lock(t.Context())), quorumlock.ErrMisuse, "%s: Lock", name)
		testkit.Is(t, testkit.Err(l.TryLock(t.Context())), quorumlock.ErrMisuse, "%s: TryLock", name)
	}
}
