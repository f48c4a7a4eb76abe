package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Once runs a job once per period on a fleet. Each process calls Once at each tick of the job. Once
// runs fn if no other process has l. It keeps l taken for nine tenths of the period after the call,
// however soon fn returns:
//
//	// at each tick of an hour
//	ran, err := quorumlock.Once(ctx, client.Mutex("myapp:lock:report"), time.Hour, report)
//
// The argument every is the period: the shortest time between two ticks of one process. Nine tenths
// of it cover the other processes' ticks of the period, which may come late. The last tenth is for
// the next tick, which may come early. [KeepFor] sets another time; with KeepFor(0), the lock is
// free when fn has returned. [WithRestartGuard] covers a kept lock only for the guard's maxTTL: a
// longer period needs nodes that keep their data at a restart.
//
// While fn runs, the lease is renewed. The ctx of fn is cancelled when the lease is lost;
// [Stopping] notifies fn of a Shutdown. After fn's return, the lock is kept without renewal. If the
// process dies during fn, the lock stays taken for the TTL of l, and no longer.
//
// If fn fails or panics, the lock is kept all the same, and the job runs again in the next period.
// For a job that must not miss a period, [ReleaseOnError] frees the lock at a failure, and
// [Standby] makes another process wait and take over. Give [KeepFor], too: half the period leaves
// time for a late retry.
//
// Once returns whether fn ran. If another process has the lock, the tick is skipped: Once returns
// false and no error, and calls the function of [OnSkip]. If fn did not run for another reason, the
// error is that of l.TryLock, or of l.Lock with [Standby]. If ctx is done during the Standby, Once
// returns false and ctx's error. If fn ran, the error is fn's own, joined with a *[LostError] if
// the lease was lost before fn returned. It is also joined with a *[QuorumError] if too few nodes
// confirmed that they keep the lock: then the job may run again within the period.
func Once(ctx context.Context, l Locker, every time.Duration, fn func(ctx context.Context) error, opts ...OnceOption) (ran bool, err error) {
	switch {
	case ctx == nil:
		return false, fmt.Errorf("quorumlock: Once: %w", ErrNilContext)
	case settings.IsNil(l):
		return false, errs.Misuse("quorumlock: Once: the Locker is nil: use a Mutex of package redlock, multilock or node")
	case fn == nil:
		return false, errs.Misuse("quorumlock: Once: the function is nil: use the work that runs once")
	case every < 0:
		return false, errs.Misusef("quorumlock: Once: every is %v: use the period of the job, or 0 to keep nothing", every)
	}
	o := once{keep: every - every/10}
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	switch {
	case o.keep < 0:
		return false, errs.Misusef("quorumlock: Once: KeepFor(%v): use 0 or more, and less than the period of the job", o.keep)
	case o.standby < 0:
		return false, errs.Misusef("quorumlock: Once: Standby(%v): use 0 or more, such as twice what the job takes", o.standby)
	case o.standby > 0 && o.standby >= o.keep:
		return false, errs.Misusef("quorumlock: Once: Standby(%v) outlasts the %v for which the lock is kept, so the job would run again: use a shorter standby or a longer KeepFor", o.standby, o.keep)
	}
	until := time.Now().Add(o.keep)
	lease, end, err := o.take(ctx, l)
	defer end()
	if errors.Is(err, ErrHeld) && (o.standby == 0 || ctx.Err() == nil) {
		o.skipped(err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	keep := false
	defer func() {
		if keep || !o.onlyDone {
			err = errs.Join(err, lease.UnlockAfter(ctx, time.Until(until)))
		} else {
			err = errs.Join(err, lease.Unlock(ctx))
		}
	}()
	err = fn(lease.Context())
	keep = err == nil
	return true, err
}

// An OnceOption configures [Once].
type OnceOption func(*once)

type once struct {
	keep     time.Duration
	onlyDone bool // the lock is kept only if the job succeeds
	standby  time.Duration
	skips    []func(err error)
}

// KeepFor keeps the lock until d after the call, instead of nine tenths of the period. For jobs at
// times of day, d must be longer than the difference between the processes' clocks. It must be
// shorter than the time between two ticks, because the next tick may come early. A retry keeps the
// lock for d, too. Choose d shorter than the period minus the latest retry. (ShedLock calls it
// lockAtLeastFor.)
func KeepFor(d time.Duration) OnceOption { return func(o *once) { o.keep = d } }

// ReleaseOnError frees the lock at once if the job returns an error or panics, so that the job may
// run again within the period. A job that is stopped with its process should return its ctx's
// error. For the next run, another process must wait with [Standby], or a process must call [Once]
// later in the period; otherwise the run is lost. A job that always fails runs once in every
// process.
func ReleaseOnError() OnceOption { return func(o *once) { o.onlyDone = true } }

// Standby makes Once wait up to d for a lock of another process, in case that process dies, or
// fails with [ReleaseOnError]. After d the tick is skipped. Choose d longer than the longest run:
// after a late failure another process must still be waiting. Keep d plus the clock difference
// below the time of [KeepFor]; otherwise the job runs again in the period. Standby does not bound
// the run. Default: Once does not wait.
func Standby(d time.Duration) OnceOption { return func(o *once) { o.standby = d } }

// OnSkip sets a function that Once calls with the refusal when it skips a tick. The refusal wraps a
// *[HeldError]. Its Holder, if known, is the process that runs the job or ran it in this period.
func OnSkip(f func(refusal error)) OnceOption {
	return func(o *once) {
		if f != nil {
			o.skips = append(slices.Clip(o.skips), f)
		}
	}
}

func (o *once) skipped(refusal error) {
	for _, f := range o.skips {
		f(refusal)
	}
}

// take acquires the lock: at once, or within the time of Standby, which does not bound the lease's
// context. The caller must call end after the lease's Unlock.
func (o *once) take(ctx context.Context, l Locker) (lease *Lease, end func(), err error) {
	if o.standby == 0 {
		lease, err = l.TryLock(ctx)
		return lease, func() {}, err
	}
	waiting, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(o.standby, cancel)
	lease, err = l.Lock(waiting)
	inTime := timer.Stop()
	switch {
	case err == nil && !inTime: // the timer has cancelled the lease's context, or is about to
		if err = lease.Unlock(ctx); err == nil {
			err = &HeldError{Name: l.Name()}
		}
		return nil, cancel, err
	case errors.Is(err, context.Canceled) && !inTime && ctx.Err() == nil && !errors.Is(err, ErrHeld):
		// The error is that of the waiting context, which the caller does not know.
		if few, ok := errors.AsType[*QuorumError](err); ok {
			return nil, cancel, few
		}
		return nil, cancel, fmt.Errorf("quorumlock: Once: too few nodes answered within Standby(%v): %w", o.standby, context.DeadlineExceeded)
	}
	return lease, cancel, err
}
