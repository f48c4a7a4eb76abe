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

// Once runs a job once a period on a fleet. Each process calls it at each tick of the job; it runs fn if nobody else has l, and keeps l
// taken for nine tenths of the period after the call, however soon fn returns:
//
//	ran, err := quorumlock.Once(ctx, client.Mutex("myapp:lock:report"), time.Hour, report) // at each tick of an hour
//
// every is the period: the shortest time between two ticks of one process. The remaining tenth allows
// for ticks that come early. Nine tenths is far more than the ticks of one period differ between processes. [KeepFor] sets another
// time. With 0, the lock is free when fn has returned. [WithRestartGuard] covers a kept lock only up to its longest TTL: a longer period
// needs nodes that keep their data at a restart.
//
// While fn runs, the lease is renewed. fn's ctx is cancelled when the lease is lost; [Stopping] notifies fn of a Shutdown. After fn's
// return, the lock is kept without renewal. If the process dies during fn, the lock stays taken for the TTL of l, and no longer.
//
// If fn fails or panics, the lock is kept all the same, and the job runs again in the next period. For a job that must not miss one,
// [ReleaseOnError] frees the lock then, and with [Standby] a process that was too late takes over.
//
// ran says whether fn ran. If somebody else has the lock, the tick is skipped: Once returns false and no error, and [OnSkip] tells who has
// it. Otherwise the error is that of l.TryLock if fn did not run, or fn's own error, joined with a *[LostError] if the lease was lost
// before fn returned, and with a *[QuorumError] if too few nodes confirmed that they keep the lock: then the job may run again within the
// period.
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

// An OnceOption changes what [Once] does.
type OnceOption func(*once)

type once struct {
	keep     time.Duration
	onlyDone bool // the lock is kept only if the job succeeds
	standby  time.Duration
	skips    []func(err error)
}

// KeepFor keeps the lock until d after the call, whatever the period: for jobs at times of day, it must be longer than the clocks of the
// processes differ by. It must be shorter than the time between two ticks, since a tick is never exactly on time. (ShedLock calls it
// lockAtLeastFor.)
func KeepFor(d time.Duration) OnceOption { return func(o *once) { o.keep = d } }

// ReleaseOnError frees the lock at once if the job returns an error or panics, so that it may run again within the period: in another
// process whose tick is later, in one that waits with [Standby], or when the same process tries again. So a process that is stopped
// during its run does not lose it, if the job returns its ctx's error. A job that always fails runs once in every process.
func ReleaseOnError() OnceOption { return func(o *once) { o.onlyDone = true } }

// Standby makes Once wait up to d if somebody else has the lock, in case that process dies, or fails with [ReleaseOnError]. The tick is
// skipped when the time is over. d must be shorter than the time for which the lock is kept, by more than clocks differ: otherwise the job
// would run again. It does not bound the run. Default: Once does not wait.
func Standby(d time.Duration) OnceOption { return func(o *once) { o.standby = d } }

// OnSkip calls f when a tick is skipped, with the refusal. It wraps a
// *[HeldError], whose Holder, if known, is the process that runs the job or ran it in this period.
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

// take takes the lock: at once, or within the time of Standby, which does not bound the lease's context. end is called when the lease is
// unlocked.
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
	case err == nil && !inTime: // its context is done, or is about to be
		if err = lease.Unlock(ctx); err == nil {
			err = &HeldError{Name: l.Name()}
		}
		return nil, cancel, err
	case errors.Is(err, context.Canceled) && !inTime && ctx.Err() == nil && !errors.Is(err, ErrHeld):
		// The error is that of waiting, which the caller does not know.
		if few, ok := errors.AsType[*QuorumError](err); ok {
			return nil, cancel, few
		}
		return nil, cancel, fmt.Errorf("quorumlock: Once: too few nodes answered within Standby(%v): %w", o.standby, context.DeadlineExceeded)
	}
	return lease, cancel, err
}
