// Package cronlock makes jobs of cron (github.com/robfig/cron/v3) run once a tick on a fleet.
package cronlock

import (
	"context"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/quorumlock/quorumlock"
)

// Once returns a wrapper for a job that every process of the fleet has in its cron, and that must run once: it runs the
// job with [quorumlock.Once]. A tick at which another process has the lock is skipped. Each job needs a wrapper with a lock of its own:
//
//	daily := cron.NewChain(cronlock.Once(ctx, client.Mutex("jobs:report"), 10*time.Minute, log)).Then(report)
//	c.AddJob("0 3 * * *", daily)
//
// The job keeps the lock while it runs, and until atLeast after the grant, however short it is. So atLeast must be longer
// than the clocks of the processes differ, and shorter than the period of the job. When ctx is done, no job starts any more.
//
// log learns at Info of ticks that are skipped, and at Error of those where the lock failed; see [quorumlock.Once] for the errors. A nil log is
// [cron.DefaultLogger]. A job that panics passes the panic on and keeps the lock; put cron.Recover before this wrapper.
//
// A [cron.Job] does not learn that its lock is lost. Use [OnceFunc] for one that must.
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

// OnceFunc returns a job that is wrapped with [Once]. Its context is cancelled when ctx is done or the lock is lost. log
// learns of its error.
func OnceFunc(ctx context.Context, lock quorumlock.Locker, atLeast time.Duration, log cron.Logger, job func(ctx context.Context) error) cron.Job {
	if log == nil {
		log = cron.DefaultLogger
	}
	return cron.FuncJob(func() {
		name := ""
		if lock != nil {
			name = lock.Name()
		}
		switch ran, err := quorumlock.Once(ctx, lock, atLeast, job); {
		case err != nil:
			log.Error(err, "quorumlock: once", "lock", name, "ran", ran)
		case !ran:
			log.Info("quorumlock: skipped: another process has the lock", "lock", name)
		}
	})
}
