// Package cronlock makes jobs of cron (github.com/robfig/cron/v3) run once per tick on a fleet.
package cronlock

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/quorumlock/quorumlock"
)

// Once returns a wrapper for a job that every process of a fleet schedules, but that must run only
// once per tick: it runs the job with [quorumlock.Once]. A process skips the tick if another
// process has the lock. Each job needs a wrapper with a lock of its own:
//
//	once := cronlock.Once(ctx, client.Mutex("jobs:report"), 24*time.Hour, log)
//	c.AddJob("0 3 * * *", cron.NewChain(once).Then(report))
//
// The argument every is the shortest time between two ticks. The job keeps the lock while it runs,
// and for nine tenths of that time after the grant, however short the job is; [quorumlock.Once] has
// options that change this. After ctx is done, no job starts.
//
// The wrapper logs skipped ticks, with the holder, to log.Info, and errors of the lock to
// log.Error; see [quorumlock.Once] for the errors. A nil log means [cron.DefaultLogger]. A panic of
// the job is passed on; put cron.Recover before this wrapper.
//
// A [cron.Job] can neither learn of the loss of its lock, nor fail. For a job that must, such as
// with [quorumlock.ReleaseOnError], use [OnceFunc].
func Once(ctx context.Context, lock quorumlock.Locker, every time.Duration, log cron.Logger, opts ...quorumlock.OnceOption) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		if job == nil {
			return OnceFunc(ctx, lock, every, log, nil, opts...)
		}
		return OnceFunc(ctx, lock, every, log, func(context.Context) error {
			job.Run()
			return nil
		}, opts...)
	}
}

// OnceFunc returns a cron.Job that runs job like [Once]. The context of job is cancelled when ctx
// is done or the lock is lost. An error of job is logged to log.Error.
//
// A stopped process can leave its run to another process: job must return the error of its context,
// and have the options [quorumlock.ReleaseOnError] and [quorumlock.Standby].
func OnceFunc(ctx context.Context, lock quorumlock.Locker, every time.Duration, log cron.Logger, job func(ctx context.Context) error, opts ...quorumlock.OnceOption) cron.Job {
	if log == nil {
		log = cron.DefaultLogger
	}
	name := ""
	if !isNil(lock) {
		name = lock.Name()
	}
	skipped := quorumlock.OnSkip(func(refusal error) {
		holder := "unknown"
		if held, ok := errors.AsType[*quorumlock.HeldError](refusal); ok && held.Holder != "" {
			holder = string(held.Holder)
		}
		log.Info("quorumlock: skipped: another process has the lock", "lock", name, "holder", holder)
	})
	opts = append([]quorumlock.OnceOption{skipped}, opts...)
	return cron.FuncJob(func() {
		switch ran, err := quorumlock.Once(ctx, lock, every, job, opts...); {
		case err != nil && ran:
			log.Error(err, "quorumlock: the job has run, and it or its lock failed", "lock", name)
		case err != nil:
			log.Error(err, "quorumlock: the job was not run", "lock", name)
		}
	})
}

// isNil reports whether v is nil, or an interface with a nil pointer, such as an uninitialized
// *redlock.Mutex.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
