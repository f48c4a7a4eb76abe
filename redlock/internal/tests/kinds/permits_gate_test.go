package kinds

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// No caller has the permits of a collecting call yet: Close releases them, with the gate.
func TestCloseReleasesWhatIsCollected(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		other := testkit.Lock(t, c.Semaphore("x", 3))
		failed := testkit.Go(func() error { return testkit.Err(d.Semaphore("x", 3).LockN(t.Context(), 3)) })
		time.Sleep(time.Minute)
		testkit.OK(t, d.Close(), "Close")
		testkit.Is(t, <-failed, quorumlock.ErrClosed, "LockN")
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		lease := testkit.Lock(t, several{c.Semaphore("x", 3), 2})
		testkit.Took(t, began, 0, 10*time.Millisecond, "the permits of the next")
		testkit.UnlockAll(t, other, lease)
	})
}

// The wait for the gate is part of each call: the events include it, and a call that fails there has
// an event. The log does not call it a deadlock, and the owner of the gate has no permit.
func TestAnObserverLearnsOfTheWaitForTheGate(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		const wait = 15 * time.Second
		log, logs := testkit.Logger()
		d, _ := testkit.Another(t, servers, logs)
		var mu sync.Mutex // the permits of a call are locked at the same time
		var seen []quorumlock.Event
		observer := testkit.Observer(func(e quorumlock.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind <= quorumlock.EventRefused {
				seen = append(seen, e)
			}
		})
		s := d.Semaphore("x", 3, quorumlock.WithObserver(observer), quorumlock.WithWait(wait))
		other := testkit.Lock(t, c.Semaphore("x", 3))
		collects := testkit.Call(t, t.Context(), several{d.Semaphore("x", 3), 3}.Lock)
		testkit.Is(t, testkit.Err(s.LockN(t.Context(), 2)), quorumlock.ErrHeld, "LockN")
		if len(seen) != 1 || seen[0].Kind != quorumlock.EventRefused || seen[0].Took != wait || seen[0].Waited < wait-time.Second || seen[0].Try || !errors.Is(seen[0].Err, quorumlock.ErrHeld) {
			t.Errorf("the events of a call that failed: %+v", seen)
		}
		seen = nil
		waiting := testkit.Call(t, t.Context(), several{s, 2}.Lock)
		time.Sleep(wait / 2)
		testkit.Unlock(t, other)
		testkit.Unlock(t, <-collects)
		lease := <-waiting
		testkit.Equal(t, len(seen), 2, "events of two permits")
		for _, e := range seen {
			if e.Kind != quorumlock.EventAcquired || e.Took < wait/2 || e.Waited < wait/2-time.Second || e.Waited > e.Took {
				t.Errorf("the event of a permit: %+v", e)
			}
		}
		testkit.Unlock(t, lease)
		for _, s := range servers {
			s.Redis.Del("x:quorumlock_lockn")
		}
		for _, line := range log.Lines("") {
			t.Errorf("logged: %s", line)
		}
	})
}

// A panic of an Observer reaches the caller of LockN or TryLockN, which then has no permit.
func TestAnObserverThatPanicsLeavesNoPermits(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		held := testkit.Lock(t, several{c.Semaphore("held", 4), 4})
		for name, of := range map[string]func(s *redlock.Semaphore) error{
			"x":     func(s *redlock.Semaphore) error { return testkit.Err(s.LockN(t.Context(), 3)) },
			"tried": func(s *redlock.Semaphore) error { return testkit.Err(s.TryLockN(t.Context(), 3)) },
			"held":  func(s *redlock.Semaphore) error { return testkit.Err(s.LockN(held.Context(), 3)) },
		} {
			var calls atomic.Int64
			observer := testkit.Observer(func(e quorumlock.Event) {
				if e.Kind != quorumlock.EventAcquired {
					return
				}
				if calls.Add(1) == 2 {
					panic("mine")
				}
			})
			func() {
				defer func() { testkit.Equal(t, recover(), any("mine"), "the panic of %s", name) }()
				t.Errorf("%s: %v", name, of(c.Semaphore(name, 4, quorumlock.WithObserver(observer))))
			}()
			if name == "held" {
				testkit.Equal(t, held.HoldCount(), 1, "the hold count after a panic")
				testkit.Unlock(t, held)
			}
			time.Sleep(10 * time.Millisecond)
			testkit.Unlock(t, testkit.TryLock(t, several{c.Semaphore(name, 4), 4}))
		}
	})
}

// A collector that loses its gate releases its permits. After the new owner of the gate, it is the
// first to get it.
func TestACollectorThatLosesItsGateKeepsItsPlace(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other := testkit.Lock(t, c.Semaphore("x", 3))
		var waiting []<-chan *quorumlock.Lease
		for range 3 {
			d, _ := testkit.Another(t, servers)
			waiting = append(waiting, testkit.Call(t, t.Context(), several{d.Semaphore("x", 3), 3}.Lock))
		}
		time.Sleep(time.Second)
		for _, s := range servers {
			s.Redis.Del("x:quorumlock_lockn")
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		testkit.Unlock(t, other)
		var order []int
		for range waiting {
			time.Sleep(time.Second)
			i := slices.IndexFunc(waiting, func(w <-chan *quorumlock.Lease) bool { return len(w) > 0 })
			if i < 0 {
				t.Fatal("nobody has permits")
			}
			order = append(order, i)
			testkit.Unlock(t, <-waiting[i])
		}
		if want := []int{1, 0, 2}; !slices.Equal(order, want) {
			t.Errorf("the order is %v, want %v", order, want)
		}
	})
}

// The end of a ctx ends a collecting call at once, also while no node answers.
func TestACollectorGivesUpInTime(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, paths := testkit.Another(t, servers)
		other := testkit.Lock(t, c.Semaphore("x", 3))
		for name, lock := range map[string]func(several) error{
			"LockN":    func(s several) error { return testkit.Err(s.Lock(testkit.Within(t, 5*time.Second))) },
			"TryLockN": func(s several) error { return testkit.Err(s.TryLock(testkit.Within(t, 5*time.Second))) },
		} {
			began := time.Now()
			if name == "TryLockN" {
				testkit.Each(paths, func(s *embedded.Server) { s.Delay(1500 * time.Millisecond) })
			} else {
				time.AfterFunc(4900*time.Millisecond, func() { testkit.Each(paths, (*embedded.Server).Stall) })
			}
			if err := lock(several{d.Semaphore("x", 3), 3}); err == nil {
				t.Error("granted")
			}
			testkit.Took(t, began, 0, 5*time.Second+10*time.Millisecond, "%s", name)
			testkit.Each(paths, (*embedded.Server).Resume)
			testkit.Each(paths, func(s *embedded.Server) { s.Delay(0) })
			time.Sleep(2 * quorumlock.DefaultTTL)
			testkit.Unlock(t, testkit.TryLock(t, several{c.Semaphore("x", 3), 2}))
		}
		testkit.Unlock(t, other)
	})
}
