// Package asynqlock runs the tasks of Asynq (github.com/hibiken/asynq) one at a time for each key,
// across all servers.
//
//	one, err := asynqlock.Exclusive(client.Lockers("myapp:customer:"), customer)
//	...
//	mux := asynq.NewServeMux()
//	mux.Use(one)
//	server := asynq.NewServer(redis, asynq.Config{
//		IsFailure:      asynqlock.IsFailure,
//		RetryDelayFunc: asynqlock.RetryDelay(5*time.Second, nil),
//	})
//
// A task whose lock is held goes back to its queue, and uses up no retry.
//
// # Limits
//
// Asynq runs a task at least once, and so does this package: a task whose lock was lost runs again.
// A handler that is paused past its lease may still write, unless the resource refuses its token:
// see package fence.
//
// The tasks of a key run in no particular order. A task that went back is in the retry set: Asynq
// calls its ErrorHandler, shows it as a retry with the error of the lock, and moves it to the queue
// after the delay, at the next DelayedTaskCheckInterval. Each server must have [IsFailure]:
// otherwise a held lock is a failure of the task, and uses up a retry.
//
// Asynq's unique tasks are something else: they keep a second task out of the queue.
//
// Shut the server down before the client of the locks. After its ShutdownTimeout, the server puts
// the tasks back while their handlers go on; their locks are held until the handlers return or the
// process ends.
package asynqlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/hibiken/asynq"

	"github.com/quorumlock/quorumlock"
)

// Exclusive returns a middleware that admits one task at a time for each key. The key function
// returns the key of a task, such as its customer, or false if the task needs no lock. The lock
// function returns the lock for a key; client.Lockers("myapp:customer:") of redlock is such a
// function. Exclusive returns an error if one of them is nil.
//
// The handler's ctx is the lease's context, which is cancelled when the lock is lost. So
// [quorumlock.LeaseOf] finds the lease, and package fence finds its token. The lock is released
// when the handler returns or panics. A handler that exceeds the task's timeout keeps the lock
// until it returns, although Asynq no longer waits for it.
//
// The task's error is the handler's own, joined with a *[quorumlock.LostError] if the lease was
// lost before the handler returned. So Asynq runs the task again, also if the handler returned nil.
// A handler that returns asynq.SkipRetry or asynq.RevokeTask prevents that.
//
// If the lock is held, the handler is not called, and the task goes back: see [IsFailure]. Asynq
// archives each task that fails after its last retry, even if its error is no failure. So a task
// without retries left, such as one with asynq.MaxRetry(0), waits for its lock, and occupies a
// worker of the server. Asynq archives it if its timeout or deadline comes first.
//
// Other errors of the lock, such as an outage of its nodes, are failures of the task: the handler
// is not called, and Asynq retries as usual. They match [quorumlock.ErrMisuse] if the key is empty,
// or the lock function returned nil. They match [quorumlock.ErrDeadlock] if asynq.Config.BaseContext
// descends from a lease of the lock, or WithOwner gives all tasks one owner: the tasks would share
// the lock.
func Exclusive(lock func(key string) quorumlock.Locker, key func(*asynq.Task) (string, bool)) (asynq.MiddlewareFunc, error) {
	if lock == nil || key == nil {
		return nil, fmt.Errorf("%w: asynqlock: Exclusive: a function is nil: use one that returns the lock for a key, such as client.Lockers(\"myapp:customer:\"), and one that returns the key of a task", quorumlock.ErrMisuse)
	}
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
			name, ok := key(task)
			if !ok {
				return next.ProcessTask(ctx, task)
			}
			lease, err := acquire(ctx, lock, name)
			if err != nil {
				return err
			}
			defer func() {
				// A release without a quorum is no failure of the task: the keys expire with their
				// TTL.
				if e := lease.Unlock(ctx); errors.Is(e, quorumlock.ErrLost) {
					err = errors.Join(err, e)
				}
			}()
			return next.ProcessTask(lease.Context(), task)
		})
	}, nil
}

// acquire returns a lease of the key's lock that no other task shares.
func acquire(ctx context.Context, lock func(key string) quorumlock.Locker, key string) (*quorumlock.Lease, error) {
	if key == "" {
		return nil, fmt.Errorf("%w: asynqlock: the key is empty: all such tasks would share one lock; return false for a task that needs none", quorumlock.ErrMisuse)
	}
	l := lock(key)
	if isNil(l) {
		return nil, fmt.Errorf("%w: asynqlock: the lock function returned nil for the key %q: return a lock for each key", quorumlock.ErrMisuse, key)
	}
	take := l.TryLock
	retried, _ := asynq.GetRetryCount(ctx)
	if retries, ok := asynq.GetMaxRetry(ctx); ok && retried >= retries {
		take = l.Lock
	}
	lease, err := take(ctx)
	switch {
	case errors.Is(err, quorumlock.ErrHeld):
		return nil, &heldError{err}
	case err != nil:
		return nil, err
	case lease.HoldCount() > 1:
		_ = lease.Unlock(ctx) // the other lease keeps the lock
		return nil, fmt.Errorf("%w: asynqlock: the context or the owner of the task enters a hold of %q, so it would exclude nobody: use a BaseContext that descends from no lease of the lock, and no WithOwner", quorumlock.ErrDeadlock, l.Name())
	}
	return lease, nil
}

// heldError is the error of a task that was not run because its lock is held.
type heldError struct{ err error }

func (e *heldError) Error() string { return e.err.Error() }

// Unwrap returns an error that matches [quorumlock.ErrHeld].
func (e *heldError) Unwrap() error { return e.err }

func isHeld(err error) bool {
	_, ok := errors.AsType[*heldError](err)
	return ok
}

// IsFailure is for the field IsFailure of asynq.Config. It returns false for nil, and for the error
// of a task that [Exclusive] did not run because its lock is held: Asynq then counts neither a
// retry nor a failure. An error of a handler is a failure, also if it matches
// [quorumlock.ErrHeld]. A function of your own calls IsFailure:
//
//	IsFailure: func(err error) bool { return asynqlock.IsFailure(err) && !errors.Is(err, errLater) },
//
// An ErrorHandler can use it to log failures alone.
func IsFailure(err error) bool { return err != nil && !isHeld(err) }

// RetryDelay returns a function for the field RetryDelayFunc of asynq.Config. A task whose lock is
// held comes back after held, rounded down to a second; for other errors, otherwise decides. A nil
// otherwise means asynq.DefaultRetryDelayFunc. A held of about the duration of a task is a good
// choice: a shorter one makes Asynq try in vain. Asynq's own delay is 15 to 44 seconds for a task
// that has not failed yet.
func RetryDelay(held time.Duration, otherwise asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	if otherwise == nil {
		otherwise = asynq.DefaultRetryDelayFunc
	}
	return func(retried int, err error, task *asynq.Task) time.Duration {
		if isHeld(err) {
			return held
		}
		return otherwise(retried, err, task)
	}
}

// isNil reports whether v is nil, or an interface with a nil pointer, such as an uninitialized
// *redlock.Mutex.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
