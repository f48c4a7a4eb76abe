package sick

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

// firstLimit is the number of attempts that a client sends before the nodes have answered one.
const firstLimit = 16

// fill stalls the servers, and begins so many calls that the next one waits unsent. The calls
// release what they get.
func fill(t *testing.T, c *redlock.Client, servers []*embedded.Server) *sync.WaitGroup {
	t.Helper()
	testkit.Each(servers, (*embedded.Server).Stall)
	return begin(t, firstLimit, func(i int) error {
		lease, err := c.Mutex(fmt.Sprint("filler-", i)).TryLock(t.Context())
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		return err
	}, nil, quorumlock.ErrNoQuorum)
}

// begin begins n calls, and returns when all wait. Each must end with one of these errors.
func begin(t *testing.T, n int, call func(i int) error, want ...error) *sync.WaitGroup {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			err := call(i)
			if !slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	synctest.Wait()
	return &all
}

// runsOf records the scripts that servers run for a name.
type runsOf struct {
	mu   sync.Mutex
	name string
	ran  []string
}

func watchRuns(servers []*embedded.Server, name string) *runsOf {
	w := &runsOf{name: name}
	testkit.Each(servers, func(s *embedded.Server) {
		s.Before(func(r embedded.Run) {
			if slices.ContainsFunc(r.Keys, func(key string) bool { return strings.Contains(key, name) }) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.ran = append(w.ran, r.Script)
			}
		})
	})
	return w
}

func (w *runsOf) scripts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ran)
}

// A call that waits unsent until its time is over says so. It knows nothing about the lock or the
// nodes, and leaves nothing.
func TestACallWhoseTimeEndsUnsentSaysSo(t *testing.T) {
	const name, patience = "the-name", 10 * time.Millisecond
	type call = func(context.Context) (*quorumlock.Lease, error)
	for what, of := range map[string]func(c *redlock.Client, o quorumlock.Option) call{
		"Lock":    func(c *redlock.Client, o quorumlock.Option) call { return c.Mutex(name, o).Lock },
		"TryLock": func(c *redlock.Client, o quorumlock.Option) call { return c.Mutex(name, o).TryLock },
		"Lock with a wait": func(c *redlock.Client, o quorumlock.Option) call {
			return c.Mutex(name, o, quorumlock.WithWait(patience)).Lock
		},
		"Lock without a wait": func(c *redlock.Client, o quorumlock.Option) call {
			return c.Mutex(name, o, quorumlock.WithWait(0)).Lock
		},
		"a reader": func(c *redlock.Client, o quorumlock.Option) call { return c.RWMutex(name, o).RLocker().Lock },
		"a slot":   func(c *redlock.Client, o quorumlock.Option) call { return c.Semaphore(name, 3, o).TryLock },
		"a MultiLock": func(c *redlock.Client, o quorumlock.Option) call {
			m, err := multilock.New([]quorumlock.Locker{c.Mutex(name + "1"), c.Semaphore(name+"2", 3)}, o)
			testkit.Must(t, err, "New")
			return m.Lock
		},
	} {
		testkit.Run(t, what, func(t *testing.T) {
			var refused []quorumlock.Event
			o := quorumlock.WithObserver(testkit.Observer(func(e quorumlock.Event) {
				if e.Lock != "" {
					refused = append(refused, e)
				}
			}))
			c, servers := testkit.Client(t, 3)
			testkit.Warm(t, c)
			ran := watchRuns(servers, name)
			fillers := fill(t, c, servers)
			limit := patience
			if what == "Lock with a wait" {
				limit = time.Hour
			}
			began := time.Now()
			_, err := of(c, o)(testkit.Within(t, limit))
			testkit.Took(t, began, patience, patience, "%s", what)
			if !errors.Is(err, quorumlock.ErrUnsent) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want ErrUnsent and DeadlineExceeded", err)
			}
			if errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, quorumlock.ErrNoQuorum) {
				t.Errorf("error %v, want neither ErrHeld nor ErrNoQuorum", err)
			}
			if len(refused) != 1 || refused[0].Kind != quorumlock.EventRefused {
				t.Fatalf("events %+v, want one Refused", refused)
			}
			e := refused[0]
			testkit.Equal(t, e.ErrorType(), "unsent", "ErrorType")
			testkit.Equal(t, e.Attempts, 0, "attempts")
			testkit.Equal(t, e.Waited, patience, "the wait")
			if len(e.Steps) != 1 || e.Steps[0].Kind != quorumlock.StepQueued {
				t.Errorf("steps %+v, want StepQueued", e.Steps)
			}
			testkit.Each(servers, (*embedded.Server).Resume)
			fillers.Wait()
			time.Sleep(time.Second)
			if runs := ran.scripts(); len(runs) > 0 {
				t.Errorf("the servers ran %q for the lock", runs)
			}
			testkit.Nothing(t, servers)
		})
	}
}

// The Observer sees how many attempts wait unsent and how many are in flight, and at the end none.
func TestTheObserverSeesTheAdmission(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const waiting = 10
		var mu sync.Mutex
		var seen []quorumlock.Event
		c, servers := testkit.Client(t, 3, quorumlock.WithObserver(testkit.Observer(func(e quorumlock.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == quorumlock.EventNodeAsked {
				seen = append(seen, e)
			} else if e.InFlight != 0 || e.Limit != 0 || e.Unsent != 0 {
				t.Errorf("an event of another kind: %+v", e)
			}
		})))
		testkit.Warm(t, c)
		synctest.Wait()
		seen = nil
		fillers := fill(t, c, servers)
		waiters := begin(t, waiting, func(i int) error {
			lease, err := c.Mutex(fmt.Sprint("waiter-", i)).Lock(t.Context())
			if err == nil {
				err = lease.Unlock(t.Context())
			}
			return err
		}, nil)
		testkit.Each(servers, (*embedded.Server).Resume)
		fillers.Wait()
		waiters.Wait()
		synctest.Wait()
		testkit.Equal(t, seen[0].InFlight, firstLimit-1, "attempts in flight after the first answer")
		testkit.Equal(t, seen[0].Unsent, waiting, "attempts that wait unsent")
		last := make(map[string]quorumlock.Event)
		for _, e := range seen {
			last[e.Node] = e
			if e.InFlight < 0 || e.InFlight > firstLimit+waiting || e.Limit < firstLimit/2 || e.Unsent < 0 || e.Unsent > waiting {
				t.Errorf("%+v", e)
			}
		}
		for node, e := range last {
			if e.InFlight != 0 || e.Unsent != 0 {
				t.Errorf("at the end, %s has %d attempts in flight, and %d wait", node, e.InFlight, e.Unsent)
			}
		}
		testkit.Equal(t, len(last), 3, "nodes")
	})
}

// Whatever happens to the nodes and to the calls, each place is given back once.
func TestEachPlaceIsGivenBackOnce(t *testing.T) {
	for seed := range testkit.Thorough[uint64](100, 2) {
		testkit.Run(t, fmt.Sprint("seed ", seed), func(t *testing.T) {
			const callers, most = 200, 300 * time.Millisecond
			var mu sync.Mutex
			last := make(map[string]quorumlock.Event)
			busiest := 0
			c, servers := testkit.Client(t, 3, quorumlock.WithNodeTimeout(100*time.Millisecond), quorumlock.WithTTL(time.Second), quorumlock.WithObserver(testkit.Observer(func(e quorumlock.Event) {
				if e.Kind != quorumlock.EventNodeAsked {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				last[e.Node] = e
				busiest = max(busiest, e.Unsent)
				if e.InFlight < 0 || e.Unsent < 0 || e.Unsent > callers {
					t.Errorf("%+v", e)
				}
			})))
			testkit.Each(servers, (*embedded.Server).Stall)
			var all sync.WaitGroup
			for i := range uint64(callers) {
				rng := rand.New(rand.NewPCG(seed, i))
				all.Go(func() {
					for range 3 {
						l := []quorumlock.Locker{
							c.Mutex(fmt.Sprint("own-", i)), c.Mutex("mutex"), c.RWMutex("readers").RLocker(), c.Semaphore("slots", 3),
							testkit.Multi(t, c.Mutex(fmt.Sprint("own-", i)), c.Semaphore("slots", 3)),
						}[rng.IntN(5)]
						call := l.Lock
						if rng.IntN(2) == 0 {
							call = l.TryLock
						}
						ctx, cancel := context.WithTimeout(t.Context(), testkit.UpTo(rng, most))
						if lease, err := call(ctx); err == nil {
							time.Sleep(testkit.UpTo(rng, most/10))
							_ = lease.Unlock(ctx) // it may fail, or be lost
						}
						cancel()
					}
				})
			}
			synctest.Wait() // some wait unsent
			testkit.Each(servers, (*embedded.Server).Resume)
			ended := testkit.Go(func() bool { all.Wait(); return true })
			rng := rand.New(rand.NewPCG(seed, callers))
			for len(ended) == 0 {
				s := servers[rng.IntN(3)]
				switch rng.IntN(5) {
				case 0:
					s.Delay(testkit.UpTo(rng, most/4))
				case 1:
					s.Stall()
				case 2:
					s.Kill()
				case 3:
					s.Lose()
				case 4:
					s.Restart(rng.IntN(2) == 0)
				}
				time.Sleep(testkit.UpTo(rng, most))
				s.Resume()
				s.Restart(true)
			}
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(0); s.Restart(true) })
			time.Sleep(time.Minute)
			testkit.Warm(t, c) // all nodes are asked
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for node, e := range last {
				if e.InFlight != 0 || e.Unsent != 0 {
					t.Errorf("at the end, %s has %d attempts in flight, and %d wait", node, e.InFlight, e.Unsent)
				}
			}
			if len(last) != 3 || busiest == 0 {
				t.Errorf("control: %d nodes were asked, and at most %d attempts waited unsent", len(last), busiest)
			}
		})
	}
}

// late is a ctx that ends once done is closed. Whoever asks why waits for err.
type late struct {
	context.Context
	done chan struct{}
	err  func() error
}

func (l late) Done() <-chan struct{} { return l.done }

func (l late) Err() error {
	select {
	case <-l.done:
		return l.err()
	default:
		return nil
	}
}

// The time of a call ends, and before the call has left the queue, an answer makes room for it.
func TestAPlaceThatComesTooLateIsGivenBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		inFlight := make(map[string]int)
		done, room := make(chan struct{}), make(chan struct{})
		left := sync.OnceFunc(func() { close(room) })
		c, servers := testkit.Client(t, 3, quorumlock.WithObserver(testkit.Observer(func(e quorumlock.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind != quorumlock.EventNodeAsked {
				return
			}
			inFlight[e.Node] = e.InFlight
			select {
			case <-done:
				if e.Unsent == 0 {
					left()
				}
			default:
			}
		})))
		testkit.Warm(t, c)
		fillers := fill(t, c, servers)
		ctx := late{t.Context(), done, func() error { <-room; return context.DeadlineExceeded }}
		call := testkit.Go(func() error { return testkit.Err(c.Mutex("late").TryLock(ctx)) })
		synctest.Wait()
		close(done)
		synctest.Wait()
		testkit.Pending(t, call, "a call that has not left the queue")
		testkit.Each(servers, (*embedded.Server).Resume)
		testkit.Is(t, <-call, quorumlock.ErrUnsent, "TryLock")
		fillers.Wait()
		testkit.Warm(t, c) // all nodes are asked
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, s := range servers {
			testkit.Equal(t, inFlight[s.Name], 0, "attempts in flight at %s at the end", s.Name)
		}
		testkit.Nothing(t, servers)
	})
}

// A TryLock waits for its place only while a quorum of its nodes may answer.
func TestATryLockThatWaitsUnsentEndsWithoutAQuorum(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const waiting, silence = 4 * firstLimit, 500 * time.Millisecond
		c, servers := testkit.Client(t, 3, quorumlock.WithNodeTimeout(silence))
		testkit.Warm(t, c)
		var ended atomic.Int32
		try := func(i int) error {
			_, err := c.Mutex(fmt.Sprint("waiter-", i)).TryLock(t.Context())
			ended.Add(1)
			few, ok := errors.AsType[*quorumlock.QuorumError](err)
			if !ok || few.Granted != 0 || few.Needed != 2 || len(few.Nodes) < 2 || errors.Is(err, quorumlock.ErrUnsent) || errors.Is(err, quorumlock.ErrHeld) {
				return fmt.Errorf("%w, want an error that names a majority of the nodes", err)
			}
			for _, n := range few.Nodes {
				if !slices.ContainsFunc(servers, func(s *embedded.Server) bool { return s.Name == n.Node }) || n.Err == nil {
					return fmt.Errorf("a failure of %q: %w", n.Node, n.Err)
				}
			}
			return nil
		}
		fillers := fill(t, c, servers)
		waiters := begin(t, waiting, try, nil)
		time.Sleep(silence - time.Nanosecond)
		synctest.Wait()
		testkit.Equal(t, ended.Load(), 0, "calls that ended before the nodes failed")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		// Some have the places of those that have failed, and notice the failure themselves.
		if n := ended.Load(); n < waiting/2 {
			t.Errorf("%d calls of %d ended as the nodes failed", n, waiting)
		}
		fillers.Wait()
		waiters.Wait()
		fillers = fill(t, c, servers)
		began := time.Now()
		testkit.OK(t, try(0), "TryLock after the nodes have failed")
		testkit.Took(t, began, 0, 0, "TryLock after the nodes have failed")
		fillers.Wait()
		testkit.Each(servers, (*embedded.Server).Resume)
		time.Sleep(quorumlock.DefaultTTL)
		testkit.Unlock(t, testkit.TryLock(t, c.Mutex("after")))
		testkit.Nothing(t, servers)
	})
}

// Every caller without a grant returns at once. Shutdown ends when the nodes have confirmed all
// releases.
func TestShutdownEndsABurst(t *testing.T) {
	const callers, pause = 1000, 50 * time.Millisecond
	for name, tt := range map[string]struct {
		before, after func(*embedded.Server)
		granted       bool // some callers are granted before Shutdown
	}{
		"far nodes":     {func(s *embedded.Server) { s.Delay(10 * time.Millisecond) }, func(*embedded.Server) {}, true},
		"stalled nodes": {(*embedded.Server).Stall, (*embedded.Server).Resume, false},
	} {
		for what, call := range map[string]func(*redlock.Mutex, context.Context) (*quorumlock.Lease, error){
			"Lock": (*redlock.Mutex).Lock, "TryLock": (*redlock.Mutex).TryLock,
		} {
			testkit.Run(t, name+", "+what, func(t *testing.T) {
				c, servers := testkit.Client(t, 3)
				testkit.Warm(t, c)
				testkit.Each(servers, tt.before)
				var granted, failed atomic.Int32
				all := begin(t, callers, func(i int) error {
					lease, err := call(c.Mutex(fmt.Sprint("caller-", i)), t.Context())
					if err != nil {
						failed.Add(1)
						return err
					}
					granted.Add(1)
					return lease.Unlock(t.Context())
				}, nil, quorumlock.ErrClosed)
				time.Sleep(pause)
				over := testkit.Go(func() error { return c.Shutdown(testkit.Within(t, time.Minute)) })
				synctest.Wait()
				if n := granted.Load(); (n > 0) != tt.granted || n+failed.Load() != callers {
					t.Errorf("at once, %d callers have a grant, and %d an error", n, failed.Load())
				}
				testkit.Each(servers, tt.after)
				began := time.Now()
				testkit.OK(t, <-over, "Shutdown")
				testkit.Took(t, began, 0, time.Second, "Shutdown, once the nodes answered")
				all.Wait()
				testkit.Nothing(t, servers)
			})
		}
	}
}
