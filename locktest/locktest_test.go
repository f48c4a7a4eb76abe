package locktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	internaltest "github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/locktest"
)

// bubble runs a subtest in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T, l *locktest.Locker), opts ...quorumlock.Option) {
	t.Helper()
	internaltest.Run(t, name, func(t *testing.T) { f(t, locktest.New("x", opts...)) })
}

func lock(t *testing.T, l *locktest.Locker) *quorumlock.Lease {
	t.Helper()
	return internaltest.MustLock(t, l)
}

func unlock(t *testing.T, lease *quorumlock.Lease) {
	t.Helper()
	internaltest.MustUnlock(t, lease)
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
		unlock(t, lock(t, l))
	})
	bubble(t, "takes a held lock before all who wait", func(t *testing.T, l *locktest.Locker) {
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
	bubble(t, "takes nothing when it is released before its turn", func(t *testing.T, l *locktest.Locker) {
		lease := lock(t, l)
		l.Hold()()
		unlock(t, lease)
		unlock(t, lock(t, l))
	})
}

func TestFaults(t *testing.T) {
	bubble(t, "Lose ends the lease and frees the lock", func(t *testing.T, l *locktest.Locker) {
		internaltest.Equal(t, l.Lose(), false, "Lose of a free lock")
		release := l.Hold()
		internaltest.Equal(t, l.Lose(), false, "Lose of somebody else's hold")
		release()
		outer := lock(t, l)
		inner := internaltest.LockIn(t, outer.Context(), l)
		waiter := make(chan *quorumlock.Lease, 1)
		go func() { waiter <- lock(t, l) }()
		synctest.Wait()
		internaltest.Equal(t, l.Lose(), true, "Lose of a lease")
		for _, lease := range []*quorumlock.Lease{outer, inner} {
			lost, ok := errors.AsType[*quorumlock.LostError](context.Cause(lease.Context()))
			if !ok || lost.Name != "x" || lost.Owner != outer.Owner() {
				t.Errorf("the cause is %v, want a *LostError", context.Cause(lease.Context()))
			}
			if time.Now().Before(lease.ValidUntil()) {
				t.Errorf("a lost lease is valid until %v", lease.ValidUntil())
			}
			internaltest.Is(t, lease.Extend(t.Context()), quorumlock.ErrLost, "Extend")
			internaltest.Is(t, lease.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
		}
		next := <-waiter
		internaltest.Rises(t, outer, next)
		unlock(t, next)
	})
	bubble(t, "Delay makes calls slow", func(t *testing.T, l *locktest.Locker) {
		l.Delay(3 * time.Second)
		start := time.Now()
		unlock(t, lock(t, l))
		internaltest.Took(t, start, 3*time.Second, 3*time.Second, "Lock")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		internaltest.Is(t, internaltest.Err(l.TryLock(ctx)), context.DeadlineExceeded, "TryLock")
		l.Delay(0)
		unlock(t, lock(t, l))
		internaltest.Took(t, start, 4*time.Second, 4*time.Second, "all, with a TryLock for 1 s, and a delay of 0")
	})
	bubble(t, "Fail fails every call and those that wait", func(t *testing.T, l *locktest.Locker) {
		outage := &quorumlock.QuorumError{Needed: 3}
		lease := lock(t, l)
		waiter := make(chan error, 1)
		go func() { waiter <- internaltest.Err(l.Lock(t.Context())) }()
		synctest.Wait()
		l.Fail(outage)
		internaltest.Equal(t, <-waiter, error(outage), "the waiter")
		for name, err := range map[string]error{
			"Lock": internaltest.Err(l.Lock(t.Context())), "TryLock": internaltest.Err(l.TryLock(t.Context())),
			"Extend": lease.Extend(t.Context()), "Unlock": lease.Unlock(t.Context()),
		} {
			internaltest.Equal(t, err, error(outage), "%s", name)
		}
		l.Fail(nil)
		unlock(t, lock(t, l)) // Unlock has released it
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
			start, lease := time.Now(), lock(t, l)
			internaltest.Equal(t, time.Until(lease.ValidUntil()), validity, "validity of a new lease")
			if tt.ends == 0 {
				time.Sleep(time.Hour)
				unlock(t, lease)
				return
			}
			<-lease.Context().Done()
			internaltest.Is(t, context.Cause(lease.Context()), quorumlock.ErrLost, "the end")
			internaltest.Took(t, start, tt.ends, tt.ends, "the lease")
			unlock(t, lock(t, l))
		}, append(tt.opts, quorumlock.WithTTL(ttl))...)
	}
}

func TestExtendAndWait(t *testing.T) {
	bubble(t, "Extend moves the end", func(t *testing.T, l *locktest.Locker) {
		lease := lock(t, l)
		for range 5 {
			time.Sleep(8 * time.Second)
			internaltest.Must(t, lease.Extend(t.Context()), "Extend")
		}
		unlock(t, lease)
	}, quorumlock.WithoutRenewal())
	bubble(t, "a waiter that leaves as its turn comes leaves the lock free, whichever it notices", func(t *testing.T, l *locktest.Locker) {
		refused := 0
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
			unlock(t, internaltest.TryLock(t, l))
		}
		t.Logf("%d of 300 waiters were refused", refused)
	}, quorumlock.WithWait(time.Second))
	bubble(t, "WithWait bounds the wait and not the lease", func(t *testing.T, l *locktest.Locker) {
		lease, start := lock(t, l), time.Now()
		if _, err := l.Lock(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) || time.Since(start) != time.Second {
			t.Errorf("Lock: %v after %v, want DeadlineExceeded with ErrHeld after a second", err, time.Since(start))
		}
		internaltest.Held(t, lease)
		unlock(t, lease)
	}, quorumlock.WithWait(time.Second))
	bubble(t, "no time to wait is no waiting", func(t *testing.T, l *locktest.Locker) {
		lease := lock(t, l)
		if _, err := l.Lock(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("Lock: %v, want DeadlineExceeded with ErrHeld", err)
		}
		if _, err := l.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryLock: %v, want ErrHeld alone", err)
		}
		unlock(t, lease)
	}, quorumlock.WithWait(0))
}

func TestBadNamesAndOptionsAreErrorsOfTheCalls(t *testing.T) {
	for name, l := range map[string]*locktest.Locker{
		"an empty name": locktest.New(""),
		"a bad TTL":     locktest.New("x", quorumlock.WithTTL(1)),
		"WithOwner":     locktest.New("x", quorumlock.WithOwner(quorumlock.NewOwner())),
	} {
		internaltest.Is(t, internaltest.Err(l.Lock(t.Context())), quorumlock.ErrMisuse, "%s: Lock", name)
		internaltest.Is(t, internaltest.Err(l.TryLock(t.Context())), quorumlock.ErrMisuse, "%s: TryLock", name)
	}
}
