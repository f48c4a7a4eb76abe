package gocronlock_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/quorumlock/quorumlock"
	gocronlock "github.com/quorumlock/quorumlock/contrib/gocron"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

const (
	period = time.Second
	ticks  = 200
	skew   = 30 * time.Millisecond // between the clocks of two processes
	margin = 200 * time.Millisecond
)

// fleet is three schedulers with clocks that differ, which run one job. closest is the shortest
// time between the starts of two runs.
type fleet struct {
	schedulers []gocron.Scheduler
	start      time.Time

	mu      sync.Mutex
	runs    [ticks]int // of each tick
	last    time.Time  // when the latest run began
	closest time.Duration
}

// newFleet starts a scheduler for each option. Job i is told that process i runs it.
func newFleet(t *testing.T, job func(process int), opts ...gocron.SchedulerOption) *fleet {
	t.Helper()
	f := &fleet{start: time.Now().Add(period), closest: ticks * period}
	for i, opt := range opts {
		s, err := gocron.NewScheduler(opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown() }) // for a test that failed before
		_, err = s.NewJob(gocron.DurationJob(period), gocron.NewTask(func() {
			f.mu.Lock()
			now := time.Now()
			f.runs[int(now.Sub(f.start)/period)%ticks]++
			f.closest, f.last = min(f.closest, now.Sub(f.last)), now
			f.mu.Unlock()
			job(i)
		}), gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(f.start.Add(time.Duration(i)*skew))))
		if err != nil {
			t.Fatal(err)
		}
		f.schedulers = append(f.schedulers, s)
		s.Start()
	}
	return f
}

// finish lets all ticks pass, and returns how many ran not at all, once, and more often.
func (f *fleet) finish(t *testing.T) (none, once, more int) {
	t.Helper()
	time.Sleep(time.Until(f.start.Add((ticks-1)*period + period/2)))
	for _, s := range f.schedulers {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	}
	for _, n := range f.runs {
		switch n {
		case 0:
			none++
		case 1:
			once++
		default:
			more++
		}
	}
	t.Logf("%d ticks: %d without a run, %d with one, %d with more", ticks, none, once, more)
	return none, once, more
}

func TestLockerRunsAJobOnceATickThoughClocksDiffer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		every time.Duration
		once  bool
	}{"kept": {period, true}, "not kept": {0, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := nodetest.Start(t, 3)
				var opts []gocron.SchedulerOption
				for range 3 {
					client := nodes.NewClient()
					locker, err := gocronlock.NewLocker(client.Lockers("jobs:"), test.every)
					if err != nil {
						t.Fatal(err)
					}
					opts = append(opts, gocron.WithDistributedLocker(locker))
				}
				f := newFleet(t, func(int) { time.Sleep(time.Millisecond) }, opts...)
				none, once, more := f.finish(t)
				if test.once && once != ticks {
					t.Errorf("%d ticks without a run, and %d with more than one: want none", none, more)
				}
				if !test.once && more == 0 {
					t.Error("no tick ran twice without a period: this test cannot see what keeping the lock is for")
				}
				if keep := test.every * 9 / 10; f.closest < keep {
					t.Errorf("two runs within %v, which is less than %v", f.closest, keep)
				}
			})
		})
	}
}

// The leader resigns right after a job, every ten ticks.
func TestElectorRunsAJobOnceATickThoughLeadersChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settle time.Duration
		once   bool
	}{"settled": {margin, true}, "not settled": {0, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := nodetest.Start(t, 3)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				var opts []gocron.SchedulerOption
				var elections []*election.Election
				for range 3 {
					e := election.New(nodes.NewClient().Mutex("leader"), "")
					x, err := gocronlock.NewElector(e, test.settle)
					if err != nil {
						t.Fatal(err)
					}
					running.Go(func() {
						if err := x.Run(ctx); !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					})
					elections, opts = append(elections, e), append(opts, gocron.WithDistributedElector(x))
				}
				var mu sync.Mutex
				jobs, led := 0, make(map[int]bool)
				f := newFleet(t, func(process int) {
					mu.Lock()
					defer mu.Unlock()
					led[process] = true
					if jobs++; jobs%10 == 0 {
						if err := elections[process].Resign(ctx); err != nil {
							t.Error(err)
						}
					}
				}, opts...)
				none, _, more := f.finish(t)
				cancel()
				running.Wait()
				if test.once && (more > 0 || none > 0) {
					t.Errorf("%d ticks without a run, and %d with more than one: want none", none, more)
				}
				if !test.once && more == 0 {
					t.Error("no tick ran twice without settle: this test cannot see what settle is for")
				}
				if len(led) != 3 {
					t.Errorf("only the processes %v have led", led)
				}
			})
		})
	}
}

func TestElectorLeadsOnlyWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, err := gocronlock.NewElector(election.New(nodetest.Start(t, 3).Client().Mutex("leader"), ""), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeader) {
			t.Errorf("before Run: %v, want ErrNotLeader", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- x.Run(ctx) }()
		time.Sleep(100 * time.Millisecond)
		if err := x.IsLeader(t.Context()); err == nil || errors.Is(err, election.ErrNotLeader) {
			t.Errorf("before it has settled: %v, want an error that says so", err)
		}
		time.Sleep(time.Second)
		if err := x.IsLeader(t.Context()); err != nil {
			t.Errorf("when it has settled: %v", err)
		}
		cancel()
		<-done
		if err := x.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeader) {
			t.Errorf("after Run: %v, want ErrNotLeader", err)
		}
	})
}

// While the nodes are down, jobs are skipped and listeners learn why.
func TestListenersLearnWhyAJobWasSkipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lock := locktest.New("report")
		lock.Fail(&quorumlock.QuorumError{Needed: 2})
		locker, err := gocronlock.NewLocker(func(string) quorumlock.Locker { return lock }, 0)
		if err != nil {
			t.Fatal(err)
		}
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			t.Fatal(err)
		}
		var told []error // written in the goroutine of one job, which Shutdown waits for
		_, err = s.NewJob(gocron.DurationJob(period), gocron.NewTask(func() { t.Error("the job ran") }), gocron.WithEventListeners(
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { told = append(told, err) })), gocron.WithName("report"))
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		time.Sleep(3*period + period/2)
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		if len(told) != 3 {
			t.Errorf("the listener learned of %d errors, want 3", len(told))
		}
		for _, err := range told {
			if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok {
				t.Errorf("the listener learned of %v, want a QuorumError", err)
			}
		}
	})
}

func TestBadArgumentsAreRefused(t *testing.T) {
	lock := func(string) quorumlock.Locker { return nil }
	locker, err := gocronlock.NewLocker(lock, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, noFunc := gocronlock.NewLocker(nil, 0)
	_, negative := gocronlock.NewLocker(lock, -1)
	_, noLock := locker.Lock(t.Context(), "report")
	typed, err := gocronlock.NewLocker(func(string) quorumlock.Locker { return (*locktest.Locker)(nil) }, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, nilLock := typed.Lock(t.Context(), "cleanup")
	_, noElection := gocronlock.NewElector(nil, 0)
	_, negativeSettle := gocronlock.NewElector(election.New(nil, ""), -1)
	for want, err := range map[string]error{
		"the function is nil": noFunc, "every is -1ns": negative, `returned nil for the job "report"`: noLock, `returned nil for the job "cleanup"`: nilLock,
		"the election is nil": noElection, "settle is -1ns": negativeSettle,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

// Processes that start at different times have different ticks of a job by duration. One process
// runs the job only if the lock is kept for nearly the period.
func TestJobsByDurationTickOutOfPhase(t *testing.T) {
	for name, test := range map[string]struct {
		every     time.Duration
		min, most int
	}{"another period": {period / 10, 2 * ticks, 3 * ticks}, "the period": {period, ticks - 1, ticks + 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := nodetest.Start(t, 3)
				runs := 0 // jobs run one at a time
				var schedulers []gocron.Scheduler
				for range 3 {
					client := nodes.NewClient()
					locker, err := gocronlock.NewLocker(client.Lockers("jobs:"), test.every)
					if err != nil {
						t.Fatal(err)
					}
					s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.NewJob(gocron.DurationJob(period), gocron.NewTask(func() { runs++ }), gocron.WithName("report")); err != nil {
						t.Fatal(err)
					}
					s.Start()
					schedulers = append(schedulers, s)
					time.Sleep(period / 3)
				}
				time.Sleep(ticks * period)
				for _, s := range schedulers {
					if err := s.Shutdown(); err != nil {
						t.Error(err)
					}
				}
				if runs < test.min || runs > test.most {
					t.Errorf("%d runs in %d periods, want %d to %d", runs, ticks, test.min, test.most)
				}
			})
		})
	}
}

type worker struct{}

func (worker) report() {}

func report() {}

// gocron names a job after its function. Two jobs of one literal or method would share their lock.
func TestAJobWithoutANameIsRefused(t *testing.T) {
	var refused []string
	locker, err := gocronlock.NewLocker(func(job string) quorumlock.Locker { return locktest.New(job) }, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown() //nolint:errcheck // nothing runs
	for range 2 {
		for _, f := range []func(){func() {}, worker{}.report, func() { func() { report() }() }} {
			j, err := s.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(f))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := locker.Lock(t.Context(), j.Name()); err == nil || !strings.Contains(err.Error(), "gocron.WithName") {
				t.Errorf("a job named %q: %v, want an error that says how to name it", j.Name(), err)
			} else {
				refused = append(refused, j.Name())
			}
		}
	}
	if len(refused) != 6 || refused[0] != refused[3] {
		t.Errorf("refused %q, of which the first and the fourth would share a lock", refused)
	}
	if _, err := locker.Lock(t.Context(), ""); err == nil {
		t.Error("a job with an empty name gets a lock")
	}
	for _, name := range []string{"report", "billing.report", "func1", "nightly.function7"} {
		if _, err := locker.Lock(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSkipsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder // written in the goroutine of one job, which Shutdown waits for
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		lock := locktest.New("report")
		locker, err := gocronlock.NewLocker(func(string) quorumlock.Locker { return lock }, 0)
		if err != nil {
			t.Fatal(err)
		}
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker), gocron.WithGlobalJobOptions(gocron.WithEventListeners(gocronlock.LogSkips(log))))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.NewJob(gocron.DurationJob(period), gocron.NewTask(func() { t.Error("the job ran") }), gocron.WithName("report")); err != nil {
			t.Fatal(err)
		}
		defer lock.Hold()()
		s.Start()
		time.Sleep(period + period/2)
		lock.Fail(&quorumlock.QuorumError{Needed: 2})
		time.Sleep(period)
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{`level=INFO msg="quorumlock: skipped: another process has the lock" job=report holder=somebody-else~`, `level=ERROR msg="quorumlock: the job was not run" job=report error="quorumlock: no quorum`} {
			if strings.Count(out.String(), want) != 1 {
				t.Errorf("the log is\n%swant one line with %s", out.String(), want)
			}
		}
	})
}

// A job that fails runs again at the next tick of another process, if the locker is notified of the
// failure.
func TestAFailedJobRunsAgainWithinThePeriod(t *testing.T) {
	for name, learns := range map[string]bool{"it learns": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := nodetest.Start(t, 3)
				var runs []int // jobs run one at a time
				var schedulers []gocron.Scheduler
				for process := range 2 {
					locker, err := gocronlock.NewLocker(nodes.NewClient().Lockers("jobs:"), period)
					if err != nil {
						t.Fatal(err)
					}
					var opts []gocron.SchedulerOption
					if learns {
						opts = append(opts, gocron.WithGlobalJobOptions(gocron.WithEventListeners(gocron.AfterJobRunsWithError(locker.Failed))))
					}
					s, err := gocron.NewScheduler(append(opts, gocron.WithDistributedLocker(locker))...)
					if err != nil {
						t.Fatal(err)
					}
					_, err = s.NewJob(gocron.DurationJob(period), gocron.NewTask(func() error {
						runs = append(runs, process)
						if len(runs) == 1 {
							return errors.New("told to stop")
						}
						return nil
					}), gocron.WithName("report"))
					if err != nil {
						t.Fatal(err)
					}
					s.Start()
					schedulers = append(schedulers, s)
					time.Sleep(period / 3)
				}
				time.Sleep(period) // the ticks at 1 and 4/3 periods
				for _, s := range schedulers {
					if err := s.Shutdown(); err != nil {
						t.Error(err)
					}
				}
				if want := map[bool][]int{true: {0, 1}, false: {0}}[learns]; !slices.Equal(runs, want) {
					t.Errorf("the job ran at the processes %v, want %v", runs, want)
				}
			})
		})
	}
}
