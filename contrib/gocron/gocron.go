// Package gocronlock makes jobs of gocron (github.com/go-co-op/gocron/v2) run on one process of a
// fleet.
//
// With a [Locker], each process asks for the job's lock at each tick, so any process may run the
// job. With an [Elector], one process, the leader, runs all jobs. Both allow for clocks that
// differ. gocron itself does not: a process whose clock is late would run a short job again.
//
// A job whose lock cannot be taken is skipped, and only its AfterLockError listeners see it. So
// give the scheduler one for all jobs:
//
//	gocron.WithGlobalJobOptions(gocron.WithEventListeners(gocronlock.LogSkips(logger)))
//
// gocron does not give jobs a context that ends when a lock is lost. A job that must stop in that
// case should call quorumlock.Once or quorumlock.Do itself; it then needs no Locker.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/quorumlock/quorumlock"
)

// Locker is a [gocron.Locker]. It is safe for concurrent use; its zero value is not usable.
type Locker struct {
	lock    func(job string) quorumlock.Locker
	atLeast time.Duration
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker. lock returns the lock for a job, given the job's name, see
// gocron.WithName. A job keeps its lock while it runs, and until atLeast after the grant, however
// short the job is: see [quorumlock.Once]. So atLeast must be shorter than the period of the job,
// and longer than the ticks of two processes can be apart:
//
//   - jobs at times of day (CronJob, DailyJob) tick together: longer than clocks differ by, such as
//     a minute;
//   - jobs by duration (DurationJob) tick from the start of each process, so the ticks of a fleet
//     are spread over the whole period: nearly the period, such as 55 minutes of an hour. If the
//     period is short or varies, use an [Elector].
//
// A process that dies during a job keeps the others out for the TTL of the lock. NewLocker returns
// an error if lock is nil or atLeast is negative.
func NewLocker(lock func(job string) quorumlock.Locker, atLeast time.Duration) (*Locker, error) {
	if lock == nil {
		return nil, errors.New("quorumlock: gocronlock: NewLocker: the function is nil: use one that returns the lock for a job, such as client.Mutex")
	}
	if atLeast < 0 {
		return nil, fmt.Errorf("quorumlock: gocronlock: NewLocker: atLeast is %v: use a minute or so for a job at times of day, and nearly its period for a job by duration", atLeast)
	}
	return &Locker{lock, atLeast}, nil
}

// Lock does not wait. gocron runs the job if the lock is granted, and skips this tick if Lock
// returns an error, such as [quorumlock.ErrHeld] when another process runs the job. gocron passes
// the error to its AfterLockError listeners. For all errors see TryLock of [quorumlock.Locker].
//
// Lock also returns an error for a job without a name of its own: gocron names it after its
// function, and jobs of one function literal or method would share a lock.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	if job == "" || unnamed.MatchString(job) {
		return nil, fmt.Errorf("quorumlock: gocronlock: a job has no name but that of its function, %q, which jobs of the same code share: name it with gocron.WithName", job)
	}
	lock := l.lock(job)
	if isNil(lock) {
		return nil, fmt.Errorf("quorumlock: gocronlock: the lock function returned nil for the job %q: return a lock for each job", job)
	}
	lease, err := lock.TryLock(ctx)
	if err != nil {
		return nil, err
	}
	return &held{lease, time.Now().Add(l.atLeast)}, nil
}

// unnamed matches the names of function literals and of methods as values.
var unnamed = regexp.MustCompile(`\.func\d+(\.\d+|\.func\d+|\.gowrap\d+|-range\d+)*$|-fm$`)

// LogSkips returns a listener that logs each skipped tick: at the level Debug if another process
// runs the job, and at the level Error if the lock could not be asked for, such as during an outage
// of the nodes. A nil log means slog.Default().
func LogSkips(log *slog.Logger) gocron.EventListener {
	if log == nil {
		log = slog.Default()
	}
	return gocron.AfterLockError(func(_ uuid.UUID, job string, err error) {
		if errors.Is(err, quorumlock.ErrHeld) {
			log.Debug("quorumlock: skipped: another process has the lock", "job", job)
			return
		}
		log.Error("quorumlock: the job was not run", "job", job, "error", err)
	})
}

type held struct {
	lease *quorumlock.Lease
	until time.Time
}

// Unlock keeps the lock until atLeast after its grant, and then lets it expire. It does so even if
// ctx is done.
func (h *held) Unlock(ctx context.Context) error {
	return h.lease.UnlockAfter(ctx, time.Until(h.until))
}

// isNil reports whether v is nil, or an interface with a nil pointer, such as a *redlock.Mutex that
// was never made.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
