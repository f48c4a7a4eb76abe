package riverlock_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertest"
	"github.com/riverqueue/river/rivertype"
	_ "modernc.org/sqlite"

	"github.com/quorumlock/quorumlock"
	riverlock "github.com/quorumlock/quorumlock/contrib/river"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

// Bill is a job.
type Bill struct {
	Customer string `json:"customer"`
}

// Kind implements river.JobArgs.
func (Bill) Kind() string { return "bill" }

// customer is the key of a job. A job without a customer has none.
func customer(job *rivertype.JobRow) (string, bool) {
	var b Bill
	err := json.Unmarshal(job.EncodedArgs, &b)
	return b.Customer, err == nil && b.Customer != ""
}

// migrated returns a database with River's tables.
func migrated(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "river.sqlite"))
	testkit.Must(t, err, "Open")
	t.Cleanup(func() { testkit.OK(t, db.Close(), "Close") })
	db.SetMaxOpenConns(1) // as River's driver needs it
	migrator, err := rivermigrate.New(riversqlite.New(db), &rivermigrate.Config{Logger: quiet})
	testkit.Must(t, err, "the migrator")
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	testkit.Must(t, err, "Migrate")
	return db
}

var quiet = slog.New(slog.DiscardHandler)

const snooze = 2 * time.Second

func exclusive(t *testing.T, lock func(string) quorumlock.Locker) river.WorkerMiddlewareFunc {
	t.Helper()
	one, err := riverlock.Exclusive(lock, customer, snooze)
	testkit.Must(t, err, "Exclusive")
	return one
}

// bench works jobs one by one, with River's own code for the outcome of each.
type bench struct {
	t      *testing.T
	tx     *sql.Tx
	worker *rivertest.Worker[Bill, *sql.Tx]
	client *river.Client[*sql.Tx] // inserts
}

func newBench(t *testing.T, lock func(string) quorumlock.Locker, work func(context.Context, *river.Job[Bill]) error) *bench {
	t.Helper()
	db := migrated(t)
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	testkit.Must(t, err, "BeginTx")
	t.Cleanup(func() { testkit.OK(t, tx.Rollback(), "Rollback") })
	config := &river.Config{Logger: quiet, Middleware: []rivertype.Middleware{exclusive(t, lock)}}
	client, err := river.NewClient(riversqlite.New(nil), &river.Config{Logger: quiet})
	testkit.Must(t, err, "NewClient")
	return &bench{t, tx, rivertest.NewWorker(t, riversqlite.New(nil), config, river.WorkFunc(work)), client}
}

func (b *bench) insert(c string) *rivertype.JobRow {
	b.t.Helper()
	inserted, err := b.client.InsertTx(b.t.Context(), b.tx, Bill{c}, &river.InsertOpts{MaxAttempts: 2})
	testkit.Must(b.t, err, "Insert")
	return inserted.Job
}

// work works a job, and checks what River makes of it. It returns the job as it is then, and its
// error.
func (b *bench) work(ctx context.Context, job *rivertype.JobRow, want river.EventKind, state rivertype.JobState, attempt int) (*rivertype.JobRow, error) {
	b.t.Helper()
	result, err := b.worker.WorkJob(ctx, b.t, b.tx, job)
	if result == nil {
		b.t.Fatalf("WorkJob: %v", err)
	}
	if got := result.Job; result.EventKind != want || got.State != state || got.Attempt != attempt {
		b.t.Errorf("%s, the job is %s after %d attempts: want %s, %s, %d", result.EventKind, got.State, got.Attempt, want, state, attempt)
	}
	return result.Job, err
}

func TestAHeldLockSnoozesTheJobAndUsesUpNoAttempt(t *testing.T) {
	lock, runs := locktest.New("customer:7"), 0
	b := newBench(t, func(string) quorumlock.Locker { return lock }, func(ctx context.Context, _ *river.Job[Bill]) error {
		runs++
		lease, ok := quorumlock.LeaseOf(ctx)
		if !ok || lease.Name() != "customer:7" {
			t.Errorf("the worker's lease: %v, %v", lease, ok)
		}
		return nil
	})
	job := b.insert("7")
	release := lock.Hold()
	for range 3 { // more often than it has attempts
		before := time.Now()
		job, _ = b.work(t.Context(), job, river.EventKindJobSnoozed, rivertype.JobStateAvailable, 0)
		if at := job.ScheduledAt; at.Before(before.Add(snooze-time.Second)) || len(job.Errors) != 0 {
			t.Errorf("the job comes back at %v, with the errors %v: want it %v after %v, and none", at, job.Errors, snooze, before)
		}
	}
	testkit.Equal(t, runs, 0, "runs while the lock is held")
	release()
	b.work(t.Context(), job, river.EventKindJobCompleted, rivertype.JobStateCompleted, 1)
	testkit.Equal(t, runs, 1, "runs")
	testkit.Unlock(t, testkit.TryLock(t, lock)) // the job has released it
}

func TestALostLeaseIsAnErrorOfTheJob(t *testing.T) {
	lock := locktest.New("customer:7")
	b := newBench(t, func(string) quorumlock.Locker { return lock }, func(ctx context.Context, job *river.Job[Bill]) error {
		if job.Attempt == 1 {
			lock.Lose()
			<-ctx.Done()
			testkit.Is(t, context.Cause(ctx), quorumlock.ErrLost, "the cause of the worker's ctx")
		}
		return nil // as if it had noticed nothing
	})
	job, err := b.work(t.Context(), b.insert("7"), river.EventKindJobFailed, rivertype.JobStateAvailable, 1)
	testkit.Is(t, err, quorumlock.ErrLost, "the job's error")
	b.work(t.Context(), job, river.EventKindJobCompleted, rivertype.JobStateCompleted, 2)
}

// Its completion is committed: an error cannot undo it.
func TestAJobThatCompletedItselfDoesNotRunAgain(t *testing.T) {
	lock := locktest.New("customer:7")
	var b *bench
	b = newBench(t, func(string) quorumlock.Locker { return lock }, func(ctx context.Context, job *river.Job[Bill]) error {
		_, err := river.JobCompleteTx[*riversqlite.Driver](ctx, b.tx, job)
		lock.Lose()
		return err
	})
	_, err := b.work(t.Context(), b.insert("7"), river.EventKindJobCompleted, rivertype.JobStateCompleted, 1)
	testkit.Is(t, err, quorumlock.ErrLost, "the job's error")
}

func TestOtherErrorsFailTheJob(t *testing.T) {
	lock, work := locktest.New("customer:7"), func(context.Context) error { return nil }
	b := newBench(t, func(string) quorumlock.Locker { return lock }, func(ctx context.Context, _ *river.Job[Bill]) error { return work(ctx) })
	fails := func(ctx context.Context, name string, want error) {
		t.Helper()
		_, err := b.work(ctx, b.insert("7"), river.EventKindJobFailed, rivertype.JobStateAvailable, 1)
		testkit.Is(t, err, want, "%s", name)
	}
	work = func(context.Context) error { return io.EOF }
	fails(t.Context(), "the worker's", io.EOF)
	work = func(context.Context) error { return quorumlock.ErrHeld }
	fails(t.Context(), "the worker's own lock", quorumlock.ErrHeld)
	work = func(context.Context) error { panic("a bug") }
	fails(t.Context(), "a panic", &rivertest.PanicError{})
	testkit.Unlock(t, testkit.TryLock(t, lock)) // the jobs have released it

	work = func(context.Context) error { t.Error("the worker was called"); return nil }
	lock.Fail(&quorumlock.QuorumError{Needed: 2})
	fails(t.Context(), "an outage", quorumlock.ErrNoQuorum)
	lock.Fail(nil)
	lease := testkit.Lock(t, lock)
	fails(lease.Context(), "within a lease", quorumlock.ErrDeadlock)
	testkit.Equal(t, lease.HoldCount(), 1, "the leases after it")
	testkit.Unlock(t, lease)
}

func TestAJobWithoutAKeyNeedsNoLock(t *testing.T) {
	b := newBench(t, func(string) quorumlock.Locker { panic("a lock for nothing") }, func(ctx context.Context, _ *river.Job[Bill]) error {
		_, leased := quorumlock.LeaseOf(ctx)
		testkit.Equal(t, leased, false, "LeaseOf")
		return nil
	})
	b.work(t.Context(), b.insert(""), river.EventKindJobCompleted, rivertype.JobStateCompleted, 1)
}

// crew counts how many jobs of a customer run at a time.
type crew struct {
	river.WorkerDefaults[Bill]

	mu                   sync.Mutex
	now                  map[string]int
	runs, together, keys int // keys: the most customers at a time
	attempts             int // the highest
}

// Work implements river.Worker.
func (c *crew) Work(_ context.Context, job *river.Job[Bill]) error {
	c.mu.Lock()
	if c.now == nil {
		c.now = make(map[string]int)
	}
	c.runs++
	c.now[job.Args.Customer]++
	c.together, c.keys, c.attempts = max(c.together, c.now[job.Args.Customer]), max(c.keys, len(c.now)), max(c.attempts, job.Attempt)
	c.mu.Unlock()
	time.Sleep(3 * time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now[job.Args.Customer]--; c.now[job.Args.Customer] == 0 {
		delete(c.now, job.Args.Customer)
	}
	return nil
}

// Two River clients work on one queue, each with a client of the locks, as two processes have.
func TestOneJobOfAKeyRunsAtATime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db, nodes, c := migrated(t), nodetest.Start(t, 3), new(crew)
		var snoozes int
		var client *river.Client[*sql.Tx]
		for range 2 {
			workers := river.NewWorkers()
			river.AddWorker(workers, c)
			var err error
			client, err = river.NewClient(riversqlite.New(db), &river.Config{
				Logger:     quiet,
				Middleware: []rivertype.Middleware{exclusive(t, nodes.NewClient().Lockers("customer:"))},
				PollOnly:   true,
				Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
				Workers:    workers,
			})
			testkit.Must(t, err, "NewClient")
			testkit.Must(t, client.Start(context.WithoutCancel(t.Context())), "Start")
			stop := client.Stop
			t.Cleanup(func() { testkit.OK(t, stop(context.WithoutCancel(t.Context())), "Stop") })
		}
		events, cancel := client.Subscribe(river.EventKindJobSnoozed)
		defer cancel()
		const jobs = 4 // of each customer
		for range jobs {
			for _, customer := range []string{"7", "8"} {
				_, err := client.Insert(t.Context(), Bill{customer}, &river.InsertOpts{MaxAttempts: 1})
				testkit.Must(t, err, "Insert")
			}
		}
		time.Sleep(time.Minute)
		snoozes = len(events)
		var left int
		testkit.Must(t, db.QueryRow("SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&left), "count")
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Logf("%d runs, %d snoozes at one client", c.runs, snoozes)
		if c.runs != 2*jobs || left != 0 || c.attempts != 1 || snoozes == 0 {
			t.Errorf("%d runs, %d jobs left, %d attempts, %d snoozes: want %d, 0, 1, and some", c.runs, left, c.attempts, snoozes, 2*jobs)
		}
		if c.together != 1 || c.keys != 2 {
			t.Errorf("%d jobs of a customer and %d customers at a time: want 1 and 2", c.together, c.keys)
		}
	})
}

func TestBadArgumentsAreRefused(t *testing.T) {
	none := func(string) quorumlock.Locker { return nil }
	typed := func(string) quorumlock.Locker { return (*locktest.Locker)(nil) }
	work := func(lock func(string) quorumlock.Locker, key string) error {
		one, err := riverlock.Exclusive(lock, func(*rivertype.JobRow) (string, bool) { return key, true }, 0)
		testkit.Must(t, err, "Exclusive")
		return one.Work(t.Context(), &rivertype.JobRow{}, func(context.Context) error { return nil })
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"no lock function":     {testkit.Err(riverlock.Exclusive(nil, customer, 0)), "a function is nil"},
		"no key function":      {testkit.Err(riverlock.Exclusive(none, nil, 0)), "a function is nil"},
		"a negative snooze":    {testkit.Err(riverlock.Exclusive(none, customer, -1)), "snooze is -1ns"},
		"an empty key":         {work(none, ""), "the key is empty"},
		"no lock":              {work(none, "7"), `returned nil for the key "7"`},
		"no lock, with a type": {work(typed, "7"), `returned nil for the key "7"`},
	} {
		if !errors.Is(test.err, quorumlock.ErrMisuse) || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: %v, want an error of wrong use with %q", name, test.err, test.want)
		}
	}
}
