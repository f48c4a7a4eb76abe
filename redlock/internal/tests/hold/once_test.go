package hold

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	public "github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// period is one of which Once keeps a minute.
const period = time.Minute * 10 / 9

func TestOnceKeepsTheLockForNineTenthsOfThePeriod(t *testing.T) {
	failure := errors.New("the job failed")
	onError, fiveMinutes := quorumlock.ReleaseOnError(), quorumlock.KeepFor(5*time.Minute)
	for _, tt := range []struct {
		name  string
		takes time.Duration
		free  time.Duration // after the grant
		err   error
		opts  []quorumlock.OnceOption
	}{
		{"a short job", time.Millisecond, time.Minute, nil, nil},
		{"a job that fails", time.Millisecond, time.Minute, failure, nil},
		{"a job longer than a TTL", 25 * time.Second, time.Minute, nil, nil},
		{"a job longer than that", 2 * time.Minute, 2 * time.Minute, nil, nil},
		{"kept for another time", time.Millisecond, 5 * time.Minute, nil, []quorumlock.OnceOption{nil, fiveMinutes}},
		{"kept if it succeeds", time.Millisecond, 5 * time.Minute, nil, []quorumlock.OnceOption{onError, fiveMinutes}},
		{"not kept if it fails", time.Second, time.Second, failure, []quorumlock.OnceOption{onError, fiveMinutes}},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 3)
			start := time.Now()
			ran, err := quorumlock.Once(t.Context(), clients[0].Mutex("job"), period, func(ctx context.Context) error {
				time.Sleep(tt.takes)
				if ctx.Err() != nil {
					t.Error("the lease was lost")
				}
				return tt.err
			}, tt.opts...)
			if !ran || !errors.Is(err, tt.err) {
				t.Errorf("ran %v, %v, want true, %v", ran, err, tt.err)
			}
			for time.Since(start) < tt.free-time.Second {
				testkit.Refused(t, clients[1].Mutex("job"))
				time.Sleep(900 * time.Millisecond)
			}
			time.Sleep(time.Until(start.Add(tt.free + 10*time.Millisecond)))
			testkit.Unlock(t, testkit.TryLock(t, clients[1].Mutex("job")))
			testkit.Nothing(t, servers)
		})
	}
}

// A job may enter its caller's hold. The lock is kept for the job's period, whenever the caller
// leaves.
func TestOnceWithinAHoldKeepsTheLock(t *testing.T) {
	for _, tt := range []struct {
		name  string
		outer time.Duration // how much longer the caller holds
		free  time.Duration // after the grant to the job
	}{
		{"the caller leaves at once", 0, time.Minute},
		{"the caller leaves later", 40 * time.Second, time.Minute},
		{"the caller leaves after that", 2 * time.Minute, 2 * time.Minute},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 3)
			outer := testkit.Lock(t, clients[0].Mutex("job"))
			start := time.Now()
			for _, every := range []time.Duration{period, time.Second} {
				ran, err := quorumlock.Once(outer.Context(), clients[0].Mutex("job"), every, func(context.Context) error { return nil })
				if !ran || err != nil {
					t.Errorf("ran %v, %v", ran, err)
				}
			}
			time.Sleep(tt.outer)
			testkit.Held(t, outer)
			testkit.Unlock(t, outer)
			time.Sleep(time.Until(start.Add(tt.free - 10*time.Millisecond)))
			if tt.outer < tt.free {
				testkit.Refused(t, clients[1].Mutex("job"))
			}
			time.Sleep(20 * time.Millisecond)
			testkit.Unlock(t, testkit.TryLock(t, clients[1].Mutex("job")))
			testkit.Nothing(t, servers)
		})
	}
}

func TestOnceThatPanicsKeepsTheLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 3)
		panics := func(name string, opts ...quorumlock.OnceOption) {
			defer func() { _ = recover() }()
			_, _ = quorumlock.Once(t.Context(), clients[0].Mutex(name), period, func(context.Context) error { panic("job") }, opts...)
			t.Error("the panic was swallowed")
		}
		panics("job")
		testkit.Refused(t, clients[1].Mutex("job"))
		panics("job 2", quorumlock.ReleaseOnError())
		testkit.Unlock(t, testkit.TryLock(t, clients[1].Mutex("job 2")))
		time.Sleep(time.Minute + 10*time.Millisecond)
		testkit.Nothing(t, servers)
	})
}

// Three processes have tickers of an hour, which began at other times. A lock that is kept for the
// whole hour is taken at every second tick.
func TestOnceRunsOnceAnHourWithTickersOfAnHour(t *testing.T) {
	for _, tt := range []struct {
		name     string
		late     []time.Duration // how much later each process began
		opts     []quorumlock.OnceOption
		min, max int // runs in 48 hours
	}{
		{"one process", []time.Duration{0}, nil, 48, 49},
		{"together", []time.Duration{0, time.Millisecond, 30 * time.Second}, nil, 48, 49},
		{"spread", []time.Duration{0, 20 * time.Minute, 40 * time.Minute}, nil, 48, 49},
		{"near the end", []time.Duration{0, 53 * time.Minute, 58 * time.Minute}, nil, 48, 49},
		{"kept for the hour", []time.Duration{0}, []quorumlock.OnceOption{quorumlock.KeepFor(time.Hour)}, 24, 36},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			runs := 0 // written by the holder
			ctx := testkit.Within(t, 49*time.Hour-time.Second)
			lock := public.New("job")
			var wg sync.WaitGroup
			for _, late := range tt.late {
				wg.Go(func() {
					time.Sleep(late)
					rng := rand.New(rand.NewPCG(1, uint64(late)))
					for ticker := time.NewTicker(time.Hour); ; {
						select {
						case <-ticker.C:
						case <-ctx.Done():
							return
						}
						// No process is exactly on time.
						time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Millisecond))))
						_, err := quorumlock.Once(ctx, lock, time.Hour, func(context.Context) error { runs++; return nil }, tt.opts...)
						testkit.OK(t, err, "Once")
					}
				})
			}
			wg.Wait()
			if runs < tt.min || runs > tt.max {
				t.Errorf("%d runs in 48 hours, want %d to %d", runs, tt.min, tt.max)
			}
		})
	}
}

// A process stopped at the tick returns the error of its ctx. One that was too late takes over.
func TestStandbyTakesOverFromAProcessThatFails(t *testing.T) {
	failure := errors.New("told to stop")
	for _, tt := range []struct {
		name  string
		fails error
		opts  []quorumlock.OnceOption
		late  bool // whether the process that was too late runs the job
	}{
		{"the job fails", failure, []quorumlock.OnceOption{quorumlock.ReleaseOnError(), quorumlock.Standby(time.Minute)}, true},
		{"the job succeeds", nil, []quorumlock.OnceOption{quorumlock.ReleaseOnError(), quorumlock.Standby(time.Minute)}, false},
		{"the job fails too late", failure, []quorumlock.OnceOption{quorumlock.ReleaseOnError(), quorumlock.Standby(5 * time.Second)}, false},
		{"a failure is kept", failure, []quorumlock.OnceOption{quorumlock.Standby(time.Minute)}, false},
		{"nobody stands by", failure, []quorumlock.OnceOption{quorumlock.ReleaseOnError()}, false},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 3)
			var wg sync.WaitGroup
			wg.Go(func() {
				ran, err := quorumlock.Once(t.Context(), clients[0].Mutex("job"), time.Hour, func(context.Context) error {
					time.Sleep(20 * time.Second)
					return tt.fails
				}, tt.opts...)
				if !ran || !errors.Is(err, tt.fails) {
					t.Errorf("the first: ran %v, %v", ran, err)
				}
			})
			time.Sleep(time.Second)
			var skipped error
			ran, err := quorumlock.Once(t.Context(), clients[1].Mutex("job"), time.Hour, func(ctx context.Context) error {
				time.Sleep(2 * time.Hour) // longer than the standby, which does not bound it
				return ctx.Err()
			}, append(tt.opts, quorumlock.OnSkip(func(err error) { skipped = err }), quorumlock.OnSkip(nil))...)
			if ran != tt.late || err != nil {
				t.Errorf("the second: ran %v, %v, want %v", ran, err, tt.late)
			}
			if held, ok := errors.AsType[*quorumlock.HeldError](skipped); ok == tt.late || ok && held.Holder == "" {
				t.Errorf("the second was skipped since %v", skipped)
			}
			wg.Wait()
			time.Sleep(time.Hour)
			testkit.Nothing(t, servers)
		})
	}
}

// The error shows the end of the wait: the caller's ctx, or nodes that do not answer.
func TestStandbySaysWhyItEnds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		ends := func(what string, ctx context.Context, want error) {
			t.Helper()
			never := func(context.Context) error { t.Error("the job ran"); return nil }
			ran, err := quorumlock.Once(ctx, c.Mutex("job"), time.Hour, never, quorumlock.Standby(time.Minute))
			if ran || !errors.Is(err, want) || errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, %v, want %v", what, ran, err, want)
			}
		}
		lease := testkit.Lock(t, c.Mutex("job"))
		ends("the ctx ended", testkit.Within(t, time.Second), context.DeadlineExceeded)
		testkit.Unlock(t, lease)
		testkit.Kill(servers...)
		ends("the nodes are down", t.Context(), quorumlock.ErrNoQuorum)
	})
}

// The remains of a crash end with the TTL, not with the period.
func TestOnceSaysWhatItCannotKeep(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		ran, err := quorumlock.Once(t.Context(), c.Mutex("job"), period, func(context.Context) error {
			testkit.Kill(servers[:2]...)
			return nil
		})
		if _, few := errors.AsType[*quorumlock.QuorumError](err); !ran || !few {
			t.Errorf("ran %v, %v, want true and a QuorumError", ran, err)
		}
		testkit.Restart(servers[:2]...)
		time.Sleep(quorumlock.DefaultTTL)
		testkit.Equal(t, testkit.Holds(servers[:2], "job", "")+len(testkit.Keys(servers[0])), 0, "keys outlive their TTL")
		ran, err = quorumlock.Once(t.Context(), c.Mutex("job"), 0, func(ctx context.Context) error {
			testkit.Each(servers, func(s *embedded.Server) { s.Restart(false) })
			<-ctx.Done()
			return nil
		})
		if !ran || !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("ran %v, %v, want true and ErrLost", ran, err)
		}
	})
}

// A node that is restarting accepts connections late. A failed Once does not reach it then.
func TestOnceThatHasFailedKeepsNothingLater(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		testkit.Warm(t, c)
		// It has not granted when the job is over, so it is not asked to keep the lock.
		servers[2].Delay(10 * time.Millisecond)
		ran, err := quorumlock.Once(t.Context(), c.Mutex("job"), period, func(context.Context) error {
			servers[0].Restart(true)
			servers[0].Stall()
			servers[1].Kill()
			return nil
		})
		if few, ok := errors.AsType[*quorumlock.QuorumError](err); !ran || !ok || few.Granted != 0 {
			t.Errorf("ran %v, %v, want true and a QuorumError of no node", ran, err)
		}
		servers[0].Resume()
		time.Sleep(quorumlock.DefaultTTL)
		if left := testkit.Keys(servers[0]); len(left) > 0 {
			t.Errorf("%q outlive their TTL", left)
		}
	})
}

// Callers in one process are told apart like those of several. The holder may be of the same
// client, and so may a past holder for which the nodes keep the lock.
func TestOnceCalledTwiceInOneProcessRunsOnce(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		testkit.Run(t, delay.String(), func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			testkit.Warm(t, c)
			testkit.Each(servers[:2], func(s *embedded.Server) { s.Delay(delay) })
			runs := make(chan bool, 100)
			once := func() bool {
				ran, err := quorumlock.Once(t.Context(), c.Mutex("job"), period, func(context.Context) error {
					runs <- true
					time.Sleep(time.Millisecond)
					return nil
				})
				testkit.OK(t, err, "Once")
				return ran
			}
			began := time.Now()
			var wg sync.WaitGroup
			for range 5 { // at once
				wg.Go(func() { once() })
			}
			wg.Wait()
			for time.Since(began) < time.Minute-time.Second { // one after the other
				if once() {
					t.Errorf("it ran again after %v", time.Since(began))
				}
				time.Sleep(700 * time.Millisecond)
			}
			testkit.Equal(t, len(runs), 1, "runs within the period")
			time.Sleep(2 * time.Second)
			if !once() {
				t.Error("it did not run in the next period")
			}
			time.Sleep(time.Minute)
			testkit.Each(servers[:2], func(s *embedded.Server) { s.Delay(0) })
			testkit.Nothing(t, servers)
		})
	}
}

// A process that waits longer than the lock is kept would run a job again that has succeeded.
func TestOnceRefusesAStandbyThatOutlastsTheKeptTime(t *testing.T) {
	for every, opts := range map[time.Duration][]quorumlock.OnceOption{
		24 * time.Hour: {quorumlock.KeepFor(time.Minute), quorumlock.Standby(time.Minute)},
		time.Hour:      {quorumlock.Standby(54 * time.Minute)},
		0:              {quorumlock.Standby(time.Second)},
	} {
		ran, err := quorumlock.Once(t.Context(), public.New("x"), every, func(context.Context) error { return nil }, opts...)
		if ran || !errors.Is(err, quorumlock.ErrMisuse) {
			t.Errorf("period %v: ran %v, %v, want ErrMisuse", every, ran, err)
		}
	}
}

// Stopping notifies endless work of a Shutdown, which waits for it. The work keeps its lock.
func TestWorkLearnsOfShutdownAndKeepsItsLease(t *testing.T) {
	type work = func(ctx context.Context) error
	for name, run := range map[string]func(t *testing.T, c, other *redlock.Client, work work) error{
		"Do": func(t *testing.T, c, _ *redlock.Client, work work) error {
			return quorumlock.Do(t.Context(), c.Mutex("x"), work)
		},
		"Once": func(t *testing.T, c, _ *redlock.Client, work work) error {
			return testkit.Err(quorumlock.Once(t.Context(), c.Mutex("x"), 0, work))
		},
		"a reader": func(t *testing.T, c, _ *redlock.Client, work work) error {
			return quorumlock.Do(t.Context(), c.RWMutex("x").RLocker(), work)
		},
		"a MultiLock": func(t *testing.T, c, _ *redlock.Client, work work) error {
			return quorumlock.Do(t.Context(), testkit.Multi(t, c.Mutex("x"), c.Semaphore("y", 2)), work)
		},
		"a lease of another client's around it": func(t *testing.T, c, other *redlock.Client, work work) error {
			return quorumlock.Do(t.Context(), other.Mutex("outer"), func(ctx context.Context) error {
				return quorumlock.Do(ctx, c.Mutex("x"), work)
			})
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 3)
			began := make(chan struct{})
			ended := testkit.Go(func() error {
				return run(t, clients[0], clients[1], func(ctx context.Context) error {
					close(began)
					<-quorumlock.Stopping(ctx)
					time.Sleep(time.Minute) // the rest of the work
					testkit.OK(t, context.Cause(ctx), "the context of the work ended")
					testkit.Is(t, testkit.Err(clients[1].Mutex("x").TryLock(t.Context())), quorumlock.ErrHeld, "TryLock meanwhile")
					return nil
				})
			})
			<-began
			time.Sleep(time.Minute)
			shut := time.Now()
			testkit.OK(t, clients[0].Shutdown(t.Context()), "Shutdown")
			testkit.Took(t, shut, time.Minute, time.Minute+time.Second, "Shutdown")
			testkit.OK(t, <-ended, "the work")
			testkit.Nothing(t, servers)
		})
	}
}

func TestStopping(t *testing.T) {
	isClosed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	var none context.Context
	if quorumlock.Stopping(none) != nil || quorumlock.Stopping(t.Context()) != nil {
		t.Error("a context without a lease has a channel")
	}
	c, _ := testkit.Client(t, 1)
	lease := testkit.Lock(t, c.Mutex("x"))
	if ch := quorumlock.Stopping(lease.Context()); ch == nil || isClosed(ch) {
		t.Error("there is no channel, or it is closed")
	}
	testkit.Unlock(t, lease)
	testkit.OK(t, c.Close(), "Close")
	testkit.Equal(t, isClosed(quorumlock.Stopping(lease.Context())), true, "the channel is closed by Close")
}
