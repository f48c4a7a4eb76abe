package quorumlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
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

func (f *fakeLock) Extend(context.Context, time.Duration) error { f.extends++; return f.extendErr }

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
	for _, first := range []string{"copy", "lease"} {
		f := &fakeLock{}
		lease := f.mustLock(t)
		kept := *lease
		testkit.Equal(t, kept, *lease, "the copy")
		order := []*quorumlock.Lease{&kept, lease}
		if first == "lease" {
			slices.Reverse(order)
		}
		testkit.OK(t, order[0].Unlock(t.Context()), "Unlock of the %s first", first)
		testkit.Is(t, order[1].Unlock(t.Context()), quorumlock.ErrNotHeld, "Unlock of the other")
		f.left(t, 1)
		testkit.Is(t, kept.Extend(t.Context()), quorumlock.ErrNotHeld, "Extend of the copy")
	}
}

func (f *fakeLock) mustLock(t *testing.T) *quorumlock.Lease {
	t.Helper()
	lease, err := f.Lock(t.Context())
	testkit.Must(t, err, "Lock")
	return lease
}

// left checks how often the hold was left, and that the context of the lease was done by then.
func (f *fakeLock) left(t *testing.T, times int) {
	t.Helper()
	if f.leaves != times || f.leftDone != (times > 0) {
		t.Errorf("the hold was left %d times, want %d; the work had ended: %v", f.leaves, times, f.leftDone)
	}
}

func TestLeaseReportsItsHold(t *testing.T) {
	lease := (&fakeLock{}).mustLock(t)
	defer lease.Unlock(t.Context()) //nolint:errcheck // it is a fake
	if lease.Name() != "fake" || lease.Owner() != "owner:1" || lease.Token() != 7 ||
		!lease.ValidUntil().Equal(validUntil) || lease.HoldCount() != 3 {
		t.Errorf("got %q, %q, %d, %v, %d", lease.Name(), lease.Owner(), lease.Token(), lease.ValidUntil(), lease.HoldCount())
	}
}

// The context of a lease has the lease, also after its end. The innermost hides those outside.
func TestTheContextHasItsInnermostLease(t *testing.T) {
	of := func(ctx context.Context, want *quorumlock.Lease) {
		t.Helper()
		got, ok := quorumlock.LeaseOf(ctx)
		if got != want || ok != (want != nil) {
			t.Errorf("LeaseOf: %v, %v, want %v", got, ok, want)
		}
	}
	var none context.Context
	of(none, nil)
	of(t.Context(), nil)
	outer := (&fakeLock{}).mustLock(t)
	inner, _ := quorumlock.NewLease(outer.Context(), &fakeLock{})
	of(outer.Context(), outer)
	of(inner.Context(), inner)
	testkit.OK(t, inner.Unlock(t.Context()), "Unlock")
	of(context.WithoutCancel(inner.Context()), inner)
	of(outer.Context(), outer)
	testkit.Must(t, quorumlock.Do(t.Context(), &fakeLock{}, func(ctx context.Context) error {
		lease, _ := quorumlock.LeaseOf(ctx)
		testkit.Equal(t, lease.Token(), 7, "the token")
		return nil
	}), "Do")
}

// A context between a lease and its parent must not hide the parent's end.
func TestALeaseEndsWithItsParent(t *testing.T) {
	parent, cancel := context.WithCancelCause(t.Context())
	lease, _ := quorumlock.NewLease(parent, &fakeLock{})
	cancel(io.EOF)
	testkit.Is(t, lease.Context().Err(), context.Canceled, "Err")
	testkit.Is(t, context.Cause(lease.Context()), io.EOF, "the cause")
}

func TestUnlockCancelsTheContextBeforeTheHoldIsLeft(t *testing.T) {
	f := &fakeLock{}
	lease := f.mustLock(t)
	testkit.Must(t, lease.Context().Err(), "the context of a lease that is held")
	testkit.Must(t, lease.Unlock(t.Context()), "Unlock")
	f.left(t, 1)
	testkit.Equal(t, context.Cause(lease.Context()), context.Canceled, "the cause: an unlock is no loss")
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
	testkit.Equal(t, lease.Extend(t.Context()), io.EOF, "Extend")
	testkit.Must(t, lease.Unlock(t.Context()), "Unlock")
	testkit.Is(t, lease.Extend(t.Context()), quorumlock.ErrNotHeld, "Extend after Unlock")
	testkit.Equal(t, f.extends, 1, "calls of the hold's Extend")
}

func TestLossIsTheCauseOfTheContext(t *testing.T) {
	f := &fakeLock{leaveErr: quorumlock.ErrLost}
	lease := f.mustLock(t)
	f.lose(quorumlock.ErrLost)
	<-lease.Context().Done()
	testkit.Is(t, context.Cause(lease.Context()), quorumlock.ErrLost, "the cause")
	testkit.Is(t, lease.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
	testkit.Is(t, context.Cause(lease.Context()), quorumlock.ErrLost, "the cause after Unlock")
}

func TestLeaseContextEndsWithItsParent(t *testing.T) {
	type key struct{}
	why := errors.New("shutting down")
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	lease, _ := (&fakeLock{}).Lock(parent)
	testkit.Equal(t, lease.Context().Value(key{}), any("value"), "the value of the caller's context")
	cancel(why)
	<-lease.Context().Done()
	testkit.Equal(t, context.Cause(lease.Context()), why, "the cause")
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
				testkit.Equal(t, ctx, f.lease.Context(), "fn's context")
				f.left(t, 0)
				return tt.fn
			})
			if (err != nil) != (len(tt.want) > 0) || err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("Do: %v", err)
			}
			for _, want := range tt.want {
				testkit.Is(t, err, want, "Do")
			}
			f.left(t, 1)
		})
	}
}

func TestDoReturnsTheErrorOfLockAndDoesNotRun(t *testing.T) {
	f := &fakeLock{lockErr: quorumlock.ErrHeld}
	err := quorumlock.Do(t.Context(), f, func(context.Context) error {
		t.Error("fn ran without the lock")
		return nil
	})
	testkit.Equal(t, err, quorumlock.ErrHeld, "Do")
	f.left(t, 0)
}

func TestDoUnlocksWhenFnDoesNotReturn(t *testing.T) {
	for name, tt := range map[string]struct {
		fn   func()
		want any // the panic
	}{"panic": {func() { panic("boom") }, "boom"}, "goexit": {runtime.Goexit, nil}} {
		f := &fakeLock{leaveErr: quorumlock.ErrLost}
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { testkit.Equal(t, recover(), tt.want, "%s: recovered", name) }()
			_ = quorumlock.Do(t.Context(), f, func(context.Context) error { tt.fn(); return nil })
		})
		wg.Wait()
		f.left(t, 1)
	}
}

func TestDoUnlocksWithTheCallersContextEvenIfItIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeLock{}
	err := quorumlock.Do(ctx, f, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	testkit.Is(t, err, context.Canceled, "Do")
	testkit.Equal(t, f.leaveCtx, ctx, "the context of the release")
	f.left(t, 1)
}

// noContext is a nil context, as passed by mistake.
var noContext context.Context

func TestUnlockWithoutAContextReleasesAndSaysSo(t *testing.T) {
	for _, leave := range []error{nil, quorumlock.ErrLost} {
		f := &fakeLock{leaveErr: leave}
		lease := f.mustLock(t)
		err := lease.Unlock(noContext)
		testkit.Is(t, err, quorumlock.ErrNilContext, "Unlock")
		if !strings.Contains(fmt.Sprint(err), "use context.Background()") || errors.Is(err, quorumlock.ErrLost) != (leave != nil) {
			t.Errorf("Unlock: %v, want the fix, and %v", err, leave)
		}
		testkit.Equal(t, f.leaveCtx != nil, true, "left with a context")
		testkit.Is(t, lease.Unlock(noContext), quorumlock.ErrNotHeld, "Unlock once more")
		f.left(t, 1)
	}
}

func TestExtendWithoutAContextExtendsNothing(t *testing.T) {
	f := &fakeLock{}
	lease := f.mustLock(t)
	testkit.Is(t, lease.Extend(noContext), quorumlock.ErrNilContext, "Extend")
	testkit.Equal(t, f.extends, 0, "calls of the hold's Extend")
	testkit.OK(t, lease.Unlock(t.Context()), "Unlock")
}

func TestLeaseIsShownAndLoggedWithWhatIdentifiesIt(t *testing.T) {
	lease := (&fakeLock{}).mustLock(t)
	defer lease.Unlock(t.Context()) //nolint:errcheck // it is a fake
	testkit.Equal(t, fmt.Sprint(lease), `lease of "fake" by owner:1, token 7, valid until 2030-01-02T03:04:05Z`, "String")
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("granted", "lease", lease)
	if want := "lease.lock=fake lease.owner=owner:1 lease.token=7 lease.valid_until=2030-01-02T03:04:05.000Z"; !strings.Contains(b.String(), want) {
		t.Errorf("got  %s\nwant %s in it", b.String(), want)
	}
}

// A release is often deferred before the error of Lock is looked at.
func TestALeaseThatWasNeverGrantedHoldsNothing(t *testing.T) {
	for name, lease := range map[string]*quorumlock.Lease{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			testkit.Equal(t, lease.String(), "no lease", "String")
			testkit.Equal(t, lease.LogValue().String(), "no lease", "LogValue")
			testkit.Equal(t, lease.Name(), "", "Name")
			testkit.Equal(t, lease.Owner(), "", "Owner")
			testkit.Equal(t, lease.Token(), 0, "Token")
			testkit.Equal(t, lease.Slot(), 0, "Slot")
			testkit.Equal(t, lease.HoldCount(), 0, "HoldCount")
			testkit.Equal(t, lease.ValidUntil(), time.Time{}, "ValidUntil")
			testkit.Is(t, lease.Context().Err(), context.Canceled, "Context")
			testkit.Is(t, context.Cause(lease.Context()), quorumlock.ErrNotHeld, "the context's cause")
			testkit.Is(t, lease.Extend(t.Context()), quorumlock.ErrNotHeld, "Extend")
			testkit.Is(t, lease.Unlock(t.Context()), quorumlock.ErrNotHeld, "Unlock")
			testkit.Is(t, lease.UnlockAfter(t.Context(), time.Second), quorumlock.ErrNotHeld, "UnlockAfter")
			testkit.Is(t, testkit.Err(lease.Detach(t.Context(), time.Second)), quorumlock.ErrNotHeld, "Detach")
			var noContext context.Context
			testkit.Is(t, lease.Unlock(noContext), quorumlock.ErrNotHeld, "Unlock without a context")
		})
	}
}

func TestAnErrorOfALeaseNamesItsLock(t *testing.T) {
	f := &fakeLock{}
	lease := f.mustLock(t)
	testkit.OK(t, lease.Unlock(t.Context()), "Unlock")
	again := map[string]error{"Unlock": lease.Unlock(t.Context()), "Extend": lease.Extend(t.Context()), "Detach": testkit.Err(lease.Detach(t.Context(), time.Second))}
	for what, err := range again {
		if !errors.Is(err, quorumlock.ErrNotHeld) || !strings.Contains(err.Error(), `"fake" was unlocked or detached before`) {
			t.Errorf("%s after Unlock: %v", what, err)
		}
	}
	f = &fakeLock{leaveErr: quorumlock.ErrLost, extendErr: quorumlock.ErrLost}
	lease = f.mustLock(t)
	want := &quorumlock.LostError{Name: "fake", Owner: "owner:1"}
	for what, err := range map[string]error{"Extend": lease.Extend(t.Context()), "Unlock": lease.Unlock(t.Context())} {
		if got, ok := errors.AsType[*quorumlock.LostError](err); !ok || got.Error() != want.Error() || got.Owner != want.Owner {
			t.Errorf("%s of a lost lease: %v, want %v", what, err, want)
		}
	}
	f = &fakeLock{leaveErr: quorumlock.ErrLost}
	lease = f.mustLock(t)
	cause := &quorumlock.LostError{Name: "fake", Reason: "it was not renewed in time"}
	f.lose(cause)
	if err := lease.Unlock(t.Context()); err != error(cause) {
		t.Errorf("Unlock after a loss: %v, want its cause", err)
	}
}
