// Package gocronlock makes jobs of gocron (github.com/go-co-op/gocron/v2) run on one process of a
// fleet.
//
// With a [Locker], each process tries the job's lock at each tick, so any process may run the job.
// With an [Elector], one process, the leader, runs all jobs. Both allow for clocks that differ.
// gocron itself does not: a process with a slow clock would run a short job again.
//
// If the lock of a job is refused, the job is skipped, and only its AfterLockError listeners are
// notified. So add a listener for all jobs:
//
//	gocron.WithGlobalJobOptions(gocron.WithEventListeners(gocronlock.LogSkips(logger)))
//
// The context of a gocron job is not cancelled when its lock is lost. A job that must stop in that
// case should call quorumlock.Once or quorumlock.Do itself; it then needs no Locker.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/quorumlock/quorumlock"
)

// Locker is a [gocron.Locker]. It is safe for concurrent use; its zero value is not usable.
type Locker struct {
	lock func(job string) quorumlock.Locker
	keep time.Duration

	mu   sync.Mutex
	held map[string]*held // the running job of that name; of several, the last
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker. The lock function returns the lock for the name of a job, see
// gocron.WithName; redlock's client.Lockers("jobs:") is such a function.
//
// The argument every is the period of the jobs, or the shortest of several. A job keeps its lock
// while it runs, and for nine tenths of every after the grant, however short the job is: see
// [quorumlock.Once]. Jobs at times of day (CronJob, DailyJob) tick together, so a shorter time
// suffices. Jobs by duration (DurationJob) tick from the start of each process, so the ticks of a
// fleet are spread over the whole period. Give jobs of another period a scheduler of their own. If
// the period varies, use an [Elector].
//
// A job that fails keeps its lock, too, unless [Locker.Failed] is its listener. A process that dies
// during a job blocks the others for the TTL of the lock. NewLocker returns an error if lock is nil
// or every is negative.
func NewLocker(lock func(job string) quorumlock.Locker, every time.Duration) (*Locker, error) {
	if lock == nil {
		return nil, errors.New("quorumlock: gocronlock: NewLocker: the function is nil: use one that returns the lock for a job, such as client.Lockers(\"jobs:\")")
	}
	if every < 0 {
		return nil, fmt.Errorf("quorumlock: gocronlock: NewLocker: every is %v: use the shortest period of the jobs", every)
	}
	return &Locker{lock: lock, keep: every - every/10, held: make(map[string]*held)}, nil
}

// Lock acquires the lock of a job without waiting. gocron runs the job if the lock is granted. If
// Lock returns an error, such as [quorumlock.ErrHeld] when another process runs the job, gocron
// skips this tick and passes the error to its AfterLockError listeners. The errors are those of
// TryLock of [quorumlock.Locker].
//
// Lock also returns an error for a job without a name of its own. gocron names it after its
// function, so jobs of one function literal or method would share a lock.
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
	h := &held{locker: l, job: job, lease: lease, until: time.Now().Add(l.keep)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[job] = h
	return h, nil
}

// Failed is a listener for jobs that return an error. It frees the job's lock instead of keeping it
// for the period, so that the job runs again at the next tick of another process. A stopped process
// then costs no run, if the job returns the error of its context, and ticks are spread over the
// period:
//
//	failed := gocron.AfterJobRunsWithError(locker.Failed)
//	gocron.WithGlobalJobOptions(gocron.WithEventListeners(failed))
//
// A listener of a job replaces the global one of the same kind: it must then call Failed.
func (l *Locker) Failed(_ uuid.UUID, job string, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[job]; h != nil {
		h.failed = true
	}
}

// unnamed matches the names of function literals and of methods as values.
var unnamed = regexp.MustCompile(`\.func\d+(\.\d+|\.func\d+|\.gowrap\d+|-range\d+)*$|-fm$`)

// LogSkips returns a listener that logs each skipped tick. The level is Info, with the holder, if
// another process runs the job or has run it. For other failures of the lock, such as an outage of
// the nodes, it is Error. A nil log means slog.Default().
func LogSkips(log *slog.Logger) gocron.EventListener {
	if log == nil {
		log = slog.Default()
	}
	return gocron.AfterLockError(func(_ uuid.UUID, job string, err error) {
		if errors.Is(err, quorumlock.ErrHeld) {
			holder := "unknown"
			if held, ok := errors.AsType[*quorumlock.HeldError](err); ok && held.Holder != "" {
				holder = string(held.Holder)
			}
			log.Info("quorumlock: skipped: another process has the lock", "job", job, "holder", holder)
			return
		}
		log.Error("quorumlock: the job was not run", "job", job, "error", err)
	})
}

type held struct {
	locker *Locker
	job    string
	lease  *quorumlock.Lease
	until  time.Time
	failed bool // guarded by locker.mu
}

// Unlock keeps the lock for the period and then lets it expire. If the job has failed, Unlock frees
// the lock. It does so even if ctx is done.
func (h *held) Unlock(ctx context.Context) error {
	h.locker.mu.Lock()
	failed := h.failed
	if h.locker.held[h.job] == h {
		delete(h.locker.held, h.job)
	}
	h.locker.mu.Unlock()
	if failed {
		return h.lease.Unlock(ctx)
	}
	return h.lease.UnlockAfter(ctx, time.Until(h.until))
}

// isNil reports whether v is nil, or an interface with a nil pointer, such as an uninitialized
// *redlock.Mutex.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
