package redlock_test

import (
	"bytes"
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
	"github.com/quorumlock/quorumlock/internal/locktest"
)

// observed is an Observer that checks the promises of Observer and Event, and counts.
type observed struct {
	t     *testing.T
	mu    sync.Mutex
	kinds map[quorumlock.EventKind]int
	open  map[int]bool             // calls that have begun and not ended
	holds map[quorumlock.Owner]int // the ends of holds, less one
	calls int
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
	if e.Kind == quorumlock.Released {
		call, _ = e.Lease.Context().Value(callKey{}).(int)
	}
	if node := e.Kind >= quorumlock.NodeAsked; node != (call == 0) || node != (e.Node != "") || node != (e.Lock == "") {
		o.t.Errorf("an event %d of call %d, node %q, lock %q", e.Kind, call, e.Node, e.Lock)
	}
	switch e.Kind {
	case quorumlock.Acquired, quorumlock.Refused:
		if !o.open[call] {
			o.t.Errorf("call %d ends twice, or has not begun", call)
		}
		delete(o.open, call)
		if (e.Err == nil) != (e.Kind == quorumlock.Acquired) || (e.Lease != nil) != (e.Kind == quorumlock.Acquired) {
			o.t.Errorf("%d with the error %v and the lease %v", e.Kind, e.Err, e.Lease)
		}
		if e.Kind == quorumlock.Acquired && e.Attempts > 0 {
			o.holds[e.Lease.Owner()]--
		}
		if e.Waited > e.Took || len(e.Steps) > 64 || len(e.Steps) < min(e.Attempts, 64) {
			o.t.Errorf("waited %v of %v, %d attempts, %d steps", e.Waited, e.Took, e.Attempts, len(e.Steps))
		}
	case quorumlock.Lost, quorumlock.Released:
		loss, lost := e.Err.(*quorumlock.LostError) //nolint:errorlint // it is one, and wraps none
		switch {
		case e.Kind == quorumlock.Lost && lost && e.Reason != "" && e.Ended:
			o.holds[loss.Owner]++
		case e.Kind == quorumlock.Lost:
			o.t.Errorf("lost for %q, %v", e.Reason, e.Err)
		case e.Ended:
			o.holds[e.Lease.Owner()]++
		}
	}
}

// Every call that begins ends once, and so does every hold, after any fault of the nodes.
func TestObserverSeesEachCallAndEachHoldEndOnce(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		o := &observed{t: t, kinds: make(map[quorumlock.EventKind]int), open: make(map[int]bool), holds: make(map[quorumlock.Owner]int)}
		_, servers := locktest.Client(t, 3)
		var workers, troubles sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for i := range 6 {
			c, _ := locktest.Another(t, servers, quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(50*time.Millisecond), quorumlock.WithObserver(o))
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			workers.Go(func() {
				for range locktest.Thorough(60, 30) {
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
				for _, s := range some {
					s.Kill()
				}
				time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
				for _, s := range some {
					s.Restart(rng.IntN(2) == 0)
				}
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
		for owner, n := range o.holds {
			if n != 0 {
				t.Errorf("the hold of %s has ended %d times", owner, n+1)
			}
		}
		for kind := quorumlock.Acquired; kind <= quorumlock.NodeUp; kind++ {
			if o.kinds[kind] == 0 {
				t.Errorf("there is no event %d: this test shows nothing", kind)
			}
		}
	})
}

// Calls of one owner that wait together enter one hold: only one begins it, though all have asked
// the nodes.
func TestObserverSeesOneHoldOfCallsThatEnterTogether(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		o := &observed{t: t, kinds: make(map[quorumlock.EventKind]int), open: make(map[int]bool), holds: make(map[quorumlock.Owner]int)}
		other, servers := locktest.Client(t, 3)
		c, _ := locktest.Another(t, servers, quorumlock.WithObserver(o))
		before := locktest.Lock(t, other.Mutex("x"))
		m := c.Mutex("x", quorumlock.WithOwner(quorumlock.NewOwner()))
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				lease, err := m.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				locktest.MustUnlock(t, lease)
			})
		}
		time.Sleep(time.Second)
		locktest.MustUnlock(t, before)
		calls.Wait()
		synctest.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.kinds[quorumlock.Acquired] != 3 || len(o.holds) != 1 {
			t.Errorf("%d leases of %d holds, want 3 of one", o.kinds[quorumlock.Acquired], len(o.holds))
		}
		for owner, n := range o.holds {
			if n != 0 {
				t.Errorf("the hold of %s has ended %d times more than it has begun", owner, n)
			}
		}
	})
}

// If the Observer panics, the caller gets no lease. So the lease must not be renewed for ever.
func TestALeaseWhoseObserverPanicsIsUnlocked(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		other, servers := locktest.Client(t, 3)
		c, _ := locktest.Another(t, servers, quorumlock.WithObserver(locktest.Observer(func(e quorumlock.Event) {
			if e.Kind == quorumlock.Acquired {
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
		lease, err := other.Mutex("x").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		locktest.MustUnlock(t, lease)
	})
}

// A lock with an Observer and a logger of its own takes nothing from those of the client.
func TestTheClientsObserverLearnsOfItsNodes(t *testing.T) {
	const all, none = "asked true, down 1, up 1", "asked false, down 0, up 0"
	for name, tt := range map[string]struct {
		client                   bool // it has an Observer and a logger, too
		wantOfClient, wantOfLock string
	}{"both": {true, all, none}, "only the lock": {false, none, all}} {
		locktest.Run(t, name, func(t *testing.T) {
			_, servers := locktest.Client(t, 3)
			var clients, own locktest.Events
			var clientsLog, ownLog bytes.Buffer
			var opts []quorumlock.Option
			if tt.client {
				opts = append(opts, quorumlock.WithObserver(&clients), quorumlock.WithLogger(slog.New(slog.NewTextHandler(&clientsLog, nil))))
			}
			c, _ := locktest.Another(t, servers, opts...)
			m := c.Mutex("x", quorumlock.WithObserver(&own), quorumlock.WithLogger(slog.New(slog.NewTextHandler(&ownLog, nil))))
			use := func() {
				t.Helper()
				lease := locktest.MustLock(t, m)
				locktest.MustUnlock(t, lease)
				time.Sleep(5 * time.Second) // until no release is pending
			}
			use()
			servers[0].Kill()
			use()
			servers[0].Restart(true)
			time.Sleep(5 * time.Second)
			use()
			nodes := func(o *locktest.Events) string {
				return fmt.Sprintf("asked %v, down %d, up %d", o.Of(quorumlock.NodeAsked) > 0, o.Of(quorumlock.NodeDown), o.Of(quorumlock.NodeUp))
			}
			if nodes(&clients) != tt.wantOfClient || nodes(&own) != tt.wantOfLock {
				t.Errorf("the client's Observer: %s; the lock's: %s", nodes(&clients), nodes(&own))
			}
			if clients.OfLocks() > 0 || own.OfLocks() == 0 {
				t.Errorf("events of the lock: %d go to the client's Observer, %d to its own", clients.OfLocks(), own.OfLocks())
			}
			log, silent := clientsLog.String(), ownLog.String()
			if !tt.client {
				log, silent = silent, log
			}
			if !strings.Contains(log, "node down") || !strings.Contains(log, "node up") || strings.Contains(silent, "node") {
				t.Errorf("logged by the client:\n%s\nby the lock:\n%s", clientsLog.String(), ownLog.String())
			}
		})
	}
}
