package hold

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// Somebody has the lock, whatever a node that is silent would say: that is a refusal, and no outage.
func TestARefusalBesideASilentNodeIsOnlyThat(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		other, _ := locktest.Another(t, servers)
		servers[2].Lose()
		locktest.MustUnlock(t, locktest.MustLock(t, other.Mutex("y")))
		time.Sleep(time.Second) // other knows that the node is silent
		lease := locktest.MustLock(t, c.Mutex("x"))
		_, err := other.Mutex("x").TryLock(t.Context())
		if _, few := errors.AsType[*quorumlock.QuorumError](err); few || !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("TryLock: %v, want ErrHeld and no *QuorumError", err)
		}
		ran, err := quorumlock.Once(t.Context(), other.Mutex("x"), time.Second, func(context.Context) error { return nil })
		if ran || err != nil {
			t.Errorf("Once: %v, %v, want false and no error", ran, err)
		}
		locktest.MustUnlock(t, lease)
	})
}

// Five processes start a job every minute, on clocks that differ by up to 30 ms. It takes a millisecond.
func TestOnceRunsAJobOnceATick(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 5, 5)
		rng := rand.New(rand.NewPCG(1, 2))
		for tick := range 50 {
			var wg sync.WaitGroup
			var mu sync.Mutex
			runs, reported := 0, 0
			for _, c := range clients {
				late := time.Duration(rng.Int64N(int64(30 * time.Millisecond)))
				wg.Go(func() {
					time.Sleep(late)
					ran, err := quorumlock.Once(t.Context(), c.Mutex("job"), time.Second, func(context.Context) error {
						mu.Lock()
						runs++
						mu.Unlock()
						time.Sleep(time.Millisecond)
						return nil
					})
					if err != nil {
						t.Errorf("tick %d: %v", tick, err)
					}
					mu.Lock()
					defer mu.Unlock()
					if ran {
						reported++
					}
				})
			}
			wg.Wait()
			if runs != 1 || reported != 1 {
				t.Errorf("tick %d: %d runs, and %d processes say that theirs did, want one", tick, runs, reported)
			}
			time.Sleep(time.Minute)
		}
		locktest.Nothing(t, servers)
	})
}

func TestOnceKeepsTheLockAtLeastAndNoLonger(t *testing.T) {
	failure := errors.New("the job failed")
	for _, tt := range []struct {
		name  string
		takes time.Duration
		free  time.Duration // after the grant
		err   error
	}{
		{"a short job", time.Millisecond, time.Minute, nil},
		{"a job that fails", time.Millisecond, time.Minute, failure},
		{"a job longer than a TTL", 25 * time.Second, time.Minute, nil},
		{"a job longer than that", 2 * time.Minute, 2 * time.Minute, nil},
	} {
		locktest.Run(t, tt.name, func(t *testing.T) {
			clients, servers := locktest.Fleet(t, 2, 3)
			start := time.Now()
			ran, err := quorumlock.Once(t.Context(), clients[0].Mutex("job"), time.Minute, func(ctx context.Context) error {
				time.Sleep(tt.takes)
				if ctx.Err() != nil {
					t.Error("the lease was lost")
				}
				return tt.err
			})
			if !ran || !errors.Is(err, tt.err) {
				t.Errorf("ran %v, %v, want true, %v", ran, err, tt.err)
			}
			for time.Since(start) < tt.free-time.Second {
				locktest.Refused(t, clients[1].Mutex("job"))
				time.Sleep(900 * time.Millisecond)
			}
			time.Sleep(time.Until(start.Add(tt.free + 10*time.Millisecond)))
			locktest.Unlock(t, locktest.TryLock(t, clients[1].Mutex("job")))
			locktest.Nothing(t, servers)
		})
	}
}

// A job may enter a hold that its caller has. The lock is kept for as long as the job wants, whenever the caller leaves.
func TestOnceWithinAHoldKeepsTheLockAtLeast(t *testing.T) {
	for _, tt := range []struct {
		name  string
		outer time.Duration // how much longer the caller holds
		free  time.Duration // after the grant to the job
	}{
		{"the caller leaves at once", 0, time.Minute},
		{"the caller leaves later", 40 * time.Second, time.Minute},
		{"the caller leaves after that", 2 * time.Minute, 2 * time.Minute},
	} {
		locktest.Run(t, tt.name, func(t *testing.T) {
			clients, servers := locktest.Fleet(t, 2, 3)
			outer := locktest.Lock(t, clients[0].Mutex("job"))
			start := time.Now()
			for _, atLeast := range []time.Duration{time.Minute, time.Second} {
				ran, err := quorumlock.Once(outer.Context(), clients[0].Mutex("job"), atLeast, func(context.Context) error { return nil })
				if !ran || err != nil {
					t.Errorf("ran %v, %v", ran, err)
				}
			}
			time.Sleep(tt.outer)
			locktest.Held(t, outer)
			locktest.Unlock(t, outer)
			time.Sleep(time.Until(start.Add(tt.free - 10*time.Millisecond)))
			if tt.outer < tt.free {
				locktest.Refused(t, clients[1].Mutex("job"))
			}
			time.Sleep(20 * time.Millisecond)
			locktest.Unlock(t, locktest.TryLock(t, clients[1].Mutex("job")))
			locktest.Nothing(t, servers)
		})
	}
}

func TestOnceThatPanicsKeepsTheLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		func() {
			defer func() { _ = recover() }()
			_, _ = quorumlock.Once(t.Context(), clients[0].Mutex("job"), time.Minute, func(context.Context) error { panic("job") })
			t.Error("the panic was swallowed")
		}()
		locktest.Refused(t, clients[1].Mutex("job"))
		time.Sleep(time.Minute + 10*time.Millisecond)
		locktest.Nothing(t, servers)
	})
}

// What a crash leaves ends with the TTL, and not with atLeast.
func TestOnceSaysWhatItCannotKeep(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		ran, err := quorumlock.Once(t.Context(), c.Mutex("job"), time.Minute, func(context.Context) error {
			locktest.Each(servers[:2], (*embedded.Server).Kill)
			return nil
		})
		if _, few := errors.AsType[*quorumlock.QuorumError](err); !ran || !few {
			t.Errorf("ran %v, %v, want true and a QuorumError", ran, err)
		}
		locktest.Each(servers[:2], func(s *embedded.Server) { s.Restart(true) })
		time.Sleep(quorumlock.DefaultTTL)
		if n := locktest.Holds(servers[:2], "job", "") + len(locktest.Keys(servers[0])); n != 0 {
			t.Errorf("%d keys outlive their TTL", n)
		}
		ran, err = quorumlock.Once(t.Context(), c.Mutex("job"), 0, func(ctx context.Context) error {
			locktest.Each(servers, func(s *embedded.Server) { s.Restart(false) })
			<-ctx.Done()
			return nil
		})
		if !ran || !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("ran %v, %v, want true and ErrLost", ran, err)
		}
	})
}

// A node that is restarting takes connections late. What Once has reported as failed does not reach it then.
func TestOnceThatHasFailedKeepsNothingLater(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		locktest.Warm(t, c)
		servers[2].Delay(10 * time.Millisecond) // it has not granted yet when the job is over: so it is not asked to keep the lock
		ran, err := quorumlock.Once(t.Context(), c.Mutex("job"), time.Minute, func(context.Context) error {
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
		if left := locktest.Keys(servers[0]); len(left) > 0 {
			t.Errorf("%q outlive their TTL", left)
		}
	})
}

// The callers of one process are told apart as those of several are, although the one that has the lock is of the same
// client, and so is the one whose time is over and for which the nodes keep it.
func TestOnceCalledTwiceInOneProcessRunsOnce(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		locktest.Run(t, delay.String(), func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			locktest.Warm(t, c)
			locktest.Each(servers[:2], func(s *embedded.Server) { s.Delay(delay) })
			runs := make(chan bool, 100)
			once := func() bool {
				ran, err := quorumlock.Once(t.Context(), c.Mutex("job"), time.Minute, func(context.Context) error {
					runs <- true
					time.Sleep(time.Millisecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
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
			if len(runs) != 1 {
				t.Errorf("%d runs within atLeast, want one", len(runs))
			}
			time.Sleep(2 * time.Second)
			if !once() {
				t.Error("it did not run after atLeast")
			}
			time.Sleep(time.Minute)
			locktest.Each(servers[:2], func(s *embedded.Server) { s.Delay(0) })
			locktest.Nothing(t, servers)
		})
	}
}
