// Package cronlock makes jobs of cron (github.com/robfig/cron/v3) run once a tick on a fleet.
package cronlock

import (
	"context"
	"reflect"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/quorumlock/quorumlock"
)

// Once returns a wrapper for a job that every process of a fleet schedules, but that must run only
// once per tick: it runs the job with [quorumlock.Once]. A process skips the tick if another has
// the lock. Each job needs a wrapper with a lock of its own:
//
//	daily := cron.NewChain(cronlock.Once(ctx, client.Mutex("jobs:report"), 10*time.Minute, log)).Then(report)
//	c.AddJob("0 3 * * *", daily)
//
// The job keeps the lock while it runs, and until atLeast after the grant, however short the job
// is. So atLeast must be longer than the clocks of the processes differ by, and shorter than the
// period of the job. The ticks of @every begin with each process, so those of a fleet are spread
// over the period: keep the lock for nearly the period then. After ctx is done, no job starts.
//
// The wrapper logs skipped ticks with log.Info, and errors of the lock with log.Error; see
// [quorumlock.Once] for the errors. A nil log means [cron.DefaultLogger]. A panic of the job is
// passed on, and the lock is kept; put cron.Recover before this wrapper.
//
// A [cron.Job] cannot learn that its lock is lost. Use [OnceFunc] for a job that must.
func Once(ctx context.Context, lock quorumlock.Locker, atLeast time.Duration, log cron.Logger) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		if job == nil {
			return OnceFunc(ctx, lock, atLeast, log, nil)
		}
		return OnceFunc(ctx, lock, atLeast, log, func(context.Context) error {
			job.Run()
			return nil
		})
	}
}

// OnceFunc returns a cron.Job that runs job as [Once] does. The context that job gets is cancelled
// when ctx is done or the lock is lost. If job returns an error, it is logged with log.Error.
func OnceFunc(ctx context.Context, lock quorumlock.Locker, atLeast time.Duration, log cron.Logger, job func(ctx context.Context) error) cron.Job {
	if log == nil {
		log = cron.DefaultLogger
	}
	return cron.FuncJob(func() {
		name := ""
		if !isNil(lock) {
			name = lock.Name()
		}
		switch ran, err := quorumlock.Once(ctx, lock, atLeast, job); {
		case err != nil && ran:
			log.Error(err, "quorumlock: the job has run, and it or its lock failed", "lock", name)
		case err != nil:
			log.Error(err, "quorumlock: the job was not run", "lock", name)
		case !ran:
			log.Info("quorumlock: skipped: another process has the lock", "lock", name)
		}
	})
}

// isNil reports whether v is nil, or an interface with a nil pointer, such as a *redlock.Mutex that
// was never made.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
