package quorumlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// fakeLock is a Locker in the process, and the Hold of its one lease.
type fakeLock struct {
	lockErr   error // the error of Lock
	extendErr error // the error of Extend
	leaveErr  error // the error of EndLease

	lease    *quorumlock.Lease
	lose     context.CancelCauseFunc
	leaves   int
	extends  int
	leftDone bool // the lease's context was done when EndLease was called
	leaveCtx context.Context
}

var validUntil = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func (f *fakeLock) Name() string            { return "fake" }
func (f *fakeLock) Owner() quorumlock.Owner { return "owner:1" }
func (f *fakeLock) Token() uint64           { return 7 }
func (f *fakeLock) ValidUntil() time.Time   { return validUntil }
func (f *fakeLock) HoldCount() int          { return 3 }

func (f *fakeLock) Extend(context.Context) error { f.extends++; return f.extendErr }

func (f *fakeLock) EndLease(ctx context.Context, l *quorumlock.Lease, _ time.Duration) error {
	f.leaves++
	f.leaveCtx = ctx
	f.leftDone = l == f.lease && l.Context().Err() != nil
	return f.leaveErr
}

func (f *fakeLock) Lock(ctx context.Context) (*quorumlock.Lease, error) {
	if f.lockErr != nil {
		return nil, f.lockErr
	}
	f.lease, f.lose = quorumlock.NewLease(ctx, f)
	return f.lease, nil
}

func (f *fakeLock) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return f.Lock(ctx) }

// A program may keep its leases by value: a copy is the same lease.
func TestACopyOfALeaseIsTheLease(t *testing.T) {
	for name, unlock := range map[string]func(l, c *quorumlock.Lease) [2]error{
		"the copy first": func(l, c *quorumlock.Lease) [2]error {
			return [2]error{c.Unlock(t.Context()), l.Unlock(t.Context())}
		},
		"the copy last": func(l, c *quorumlock.Lease) [2]error {
			return [2]error{l.Unlock(t.Context()), c.Unlock(t.Context())}
		},
	} {
		f := &fakeLock{}
		lease := f.mustLock(t)
		kept := *lease
		if kept != *lease {
			t.Error("the copy does not compare equal")
		}
		if got := unlock(lease, &kept); got != [2]error{nil, quorumlock.ErrNotHeld} {
			t.Errorf("%s: Unlock of both: %v, want nil and ErrNotHeld", name, got)
		}
		if f.leaves != 1 || !f.leftDone {
			t.Errorf("%s: EndLease was called %d times, and not with the lease that NewLease has returned", name, f.leaves)
		}
		if err := kept.Extend(t.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("%s: Extend of the copy: %v, want ErrNotHeld", name, err)
		}
	}
}

func (f *fakeLock) mustLock(t *testing.T) *quorumlock.Lease {
	t.Helper()
	lease, err := f.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestLeaseReportsItsHold(t *testing.T) {
	lease := (&fakeLock{}).mustLock(t)
	defer lease.Unlock(t.Context()) //nolint:errcheck // it is a fake
	if lease.Name() != "fake" || lease.Owner() != "owner:1" || lease.Token() != 7 ||
		!lease.ValidUntil().Equal(validUntil) || lease.HoldCount() != 3 {
		t.Errorf("got %q, %q, %d, %v, %d", lease.Name(), lease.Owner(), lease.Token(), lease.ValidUntil(), lease.HoldCount())
	}
}

func TestUnlockCancelsTheContextBeforeTheHoldIsLeft(t *testing.T) {
	f := &fakeLock{}
	lease := f.mustLock(t)
	if err := lease.Context().Err(); err != nil {
		t.Fatalf("the context of a lease that is held: %v", err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !f.leftDone {
		t.Error("the hold was left while the work could still run")
	}
	if cause := context.Cause(lease.Context()); cause != context.Canceled {
		t.Errorf("the cause is %v, want context.Canceled: an unlock is no loss", cause)
	}
}

func TestOnlyTheFirstUnlockLeaves(t *testing.T) {
	f := &fakeLock{}
	lease := f.mustLock(t)
	var errs [8]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = lease.Unlock(t.Context()) })
	}
	wg.Wait()
	refused := 0
	for _, err := range errs {
		if errors.Is(err, quorumlock.ErrNotHeld) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if f.leaves != 1 || refused != len(errs)-1 {
		t.Errorf("left %d times, %d of %d calls refused", f.leaves, refused, len(errs))
	}
}

func TestExtendAfterUnlockIsRefused(t *testing.T) {
	f := &fakeLock{extendErr: io.EOF}
	lease := f.mustLock(t)
	if err := lease.Extend(t.Context()); err != io.EOF {
		t.Errorf("Extend: %v, want the hold's error", err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lease.Extend(t.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
		t.Errorf("Extend after Unlock: %v, want ErrNotHeld", err)
	}
	if f.extends != 1 {
		t.Errorf("the hold was extended %d times, want 1", f.extends)
	}
}

func TestLossIsTheCauseOfTheContext(t *testing.T) {
	f := &fakeLock{leaveErr: quorumlock.ErrLost}
	lease := f.mustLock(t)
	f.lose(quorumlock.ErrLost)
	<-lease.Context().Done()
	if cause := context.Cause(lease.Context()); !errors.Is(cause, quorumlock.ErrLost) {
		t.Errorf("the cause is %v, want ErrLost", cause)
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
		t.Errorf("Unlock: %v, want ErrLost", err)
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, quorumlock.ErrLost) {
		t.Errorf("after Unlock the cause is %v, want ErrLost still", cause)
	}
}

func TestLeaseContextEndsWithItsParent(t *testing.T) {
	type key struct{}
	why := errors.New("shutting down")
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	lease, _ := (&fakeLock{}).Lock(parent)
	if lease.Context().Value(key{}) != "value" {
		t.Error("the lease's context does not descend from the caller's")
	}
	cancel(why)
	<-lease.Context().Done()
	if cause := context.Cause(lease.Context()); cause != why {
		t.Errorf("the cause is %v, want the parent's", cause)
	}
}

func TestDo(t *testing.T) {
	lost := &quorumlock.LostError{Name: "x", Reason: "it was not renewed in time"}
	for _, tt := range []struct {
		name  string
		leave error
		fn    error
		want  []error // all errors that Do's error matches; empty if it is nil
	}{
		{"success", nil, nil, nil},
		{"the error of fn", nil, io.EOF, []error{io.EOF}},
		{"a loss", lost, nil, []error{lost, quorumlock.ErrLost}},
		{"a loss and the error of fn", lost, io.EOF, []error{io.EOF, lost, quorumlock.ErrLost}},
		{"a release that no quorum confirmed", &quorumlock.QuorumError{Needed: 3}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fakeLock{leaveErr: tt.leave}
			err := quorumlock.Do(t.Context(), f, func(ctx context.Context) error {
				if ctx != f.lease.Context() {
					t.Error("fn's context is not the lease's")
				}
				if f.leaves > 0 {
					t.Error("the lock was left before fn ran")
				}
				return tt.fn
			})
			if (err != nil) != (len(tt.want) > 0) || err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("Do: %v", err)
			}
			for _, want := range tt.want {
				if !errors.Is(err, want) {
					t.Errorf("Do: %v, want %v in it", err, want)
				}
			}
			if f.leaves != 1 {
				t.Errorf("left %d times", f.leaves)
			}
		})
	}
}

func TestDoReturnsTheErrorOfLockAndDoesNotRun(t *testing.T) {
	f := &fakeLock{lockErr: quorumlock.ErrHeld}
	err := quorumlock.Do(t.Context(), f, func(context.Context) error {
		t.Error("fn ran without the lock")
		return nil
	})
	if err != quorumlock.ErrHeld || f.leaves != 0 {
		t.Errorf("Do: %v, left %d times", err, f.leaves)
	}
}

func TestDoUnlocksWhenFnDoesNotReturn(t *testing.T) {
	t.Run("panic", func(t *testing.T) {
		f := &fakeLock{leaveErr: quorumlock.ErrLost}
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v, want fn's own panic", r)
			}
			if f.leaves != 1 {
				t.Errorf("left %d times", f.leaves)
			}
		}()
		_ = quorumlock.Do(t.Context(), f, func(context.Context) error { panic("boom") })
	})
	t.Run("goexit", func(t *testing.T) {
		f := &fakeLock{}
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = quorumlock.Do(t.Context(), f, func(context.Context) error { runtime.Goexit(); return nil })
		})
		wg.Wait()
		if f.leaves != 1 {
			t.Errorf("left %d times", f.leaves)
		}
	})
}

func TestDoUnlocksWithTheCallersContextEvenIfItIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeLock{}
	err := quorumlock.Do(ctx, f, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || f.leaves != 1 || f.leaveCtx != ctx {
		t.Errorf("Do: %v, left %d times", err, f.leaves)
	}
}

// noContext is a nil context, as passed by mistake.
var noContext context.Context

func TestUnlockWithoutAContextReleasesAndSaysSo(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave error
	}{{"released", nil}, {"lost before", quorumlock.ErrLost}} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fakeLock{leaveErr: tt.leave}
			lease := f.mustLock(t)
			err := lease.Unlock(noContext)
			if !errors.Is(err, quorumlock.ErrNilContext) || !strings.Contains(err.Error(), "use context.Background()") {
				t.Errorf("Unlock: %v, want ErrNilContext and what to use", err)
			}
			if tt.leave != nil && !errors.Is(err, tt.leave) {
				t.Errorf("Unlock: %v, want %v in it", err, tt.leave)
			}
			if f.leaves != 1 || f.leaveCtx == nil || !f.leftDone {
				t.Errorf("left %d times with the context %v, want once with one", f.leaves, f.leaveCtx)
			}
			if err := lease.Unlock(noContext); !errors.Is(err, quorumlock.ErrNotHeld) || f.leaves != 1 {
				t.Errorf("Unlock once more: %v, left %d times, want ErrNotHeld and once", err, f.leaves)
			}
		})
	}
}

func TestExtendWithoutAContextExtendsNothing(t *testing.T) {
	f := &fakeLock{}
	lease := f.mustLock(t)
	if err := lease.Extend(noContext); !errors.Is(err, quorumlock.ErrNilContext) || f.extends != 0 {
		t.Errorf("Extend: %v, extended %d times", err, f.extends)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v, want the lease to be held still", err)
	}
}

func TestLeaseIsShownAndLoggedWithWhatIdentifiesIt(t *testing.T) {
	lease := (&fakeLock{}).mustLock(t)
	defer lease.Unlock(t.Context()) //nolint:errcheck // it is a fake
	if got, want := fmt.Sprint(lease), `lease of "fake" by owner:1, token 7, valid until 2030-01-02T03:04:05Z`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("granted", "lease", lease)
	if want := "lease.lock=fake lease.owner=owner:1 lease.token=7 lease.valid_until=2030-01-02T03:04:05.000Z"; !strings.Contains(b.String(), want) {
		t.Errorf("got  %s\nwant %s in it", b.String(), want)
	}
}

func TestNoLeaseIsShownAsNone(t *testing.T) {
	for name, lease := range map[string]*quorumlock.Lease{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			if got := lease.String(); got != "no lease" {
				t.Errorf("String: %q", got)
			}
			if got := lease.LogValue().String(); got != "no lease" {
				t.Errorf("LogValue: %q", got)
			}
		})
	}
}
