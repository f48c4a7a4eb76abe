// Package riverlock runs the jobs of River (github.com/riverqueue/river) one at a time for each key,
// across all clients.
//
//	one, err := riverlock.Exclusive(client.Lockers("myapp:customer:"), customer, 5*time.Second)
//	...
//	config := &river.Config{Middleware: []rivertype.Middleware{one}, ...}
//
// A job whose lock is held is snoozed, and uses up no attempt.
//
// # Limits
//
// River runs a job at least once, and so does this package: a job whose lock was lost runs again. A
// worker that is paused past its lease may still write, unless the resource refuses its token. In
// the transaction of the job's writes, package fence or contrib/pgx checks the token.
//
// A worker that commits river.JobCompleteTx has completed its job. If its lock is lost, then or
// before, the job does not run again: check the token in the same transaction.
//
// The jobs of a key run in no particular order. Each snooze writes to the database.
//
// River's unique jobs are something else: they keep a second job out of the queue.
//
// Stop the River client before the client of the locks.
package riverlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/quorumlock/quorumlock"
)

// Exclusive returns a middleware that admits one job at a time for each key. The key function
// returns the key of a job, such as the customer in its EncodedArgs, or false if the job needs no
// lock. The lock function returns the lock for a key; client.Lockers("myapp:customer:") of redlock
// is such a function.
//
// If the lock is held, the worker is not called, and the job is snoozed for snooze, which is 0 or
// more. A snooze of about the duration of a job is a good choice: a shorter one makes River try in
// vain. Exclusive returns an error if a function is nil or snooze is negative.
//
// The worker's ctx descends from the lease's context, which is cancelled when the lock is lost. So
// [quorumlock.LeaseOf] finds the lease, and package fence finds its token. The lock is released
// when the worker returns or panics. A worker that exceeds its timeout keeps the lock until it
// returns.
//
// The job's error is the worker's own, joined with a *[quorumlock.LostError] if the lease was lost
// before the worker returned. So River runs the job again while it has attempts left, also if the
// worker returned nil. A worker that returns river.JobCancel prevents that.
//
// Other errors of the lock, such as an outage of its nodes, are errors of the job: the worker is
// not called, and River retries by the client's RetryPolicy, not by the worker's NextRetry. They
// match [quorumlock.ErrMisuse] if the key is empty, or the lock function returned nil. They match
// [quorumlock.ErrDeadlock] if the context of the River client descends from a lease of the lock, or
// WithOwner gives all jobs one owner: the jobs would share the lock.
func Exclusive(lock func(key string) quorumlock.Locker, key func(*rivertype.JobRow) (string, bool), snooze time.Duration) (river.WorkerMiddlewareFunc, error) {
	switch {
	case lock == nil || key == nil:
		return nil, fmt.Errorf("%w: riverlock: Exclusive: a function is nil: use one that returns the lock for a key, such as client.Lockers(\"myapp:customer:\"), and one that returns the key of a job", quorumlock.ErrMisuse)
	case snooze < 0:
		return nil, fmt.Errorf("%w: riverlock: Exclusive: snooze is %v: use 0 or more, such as the duration of a job", quorumlock.ErrMisuse, snooze)
	}
	return func(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) (err error) {
		name, ok := key(job)
		if !ok {
			return work(ctx)
		}
		lease, err := acquire(ctx, lock, name)
		if errors.Is(err, quorumlock.ErrHeld) {
			return river.JobSnooze(snooze)
		}
		if err != nil {
			return err
		}
		defer func() {
			// A release without a quorum is no failure of the job: the keys expire with their TTL.
			if e := lease.Unlock(ctx); errors.Is(e, quorumlock.ErrLost) {
				err = errors.Join(err, e)
			}
		}()
		return work(lease.Context())
	}, nil
}

// acquire returns a lease of the key's lock that no other job shares.
func acquire(ctx context.Context, lock func(key string) quorumlock.Locker, key string) (*quorumlock.Lease, error) {
	if key == "" {
		return nil, fmt.Errorf("%w: riverlock: the key is empty: all such jobs would share one lock; return false for a job that needs none", quorumlock.ErrMisuse)
	}
	l := lock(key)
	if isNil(l) {
		return nil, fmt.Errorf("%w: riverlock: the lock function returned nil for the key %q: return a lock for each key", quorumlock.ErrMisuse, key)
	}
	lease, err := l.TryLock(ctx)
	if err == nil && lease.HoldCount() > 1 {
		_ = lease.Unlock(ctx) // the other lease keeps the lock
		return nil, fmt.Errorf("%w: riverlock: the context or the owner of the job enters a hold of %q, so it would exclude nobody: start the River client with a context that descends from no lease of the lock, and use no WithOwner", quorumlock.ErrDeadlock, l.Name())
	}
	return lease, err
}

// isNil reports whether v is nil, or an interface with a nil pointer, such as an uninitialized
// *redlock.Mutex.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
