package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Once runs fn if nobody else has l, and keeps l taken until atLeast after the grant, however soon fn returns. It is
// for a job that every process of a fleet starts at about the same time, and that must run once: a process whose clock
// is late finds the lock taken. Of the processes that come at the same time, one runs fn. (ShedLock calls this
// lockAtLeastFor.)
//
//	ran, err := quorumlock.Once(ctx, client.Mutex("myapp:lock:nightly-report"), 10*time.Minute, report)
//
// atLeast must be longer than the clocks of the processes differ, and shorter than the period of the job. While fn runs,
// the lease is renewed. fn's ctx is cancelled when the lease is lost; [Stopping] notifies fn of a Shutdown. After fn's return,
// the lock is kept without renewal. If the process dies during fn, the lock stays taken for the TTL of l, not for atLeast.
//
// ran says whether fn ran. If somebody else has the lock, Once returns false and no error. Otherwise the error is
// that of l.TryLock if fn did not run, or fn's own error, joined with a *[LostError] if the lease was lost before fn
// returned, and with a *[QuorumError] if too few nodes confirmed that they keep the lock: then the job may run again
// within atLeast. If fn panics, the lock is kept all the same.
func Once(ctx context.Context, l Locker, atLeast time.Duration, fn func(ctx context.Context) error) (ran bool, err error) {
	switch {
	case ctx == nil:
		return false, fmt.Errorf("quorumlock: Once: %w", ErrNilContext)
	case settings.IsNil(l):
		return false, errs.Misuse("quorumlock: Once: the Locker is nil: use a Mutex of package redlock, multilock or node")
	case fn == nil:
		return false, errs.Misuse("quorumlock: Once: the function is nil: use the work that runs once")
	case atLeast < 0:
		return false, errs.Misusef("quorumlock: Once: atLeast is %v: use 0 or more, such as a tenth of the job's period", atLeast)
	}
	lease, err := l.TryLock(ctx)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	until := time.Now().Add(atLeast)
	defer func() {
		err = errs.Join(err, lease.UnlockAfter(ctx, time.Until(until)))
	}()
	return true, fn(lease.Context())
}
