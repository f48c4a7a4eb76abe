package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/quorumlock/quorumlock"
	cronlock "github.com/quorumlock/quorumlock/contrib/cron"
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

// late is the schedule of a process with a slow clock.
type late struct{ by time.Duration }

func (l late) Next(t time.Time) time.Time {
	return t.Add(-l.by).Truncate(time.Second).Add(time.Second + l.by)
}

// Three processes with clocks that differ by 30 ms run a job for 200 ticks.
func TestAJobRunsOnceATickThoughClocksDiffer(t *testing.T) {
	const ticks, skew = 200, 30 * time.Millisecond
	for name, test := range map[string]struct {
		every time.Duration
		once  bool
	}{"kept": {time.Second, true}, "not kept": {0, false}} {
		testkit.Run(t, name, func(t *testing.T) {
			nodes := nodetest.Start(t, 3)
			start := time.Now().Truncate(time.Second)
			var mu sync.Mutex
			runs := make(map[int]int)
			for process := range 3 {
				job := cron.NewChain(cronlock.Once(t.Context(), nodes.NewClient().Mutex("report"), test.every, cron.DiscardLogger)).
					Then(cron.FuncJob(func() {
						mu.Lock()
						runs[int(time.Since(start)/time.Second)]++
						mu.Unlock()
						time.Sleep(time.Millisecond)
					}))
				c := cron.New()
				c.Schedule(late{time.Duration(process) * skew}, job)
				c.Start()
				defer func() { <-c.Stop().Done() }()
			}
			time.Sleep(ticks*time.Second + time.Second/2)
			mu.Lock()
			defer mu.Unlock()
			times := make(map[int]int) // ticks with so many runs
			for tick := range ticks {
				times[runs[tick+1]]++ // at tick 0 they started
			}
			once, more := times[1], ticks-times[0]-times[1]
			t.Logf("%d ticks: %d with one run, %d with more", ticks, once, more)
			if test.once && once != ticks {
				t.Errorf("%d ticks with one run, want %d", once, ticks)
			}
			if !test.once && more == 0 {
				t.Error("no tick ran twice without a period: this test cannot see what keeping the lock is for")
			}
		})
	}
}

// log keeps the messages to a cron.Logger.
type log struct{ infos, errors []string }

func (l *log) Info(msg string, more ...any)          { l.infos = append(l.infos, fmt.Sprint(msg, more)) }
func (l *log) Error(err error, msg string, _ ...any) { l.errors = append(l.errors, err.Error()) }

func TestTheLogLearnsOfSkippedTicksLossesAndErrors(t *testing.T) {
	lock, job := locktest.New("report"), func(context.Context) error { return errors.New("no paper") }
	l := &log{}
	run := func(lock quorumlock.Locker, job func(context.Context) error) {
		cronlock.OnceFunc(t.Context(), lock, 0, l, job).Run()
	}
	release := lock.Hold()
	run(lock, job)
	if len(l.infos) != 1 || !strings.Contains(l.infos[0], "skipped") || !strings.Contains(l.infos[0], "lock report holder somebody-else~") || len(l.errors) > 0 {
		t.Errorf("while another process has the lock: %q and errors %q, want one skipped", l.infos, l.errors)
	}
	release()
	run(lock, job)
	run(lock, func(ctx context.Context) error {
		lock.Lose()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	lock.Fail(&quorumlock.QuorumError{Needed: 2})
	run(lock, job)
	run(nil, job)
	run((*locktest.Locker)(nil), job)
	run(lock, nil)
	cronlock.Once(t.Context(), lock, 0, l)(nil).Run()
	for i, want := range []string{"no paper", "was lost", "no quorum", "the Locker is nil", "the Locker is nil", "the function is nil", "the function is nil"} {
		if i >= len(l.errors) || !strings.Contains(l.errors[i], want) {
			t.Errorf("errors %q, want number %d to say %q", l.errors, i, want)
		}
	}
}

// The process with the lock is stopped at the tick, and its job returns the error of its ctx.
func TestAProcessThatStopsLosesNoRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		nodes, l := nodetest.Start(t, 3), &log{}
		ctx, stop := context.WithCancel(t.Context())
		var runs []int
		var running sync.WaitGroup
		for process, ctx := range []context.Context{ctx, t.Context()} {
			job := cronlock.OnceFunc(ctx, nodes.NewClient().Mutex("report"), time.Hour, l, func(ctx context.Context) error {
				if process == 0 {
					<-ctx.Done()
				}
				runs = append(runs, process)
				return ctx.Err()
			}, quorumlock.ReleaseOnError(), quorumlock.Standby(time.Minute))
			running.Go(job.Run)
			time.Sleep(time.Second)
		}
		stop()
		running.Wait()
		if !slices.Equal(runs, []int{0, 1}) || len(l.errors) != 1 || len(l.infos) > 0 {
			t.Errorf("runs %v, errors %q, skips %q, want one that was stopped and one that took over", runs, l.errors, l.infos)
		}
		job := cronlock.OnceFunc(t.Context(), nodes.Client().Mutex("report"), time.Hour, l, func(context.Context) error { runs = nil; return nil })
		if job.Run(); len(runs) != 2 || len(l.infos) != 1 {
			t.Error("the job that took over has not kept the lock")
		}
		time.Sleep(time.Hour)
	})
}
