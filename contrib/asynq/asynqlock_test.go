package asynqlock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	asynqlock "github.com/quorumlock/quorumlock/contrib/asynq"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

// fleet is a Redis with a queue, and the servers that work on it.
type fleet struct {
	t     *testing.T
	redis *redis.Client
	nodes *nodetest.Nodes // of the locks
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	client := redis.NewClient(&redis.Options{ // within the bubble: no socket, and no look-up of a name
		Addr:   "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
	})
	t.Cleanup(func() {
		testkit.OK(t, client.Close(), "Close")
		server.Close()
	})
	return &fleet{t, client, nodetest.Start(t, 3)}
}

const delay = 2 * time.Second

// config is what the package says to use.
func config() asynq.Config {
	return asynq.Config{
		Concurrency:              4,
		LogLevel:                 asynq.FatalLevel,
		DelayedTaskCheckInterval: time.Second,
		IsFailure:                asynqlock.IsFailure,
		RetryDelayFunc:           asynqlock.RetryDelay(delay, nil),
	}
}

// byPayload is the key function of the tests: the key of a task is its payload.
func byPayload(task *asynq.Task) (string, bool) {
	return string(task.Payload()), len(task.Payload()) > 0
}

// start starts a server with a client of its own, as each process has. Its end is that of the test.
func (f *fleet) start(config asynq.Config, work asynq.HandlerFunc) {
	f.t.Helper()
	one, err := asynqlock.Exclusive(f.nodes.NewClient().Lockers("customer:"), byPayload)
	testkit.Must(f.t, err, "Exclusive")
	mux := asynq.NewServeMux()
	mux.Use(one)
	mux.Handle("bill", work)
	server := asynq.NewServerFromRedisClient(f.redis, config)
	testkit.Must(f.t, server.Start(mux), "Start")
	f.t.Cleanup(server.Shutdown)
}

func (f *fleet) enqueue(key string, opts ...asynq.Option) {
	f.t.Helper()
	_, err := asynq.NewClientFromRedisClient(f.redis).Enqueue(asynq.NewTask("bill", []byte(key)), opts...)
	testkit.Must(f.t, err, "Enqueue")
}

// queue returns the state of the queue.
func (f *fleet) queue() *asynq.QueueInfo {
	f.t.Helper()
	info, err := asynq.NewInspectorFromRedisClient(f.redis).GetQueueInfo("default")
	testkit.Must(f.t, err, "GetQueueInfo")
	return info
}

// work is a handler that counts how many tasks of a key run at a time.
type work struct {
	takes time.Duration // a run, whatever becomes of its ctx

	mu                   sync.Mutex
	now                  map[string]int
	runs, together, keys int // keys: the most keys at work at a time
	unleased             int
}

func (w *work) ProcessTask(ctx context.Context, task *asynq.Task) error {
	key := string(task.Payload())
	lease, ok := quorumlock.LeaseOf(ctx)
	w.mu.Lock()
	if w.now == nil {
		w.now = make(map[string]int)
	}
	w.runs++
	w.now[key]++
	w.together, w.keys = max(w.together, w.now[key]), max(w.keys, len(w.now))
	if !ok || lease.Name() != "customer:"+key {
		w.unleased++
	}
	w.mu.Unlock()
	time.Sleep(w.takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now[key]--; w.now[key] == 0 {
		delete(w.now, key)
	}
	return ctx.Err()
}

// A task has one retry, and finds its lock held more often than that.
func TestOneTaskOfAKeyRunsAtATimeAndWaitingCostsNoRetry(t *testing.T) {
	for name, test := range map[string]struct {
		failure func(error) bool
		counted bool // a held lock is a failure
	}{"with IsFailure": {asynqlock.IsFailure, false}, "without": {nil, true}} {
		testkit.Run(t, name, func(t *testing.T) {
			f, w, held := newFleet(t), &work{takes: 3 * time.Second}, 0
			var mu sync.Mutex
			c := config()
			c.IsFailure = test.failure
			c.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
				mu.Lock()
				defer mu.Unlock()
				held++
				testkit.Is(t, err, quorumlock.ErrHeld, "the error of a task")
			})
			for range 2 {
				f.start(c, w.ProcessTask)
			}
			const tasks = 5 // of each key
			for range tasks {
				f.enqueue("7", asynq.MaxRetry(1))
				f.enqueue("8", asynq.MaxRetry(1))
			}
			time.Sleep(2 * time.Minute)
			w.mu.Lock()
			defer w.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			if w.together != 1 || w.keys != 2 || w.unleased != 0 {
				t.Errorf("%d tasks of a key and %d keys at a time, %d tasks without their lease: want 1, 2 and 0", w.together, w.keys, w.unleased)
			}
			q := f.queue()
			t.Logf("%d runs, %d held, %d failures, %d tasks left", w.runs, held, q.Failed, q.Size)
			if w.runs != 2*tasks || q.Size != 0 {
				t.Errorf("%d runs, %d tasks left: want %d and 0", w.runs, q.Size, 2*tasks)
			}
			if test.counted && q.Failed == 0 {
				t.Error("no failure was counted: this test cannot see what IsFailure is for")
			}
			if !test.counted && (q.Failed != 0 || held <= 2*tasks) {
				t.Errorf("%d failures, and a lock was held %d times: want 0, and more than %d", q.Failed, held, 2*tasks)
			}
		})
	}
}

// Asynq archives a task that fails without retries left, even if IsFailure says that it has not.
func TestATaskWithoutRetriesWaitsForItsLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f, w := newFleet(t), &work{takes: 3 * time.Second}
		f.start(config(), w.ProcessTask)
		for range 3 {
			f.enqueue("7", asynq.MaxRetry(0))
		}
		time.Sleep(20 * time.Second)
		f.enqueue("8", asynq.MaxRetry(0), asynq.Timeout(2*time.Second))
		defer testkit.Unlock(t, testkit.Lock(t, f.nodes.NewClient().Mutex("customer:8")))
		time.Sleep(20 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if q := f.queue(); w.runs != 3 || w.together != 1 || q.Archived != 1 {
			t.Errorf("%d runs, %d at a time, %d archived: want 3, 1 at a time, and the one that timed out", w.runs, w.together, q.Archived)
		}
	})
}

// Asynq gives a task up at its timeout, and runs it again, although the handler goes on.
func TestAHandlerPastItsTimeoutKeepsTheLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f, w := newFleet(t), &work{takes: time.Minute}
		for range 2 {
			f.start(config(), w.ProcessTask)
		}
		f.enqueue("7", asynq.MaxRetry(2), asynq.Timeout(10*time.Second))
		time.Sleep(15 * time.Minute) // three runs of a minute, and the pauses between them
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.runs < 2 || w.together != 1 {
			t.Errorf("%d runs, %d at a time: want several, one at a time", w.runs, w.together)
		}
	})
}

func TestALostLeaseRunsTheTaskAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var runs int // one at a time
		f.start(config(), func(ctx context.Context, _ *asynq.Task) error {
			if runs++; runs > 1 {
				return nil
			}
			testkit.OK(t, f.nodes.Client().ForceUnlock(t.Context(), "customer:7"), "ForceUnlock")
			<-ctx.Done()
			testkit.Is(t, context.Cause(ctx), quorumlock.ErrLost, "the cause of the handler's ctx")
			return nil // as if it had noticed nothing
		})
		f.enqueue("7")
		time.Sleep(10 * time.Second) // the loss is noticed, and the retry comes 15 s after it at the earliest
		tasks, err := asynq.NewInspectorFromRedisClient(f.redis).ListRetryTasks("default")
		testkit.Must(t, err, "ListRetryTasks")
		if len(tasks) != 1 || tasks[0].Retried != 1 || !strings.Contains(tasks[0].LastErr, "was lost") {
			t.Errorf("the tasks to retry: %+v, want one with a lost lease", tasks)
		}
		time.Sleep(2 * time.Minute)
		if q := f.queue(); runs != 2 || q.Size != 0 || q.Failed != 1 {
			t.Errorf("%d runs, %d tasks left, %d failures: want 2, 0 and 1", runs, q.Size, q.Failed)
		}
	})
}

func TestOtherErrorsAreFailures(t *testing.T) {
	lock := locktest.New("customer:7")
	one, err := asynqlock.Exclusive(func(string) quorumlock.Locker { return lock }, byPayload)
	testkit.Must(t, err, "Exclusive")
	task := asynq.NewTask("bill", []byte("7"))
	run := func(ctx context.Context, work error) error {
		return one(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return work })).ProcessTask(ctx, task)
	}
	wait := asynqlock.RetryDelay(delay, func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n) * time.Hour })
	check := func(name string, err, want error, failure bool) {
		t.Helper()
		testkit.Is(t, err, want, "%s", name)
		testkit.Equal(t, asynqlock.IsFailure(err), failure, "%s: IsFailure", name)
		d := delay
		if failure {
			d = 3 * time.Hour
		}
		testkit.Equal(t, wait(3, err, task), d, "%s: the delay", name)
	}
	testkit.Equal(t, asynqlock.IsFailure(run(t.Context(), nil)), false, "no error: IsFailure")
	check("the handler's", run(t.Context(), io.EOF), io.EOF, true)
	check("the handler's own lock", run(t.Context(), quorumlock.ErrHeld), quorumlock.ErrHeld, true)

	release := lock.Hold()
	check("held", run(t.Context(), nil), quorumlock.ErrHeld, false)
	release()
	lock.Fail(&quorumlock.QuorumError{Needed: 2})
	check("an outage", run(t.Context(), nil), quorumlock.ErrNoQuorum, true)
	lock.Fail(nil)
	lease := testkit.Lock(t, lock)
	check("within a lease", run(lease.Context(), nil), quorumlock.ErrDeadlock, true)
	testkit.Equal(t, lease.HoldCount(), 1, "the leases after it")
	testkit.Unlock(t, lease)

	func() {
		defer func() { _ = recover() }()
		_ = one(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { panic("a bug") })).ProcessTask(t.Context(), task)
	}()
	testkit.OK(t, run(t.Context(), nil), "after a panic")
}

func TestATaskWithoutAKeyNeedsNoLock(t *testing.T) {
	one, err := asynqlock.Exclusive(func(string) quorumlock.Locker { panic("a lock for nothing") }, byPayload)
	testkit.Must(t, err, "Exclusive")
	err = one(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		_, leased := quorumlock.LeaseOf(ctx)
		testkit.Equal(t, leased, false, "LeaseOf")
		return io.EOF
	})).ProcessTask(t.Context(), asynq.NewTask("bill", nil))
	testkit.Is(t, err, io.EOF, "the handler's error")
}

func TestBadArgumentsAreRefused(t *testing.T) {
	none := func(string) quorumlock.Locker { return nil }
	typed := func(string) quorumlock.Locker { return (*locktest.Locker)(nil) }
	process := func(lock func(string) quorumlock.Locker, key string) error {
		one, err := asynqlock.Exclusive(lock, func(*asynq.Task) (string, bool) { return key, true })
		testkit.Must(t, err, "Exclusive")
		return one(asynq.NotFoundHandler()).ProcessTask(t.Context(), asynq.NewTask("bill", nil))
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"no lock function":     {testkit.Err(asynqlock.Exclusive(nil, byPayload)), "a function is nil"},
		"no key function":      {testkit.Err(asynqlock.Exclusive(none, nil)), "a function is nil"},
		"an empty key":         {process(none, ""), "the key is empty"},
		"no lock":              {process(none, "7"), `returned nil for the key "7"`},
		"no lock, with a type": {process(typed, "7"), `returned nil for the key "7"`},
	} {
		if !errors.Is(test.err, quorumlock.ErrMisuse) || !strings.Contains(test.err.Error(), test.want) || !asynqlock.IsFailure(test.err) {
			t.Errorf("%s: %v, want an error of wrong use with %q", name, test.err, test.want)
		}
	}
}
