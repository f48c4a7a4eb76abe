package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// observed is an Observer that checks the promises of Observer and Event, and counts.
type observed struct {
	t     *testing.T
	mu    sync.Mutex
	kinds map[quorumlock.EventKind]int
	open  map[int]bool             // calls that have begun and not ended
	holds map[quorumlock.Owner]int // the ends of holds, less one
	calls int
}

func newObserved(t *testing.T) *observed {
	return &observed{t: t, kinds: make(map[quorumlock.EventKind]int), open: make(map[int]bool), holds: make(map[quorumlock.Owner]int)}
}

// ended checks that each hold has ended once.
func (o *observed) ended() {
	for owner, n := range o.holds {
		if n != 0 {
			o.t.Errorf("the hold of %s has ended %d times", owner, n+1)
		}
	}
}

type callKey struct{}

func (o *observed) Begin(ctx context.Context, lock string) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	if lock == "" {
		o.t.Error("Begin without a name")
	}
	o.calls++
	o.open[o.calls] = true
	return context.WithValue(ctx, callKey{}, o.calls)
}

func (o *observed) Observe(ctx context.Context, e quorumlock.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kinds[e.Kind]++
	call, _ := ctx.Value(callKey{}).(int)
	if e.Kind == quorumlock.EventReleased {
		call, _ = e.Lease.Context().Value(callKey{}).(int)
	}
	if node := e.Kind >= quorumlock.EventNodeAsked; node != (call == 0) || node != (e.Node != "") || node != (e.Lock == "") {
		o.t.Errorf("an event %d of call %d, node %q, lock %q", e.Kind, call, e.Node, e.Lock)
	}
	switch e.Kind {
	case quorumlock.EventAcquired, quorumlock.EventRefused:
		if !o.open[call] {
			o.t.Errorf("call %d ends twice, or has not begun", call)
		}
		delete(o.open, call)
		if (e.Err == nil) != (e.Kind == quorumlock.EventAcquired) || (e.Lease != nil) != (e.Kind == quorumlock.EventAcquired) {
			o.t.Errorf("%d with the error %v and the lease %v", e.Kind, e.Err, e.Lease)
		}
		if e.Kind == quorumlock.EventAcquired && e.Attempts > 0 {
			o.holds[e.Lease.Owner()]--
		}
		if e.Waited > e.Took || len(e.Steps) > 64 || len(e.Steps) < min(e.Attempts, 64) {
			o.t.Errorf("waited %v of %v, %d attempts, %d steps", e.Waited, e.Took, e.Attempts, len(e.Steps))
		}
	case quorumlock.EventLost, quorumlock.EventReleased:
		loss, lost := e.Err.(*quorumlock.LostError) //nolint:errorlint // it is one, and wraps none
		switch {
		case e.Kind == quorumlock.EventLost && lost && e.Reason != "" && e.Ended:
			o.holds[loss.Owner]++
		case e.Kind == quorumlock.EventLost:
			o.t.Errorf("lost for %q, %v", e.Reason, e.Err)
		case e.Ended:
			o.holds[e.Lease.Owner()]++
		}
	}
}

// Every call that begins ends once, and so does every hold, after any fault of the nodes.
func TestObserverSeesEachCallAndEachHoldEndOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o := newObserved(t)
		_, servers := testkit.Client(t, 3)
		var workers, troubles sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for i := range 6 {
			c, _ := testkit.Another(t, servers, quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(50*time.Millisecond), quorumlock.WithObserver(o))
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			workers.Go(func() {
				for range testkit.Thorough(60, 30) {
					m := c.Mutex(fmt.Sprint("x", rng.IntN(2)))
					waiting, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Millisecond)
					lock := m.Lock
					if rng.IntN(3) == 0 {
						lock = m.TryLock
					}
					lease, err := lock(waiting)
					if err != nil {
						cancel()
						continue
					}
					if inner, err := m.Lock(lease.Context()); err == nil && rng.IntN(2) == 0 {
						defer inner.Unlock(t.Context()) //nolint:errcheck // it may be lost
					} else if err == nil {
						_ = inner.Unlock(t.Context()) // as above
					}
					time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
					_ = lease.Unlock(t.Context()) // as above
					cancel()
				}
			})
		}
		rng := rand.New(rand.NewPCG(1, 100))
		troubles.Go(func() {
			for ctx.Err() == nil {
				some := servers[rng.IntN(3):]
				testkit.Kill(some...)
				time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
				testkit.Each(some, func(s *embedded.Server) { s.Restart(rng.IntN(2) == 0) })
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			}
		})
		workers.Wait()
		stop()
		troubles.Wait()
		synctest.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.open) > 0 {
			t.Errorf("%d calls have not ended", len(o.open))
		}
		o.ended()
		for kind := quorumlock.EventAcquired; kind <= quorumlock.EventNodeUp; kind++ {
			if o.kinds[kind] == 0 {
				t.Errorf("there is no event %d: this test shows nothing", kind)
			}
		}
	})
}

// Calls of one owner that wait together enter one hold: only one begins it, though all have asked
// the nodes.
func TestObserverSeesOneHoldOfCallsThatEnterTogether(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o := newObserved(t)
		other, servers := testkit.Client(t, 3)
		c, _ := testkit.Another(t, servers, quorumlock.WithObserver(o))
		before := testkit.Lock(t, other.Mutex("x"))
		m := c.Mutex("x", quorumlock.WithOwner(quorumlock.NewOwner()))
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				lease := testkit.MustLock(t, m)
				time.Sleep(time.Second)
				testkit.MustUnlock(t, lease)
			})
		}
		time.Sleep(time.Second)
		testkit.MustUnlock(t, before)
		calls.Wait()
		synctest.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.kinds[quorumlock.EventAcquired] != 3 || len(o.holds) != 1 {
			t.Errorf("%d leases of %d holds, want 3 of one", o.kinds[quorumlock.EventAcquired], len(o.holds))
		}
		o.ended()
	})
}

// If the Observer panics, the caller gets no lease. So the lease must not be renewed for ever.
func TestALeaseWhoseObserverPanicsIsUnlocked(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		other, servers := testkit.Client(t, 3)
		c, _ := testkit.Another(t, servers, quorumlock.WithObserver(testkit.Observer(func(e quorumlock.Event) {
			if e.Kind == quorumlock.EventAcquired {
				panic("a fault of the observer's own")
			}
		})))
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic does not reach the caller")
				}
			}()
			_, _ = c.Mutex("x").Lock(t.Context()) // it panics
		}()
		testkit.Unlock(t, testkit.TryLock(t, other.Mutex("x")))
	})
}

// A lock with an Observer and a logger of its own takes nothing from those of the client.
func TestTheClientsObserverLearnsOfItsNodes(t *testing.T) {
	const all, none = "asked true, down 1, up 1", "asked false, down 0, up 0"
	for name, tt := range map[string]struct {
		client                   bool // it has an Observer and a logger, too
		wantOfClient, wantOfLock string
	}{"both": {true, all, none}, "only the lock": {false, none, all}} {
		testkit.Run(t, name, func(t *testing.T) {
			_, servers := testkit.Client(t, 3)
			var clients, own testkit.Events
			log, ofClient := testkit.Logger()
			silent, ofLock := testkit.Logger()
			var opts []quorumlock.Option
			if tt.client {
				opts = append(opts, quorumlock.WithObserver(&clients), ofClient)
			} else {
				log, silent = silent, log
			}
			c, _ := testkit.Another(t, servers, opts...)
			m := c.Mutex("x", quorumlock.WithObserver(&own), ofLock)
			use := func() {
				t.Helper()
				lease := testkit.MustLock(t, m)
				testkit.MustUnlock(t, lease)
				time.Sleep(5 * time.Second) // until no release is pending
			}
			use()
			servers[0].Kill()
			use()
			servers[0].Restart(true)
			time.Sleep(5 * time.Second)
			use()
			nodes := func(o *testkit.Events) string {
				return fmt.Sprintf("asked %v, down %d, up %d", o.Of(quorumlock.EventNodeAsked) > 0, o.Of(quorumlock.EventNodeDown), o.Of(quorumlock.EventNodeUp))
			}
			if nodes(&clients) != tt.wantOfClient || nodes(&own) != tt.wantOfLock {
				t.Errorf("the client's Observer: %s; the lock's: %s", nodes(&clients), nodes(&own))
			}
			if clients.OfLocks() > 0 || own.OfLocks() == 0 {
				t.Errorf("events of the lock: %d go to the client's Observer, %d to its own", clients.OfLocks(), own.OfLocks())
			}
			if len(log.Lines("node down")) == 0 || len(log.Lines("node up")) == 0 || len(silent.Lines("node")) > 0 {
				t.Errorf("logged: %q, and beside it: %q", log.Lines(), silent.Lines())
			}
		})
	}
}

// stuck is a log handler that returns only when it is closed. It has no mutex: time stands still in
// a bubble while a goroutine waits for one.
type stuck chan struct{}

func (stuck) Enabled(context.Context, slog.Level) bool { return true }

func (s stuck) Handle(context.Context, slog.Record) error {
	<-s
	return nil
}

func (s stuck) WithAttrs([]slog.Attr) slog.Handler { return s }
func (s stuck) WithGroup(string) slog.Handler      { return s }

// The answer of a node shows that the keys are gone. Its reader reports the loss, and logs it.
func TestALogThatIsStuckDelaysNeitherALossNorANode(t *testing.T) {
	for name, lose := range map[string]func(s *embedded.Server){
		"keys gone":  func(s *embedded.Server) { s.Redis.Del("x") },
		"nodes down": (*embedded.Server).Kill,
	} {
		testkit.Run(t, name, func(t *testing.T) {
			log := make(stuck)
			c, servers := testkit.Client(t, 3, quorumlock.WithLogger(slog.New(log)))
			goOn := sync.OnceFunc(func() { close(log) })
			t.Cleanup(goOn)
			lost := testkit.Lock(t, c.Mutex("x"))
			time.Sleep(time.Second) // so that the two are not renewed together
			kept := testkit.Lock(t, c.Mutex("y"))
			time.Sleep(time.Minute)
			testkit.Each(servers[:2], lose)
			testkit.Lost(t, lost, time.Until(lost.ValidUntil())+time.Nanosecond)
			if name == "keys gone" {
				before := make([]int, len(servers))
				for i, s := range servers {
					before[i] = s.Ran("renew")
				}
				testkit.OK(t, kept.Extend(t.Context()), "Extend of another lease")
				synctest.Wait()
				for i, s := range servers { // the worker of one has reported the loss
					if s.Ran("renew") == before[i] {
						t.Errorf("%s was sent no renewal of another lease: the log holds it up", s.Name)
					}
				}
			}
			testkit.Restart(servers[:2]...)
			began := time.Now()
			testkit.Unlock(t, testkit.Lock(t, c.Mutex("z")))
			testkit.Took(t, began, 0, 0, "another lock")
			goOn()
			_ = lost.Unlock(t.Context())
			_ = kept.Unlock(t.Context())
			testkit.Nothing(t, servers)
		})
	}
}

func TestALogThatIsStuckHoldsUpNobodyWhoEntersAHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log := make(stuck)
		c, servers := testkit.Client(t, 3, quorumlock.WithLogger(slog.New(log)), quorumlock.WithoutRenewal())
		goOn := sync.OnceFunc(func() { close(log) })
		t.Cleanup(goOn)
		outer := testkit.Lock(t, c.Mutex("x"))
		time.Sleep(quorumlock.DefaultTTL * 2 / 3)
		// The lease cannot be extended, which is logged.
		testkit.Kill(servers[:2]...)
		entered := testkit.Go(func() *quorumlock.Lease { return testkit.LockIn(t, outer.Context(), c.Mutex("x")) })
		select {
		case inner := <-entered:
			_ = inner.Unlock(t.Context())
		case <-time.After(quorumlock.DefaultTTL / 10):
			t.Error("the caller waits for the log")
			goOn()
			_ = (<-entered).Unlock(t.Context())
		}
		goOn()
		_ = outer.Unlock(t.Context())
	})
}

func TestEveryEventIsLoggedOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log, option := testkit.Logger()
		c, servers := testkit.Client(t, 5, option)
		const n = 100
		for i := range n {
			testkit.Lock(t, c.Mutex(fmt.Sprintf("x%d", i)))
		}
		time.Sleep(time.Minute)
		if lines := log.Lines(); len(lines) > 0 {
			t.Errorf("%d lines while all is well: %s", len(lines), lines[0])
		}
		testkit.Kill(servers[:3]...)
		time.Sleep(2 * quorumlock.DefaultTTL)
		for what, want := range map[string]int{"node down": 3, "renewal late": n, "lease lost": n, "node up": 0, "": 2*n + 3} {
			testkit.Equal(t, len(log.Lines(what)), want, "lines with %q", what)
		}
		for _, s := range servers[:3] {
			if len(log.Lines("node down", "node="+s.Name, "error=")) != 1 {
				t.Errorf("no line says that %s is down, and why: %q", s.Name, log.Lines("node down"))
			}
			if len(log.Lines("lease lost", "lock=x7 ", "not renewed in time", s.Name)) != 1 {
				t.Errorf("the loss of x7 does not name %s", s.Name)
			}
		}
		all := log.Lines("lock=x7 ")
		if len(all) != 2 || !strings.Contains(all[1], "lease lost") {
			t.Errorf("the lines of x7 are %q, want none after its loss", all)
		}
		testkit.Restart(servers[:3]...)
		testkit.Unlock(t, testkit.Lock(t, c.Mutex("y")))
		time.Sleep(time.Second)
		testkit.Equal(t, len(log.Lines("node up")), 3, "lines say that a node is up")
	})
}

// A server that is out of memory refuses every acquire, and does every release.
func TestANodeThatIsOutOfMemoryIsLoggedDownOnceAndUpWhenItServes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log, option := testkit.Logger()
		c, servers := testkit.Client(t, 3, option)
		full := servers[1]
		full.Before(func(r embedded.Run) {
			full.Redis.SetError("")
			if r.Script == "acquire" {
				full.Redis.SetError("OOM command not allowed when used memory > 'maxmemory'.")
			}
		})
		for range 100 {
			testkit.Unlock(t, testkit.Lock(t, c.Mutex("x")))
			time.Sleep(10 * time.Millisecond)
		}
		if lines := log.Lines(); len(lines) != 1 || len(log.Lines("node down", "OOM")) != 1 {
			t.Errorf("%d lines of 100 locks, want one that says that the node is down: %q", len(lines), lines)
		}
		full.Before(nil)
		full.Redis.SetError("")
		time.Sleep(time.Second)
		testkit.Unlock(t, testkit.Lock(t, c.Mutex("x")))
		if lines := log.Lines(); len(lines) != 2 || len(log.Lines("node up")) != 1 {
			t.Errorf("logged %q, want that the node is up again", lines)
		}
	})
}

func TestALockThatWaitsForAQuorumSaysSoOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log, option := testkit.Logger()
		c, servers := testkit.Client(t, 3, option)
		testkit.Kill(servers[:2]...)
		ctx := testkit.Within(t, time.Minute)
		if _, err := c.Mutex("x").Lock(ctx); err == nil {
			t.Fatal("granted without a quorum")
		}
		if lines := log.Lines(); len(lines) != 3 || len(log.Lines("no quorum")) != 1 || len(log.Lines("node down")) != 2 {
			t.Errorf("logged %q, want two nodes down and one call without a quorum", lines)
		}
	})
}

func TestANumberOfNodesThatWastesOneIsLoggedOnce(t *testing.T) {
	for nodes, want := range []int{1: 1, 2: 1, 3: 0, 4: 1, 5: 0} {
		if nodes == 0 {
			continue
		}
		testkit.Run(t, fmt.Sprint(nodes), func(t *testing.T) {
			log, option := testkit.Logger()
			c, _ := testkit.Client(t, nodes, option)
			_ = c.Mutex("x", quorumlock.WithoutRenewal())
			if lines := log.Lines("node"); len(lines) != want || len(log.Lines()) != want {
				t.Errorf("with %d nodes %q is logged, want %d lines", nodes, log.Lines(), want)
			}
		})
	}
}
