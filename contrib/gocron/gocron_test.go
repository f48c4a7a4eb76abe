package gocronlock_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/quorumlock/quorumlock"
	gocronlock "github.com/quorumlock/quorumlock/contrib/gocron"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
	"github.com/quorumlock/quorumlock/redlock"
)

// connect replaces redlock.Dial(urls): three servers in the process.
func connect() (client *redlock.Client, stop func()) {
	client, _, stop = testkit.Connect(3)
	return client, stop
}

const (
	period = time.Second
	ticks  = 200
	skew   = 30 * time.Millisecond // between the clocks of two processes
	margin = 200 * time.Millisecond
)

func newLocker(t *testing.T, lock func(job string) quorumlock.Locker, every time.Duration) *gocronlock.Locker {
	t.Helper()
	l, err := gocronlock.NewLocker(lock, every)
	testkit.Must(t, err, "NewLocker")
	return l
}

// begin starts a scheduler that runs one task each period.
func begin(t *testing.T, task any, opt gocron.SchedulerOption, job ...gocron.JobOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(opt)
	testkit.Must(t, err, "NewScheduler")
	t.Cleanup(func() { _ = s.Shutdown() }) // for a test that failed before
	_, err = s.NewJob(gocron.DurationJob(period), gocron.NewTask(task), append(job, gocron.WithName("report"))...)
	testkit.Must(t, err, "NewJob")
	s.Start()
	return s
}

// fleet is three schedulers that run one job. closest is the shortest time between the starts of
// two runs.
type fleet struct {
	schedulers []gocron.Scheduler
	start      time.Time

	mu      sync.Mutex
	runs    [ticks]int // of each tick
	last    time.Time  // when the latest run began
	closest time.Duration
}

// newFleet starts a scheduler for each option, each later than the last by apart. A job gets the
// number of its process.
func newFleet(t *testing.T, apart time.Duration, job func(process int), opts ...gocron.SchedulerOption) *fleet {
	t.Helper()
	f := &fleet{start: time.Now().Add(period), closest: ticks * period}
	for i, opt := range opts {
		at := gocron.WithStartAt(gocron.WithStartDateTime(f.start.Add(time.Duration(i) * apart)))
		f.schedulers = append(f.schedulers, begin(t, func() {
			f.mu.Lock()
			now := time.Now()
			f.runs[int(now.Sub(f.start)/period)%ticks]++
			f.closest, f.last = min(f.closest, now.Sub(f.last)), now
			f.mu.Unlock()
			job(i)
		}, opt, at))
	}
	return f
}

// finish lets all ticks pass, and returns how many ran not at all, once, and more often.
func (f *fleet) finish(t *testing.T) (none, once, more int) {
	t.Helper()
	time.Sleep(time.Until(f.start.Add((ticks-1)*period + period/2)))
	for _, s := range f.schedulers {
		testkit.OK(t, s.Shutdown(), "Shutdown")
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

// Clocks differ a little, or processes started at different times, so that a job by duration has
// other ticks in each. One process runs the job only if the lock is kept for nearly the period.
func TestLockerRunsAJobOnceATickThoughClocksDiffer(t *testing.T) {
	for name, test := range map[string]struct {
		every, apart time.Duration
		once         bool
	}{
		"kept":                         {period, skew, true},
		"not kept":                     {0, skew, false},
		"kept, out of phase":           {period, period / 3, true},
		"another period, out of phase": {period / 10, period / 3, false},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			nodes := nodetest.Start(t, 3)
			var opts []gocron.SchedulerOption
			for range 3 {
				locker := newLocker(t, nodes.NewClient().Lockers("jobs:"), test.every)
				opts = append(opts, gocron.WithDistributedLocker(locker))
			}
			f := newFleet(t, test.apart, func(int) { time.Sleep(time.Millisecond) }, opts...)
			none, once, more := f.finish(t)
			if test.once && once != ticks {
				t.Errorf("%d ticks without a run, and %d with more than one: want none", none, more)
			}
			if !test.once && more != ticks {
				t.Errorf("%d ticks with several runs, want all: this test cannot see what keeping the lock is for", more)
			}
			if keep := test.every * 9 / 10; f.closest < keep {
				t.Errorf("two runs within %v, which is less than %v", f.closest, keep)
			}
		})
	}
}

// The leader resigns right after a job, every ten ticks.
func TestElectorRunsAJobOnceATickThoughLeadersChange(t *testing.T) {
	for name, test := range map[string]struct {
		settle time.Duration
		once   bool
	}{"settled": {margin, true}, "not settled": {0, false}} {
		testkit.Run(t, name, func(t *testing.T) {
			nodes := nodetest.Start(t, 3)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var opts []gocron.SchedulerOption
			var elections []*election.Election
			for range 3 {
				e := election.New(nodes.NewClient().Mutex("leader"), "")
				x, err := gocronlock.NewElector(e, test.settle)
				testkit.Must(t, err, "NewElector")
				running.Go(func() {
					testkit.Is(t, x.Run(ctx), context.Canceled, "Run")
				})
				elections, opts = append(elections, e), append(opts, gocron.WithDistributedElector(x))
			}
			var mu sync.Mutex
			jobs, led := 0, make(map[int]bool)
			f := newFleet(t, skew, func(process int) {
				mu.Lock()
				defer mu.Unlock()
				led[process] = true
				if jobs++; jobs%10 == 0 {
					testkit.OK(t, elections[process].Resign(ctx), "Resign")
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
	}
}

func TestElectorLeadsOnlyWhileItRuns(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		x, err := gocronlock.NewElector(election.New(nodetest.Start(t, 3).Client().Mutex("leader"), ""), time.Second)
		testkit.Must(t, err, "NewElector")
		testkit.Is(t, x.IsLeader(t.Context()), election.ErrNotLeader, "before Run")
		ctx, cancel := context.WithCancel(t.Context())
		done := testkit.Go(func() error { return x.Run(ctx) })
		time.Sleep(100 * time.Millisecond)
		if err := x.IsLeader(t.Context()); err == nil || errors.Is(err, election.ErrNotLeader) {
			t.Errorf("before it has settled: %v, want an error that says so", err)
		}
		time.Sleep(time.Second)
		testkit.OK(t, x.IsLeader(t.Context()), "when it has settled")
		cancel()
		<-done
		testkit.Is(t, x.IsLeader(t.Context()), election.ErrNotLeader, "after Run")
	})
}

func TestBadArgumentsAreRefused(t *testing.T) {
	lock := func(string) quorumlock.Locker { return nil }
	typed := func(string) quorumlock.Locker { return (*locktest.Locker)(nil) }
	for want, err := range map[string]error{
		"the function is nil":                testkit.Err(gocronlock.NewLocker(nil, 0)),
		"every is -1ns":                      testkit.Err(gocronlock.NewLocker(lock, -1)),
		`returned nil for the job "report"`:  testkit.Err(newLocker(t, lock, 0).Lock(t.Context(), "report")),
		`returned nil for the job "cleanup"`: testkit.Err(newLocker(t, typed, 0).Lock(t.Context(), "cleanup")),
		"the election is nil":                testkit.Err(gocronlock.NewElector(nil, 0)),
		"settle is -1ns":                     testkit.Err(gocronlock.NewElector(election.New(nil, ""), -1)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

type worker struct{}

func (worker) report() {}

func report() {}

// gocron names a job after its function. Two jobs of one literal or method would share their lock.
func TestAJobWithoutANameIsRefused(t *testing.T) {
	var refused []string
	locker := newLocker(t, func(job string) quorumlock.Locker { return locktest.New(job) }, 0)
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	testkit.Must(t, err, "NewScheduler")
	defer s.Shutdown() //nolint:errcheck // nothing runs
	for range 2 {
		for _, f := range []func(){func() {}, worker{}.report, func() { func() { report() }() }} {
			j, err := s.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(f))
			testkit.Must(t, err, "NewJob")
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
		testkit.OK(t, testkit.Err(locker.Lock(t.Context(), name)), "%s", name)
	}
}

// Listeners learn why: they are given the errors of the lock.
func TestSkipsAreLogged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var out strings.Builder // written in the goroutine of one job, which Shutdown waits for
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		lock := locktest.New("report")
		locker := newLocker(t, func(string) quorumlock.Locker { return lock }, 0)
		defer lock.Hold()()
		s := begin(t, func() { t.Error("the job ran") }, gocron.WithDistributedLocker(locker),
			gocron.WithEventListeners(gocronlock.LogSkips(log)))
		time.Sleep(period + period/2)
		lock.Fail(&quorumlock.QuorumError{Needed: 2})
		time.Sleep(period)
		testkit.OK(t, s.Shutdown(), "Shutdown")
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
	for name, want := range map[string][]int{"it learns": {0, 1}, "it does not": {0}} {
		testkit.Run(t, name, func(t *testing.T) {
			nodes := nodetest.Start(t, 3)
			var runs []int // jobs run one at a time
			var schedulers []gocron.Scheduler
			for process := range 2 {
				locker := newLocker(t, nodes.NewClient().Lockers("jobs:"), period)
				var opts []gocron.JobOption
				if name == "it learns" {
					opts = append(opts, gocron.WithEventListeners(gocron.AfterJobRunsWithError(locker.Failed)))
				}
				schedulers = append(schedulers, begin(t, func() error {
					runs = append(runs, process)
					if len(runs) == 1 {
						return errors.New("told to stop")
					}
					return nil
				}, gocron.WithDistributedLocker(locker), opts...))
				time.Sleep(period / 3)
			}
			time.Sleep(period) // the ticks at 1 and 4/3 periods
			for _, s := range schedulers {
				testkit.OK(t, s.Shutdown(), "Shutdown")
			}
			if !slices.Equal(runs, want) {
				t.Errorf("the job ran at the processes %v, want %v", runs, want)
			}
		})
	}
}
