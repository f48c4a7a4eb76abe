package kinds

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/redlock"
)

// weighted has the methods of golang.org/x/sync/semaphore.Weighted over a Semaphore, for the
// scenarios of that package's tests. A semaphore there has no leases: Release names a number only.
// So weighted takes n permits of one call, or else all of several calls. Weights of 0, sizes of 0
// and a Release of more than is held have no counterpart.
type weighted struct {
	t    *testing.T
	sem  *redlock.Semaphore
	size int

	mu   sync.Mutex
	held []*quorumlock.Lease
}

func newWeighted(t *testing.T, size int) *weighted {
	c, _ := testkit.Client(t, 3)
	return &weighted{t: t, sem: c.Semaphore("x", size), size: size}
}

func (w *weighted) keep(l *quorumlock.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = append(w.held, l)
}

func (w *weighted) Acquire(ctx context.Context, n int) error {
	if n > w.size { // as there: it waits in vain, and keeps nobody out
		<-ctx.Done()
		return ctx.Err()
	}
	l, err := w.sem.LockN(ctx, n)
	switch {
	case err == nil && ctx.Err() != nil:
		testkit.MustUnlock(w.t, l)
		return ctx.Err()
	case err != nil:
		return err
	}
	w.keep(l)
	return nil
}

func (w *weighted) TryAcquire(n int) bool {
	l, err := w.sem.TryLockN(context.Background(), n)
	if err == nil {
		w.keep(l)
	} else if !errors.Is(err, quorumlock.ErrHeld) {
		w.t.Errorf("TryLockN(%d): %v", n, err)
	}
	return err == nil
}

func (w *weighted) Release(n int) {
	w.mu.Lock()
	var give []*quorumlock.Lease
	for i := 0; i < len(w.held) && n > 0; {
		if size := len(w.held[i].Slots()); size <= n {
			n -= size
			give = append(give, w.held[i])
			w.held = append(w.held[:i], w.held[i+1:]...)
		} else {
			i++
		}
	}
	w.mu.Unlock()
	if n > 0 {
		w.t.Errorf("no leases of %d permits more", n)
	}
	for _, l := range give {
		testkit.MustUnlock(w.t, l)
	}
}

// soon returns a context for an Acquire that is expected to fail.
func soon(t *testing.T) context.Context { return testkit.Within(t, 10*time.Millisecond) }

func TestWeightedAcquireAndTryAcquire(t *testing.T) {
	for name, try := range map[string]func(t *testing.T, w *weighted, n int) bool{
		"Acquire":    func(t *testing.T, w *weighted, n int) bool { return w.Acquire(soon(t), n) == nil },
		"TryAcquire": func(_ *testing.T, w *weighted, n int) bool { return w.TryAcquire(n) },
	} {
		testkit.Run(t, name, func(t *testing.T) {
			w := newWeighted(t, 2)
			for range 2 { // the second after everything was given back
				testkit.OK(t, w.Acquire(t.Context(), 1), "Acquire")
				testkit.Equal(t, try(t, w, 2), false, "both, beside one")
				testkit.Equal(t, try(t, w, 1), true, "the second")
				testkit.Equal(t, try(t, w, 1), false, "a third")
				w.Release(2)
			}
			testkit.Equal(t, try(t, w, 2), true, "both")
			w.Release(2)
		})
	}
}

func TestWeightedDoesNotBlockBehindARequestThatIsTooBig(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newWeighted(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		big := testkit.Go(func() error { return w.Acquire(ctx, 3) })
		var g errgroup.Group
		for range 6 {
			g.Go(func() error {
				if err := w.Acquire(t.Context(), 1); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
				w.Release(1)
				return nil
			})
		}
		testkit.OK(t, g.Wait(), "Acquire")
		cancel()
		testkit.Is(t, <-big, context.Canceled, "Acquire of 3 of 2")
	})
}

// Each of n callers gives its permit back for a moment, again and again. All n together are granted
// in their turn.
func TestWeightedLargeAcquireDoesNotStarve(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const n = 8
		w := newWeighted(t, n)
		var running atomic.Bool
		running.Store(true)
		var wg sync.WaitGroup
		for range n {
			testkit.OK(t, w.Acquire(t.Context(), 1), "Acquire")
			wg.Go(func() {
				for running.Load() {
					time.Sleep(time.Millisecond)
					w.Release(1)
					if err := w.Acquire(t.Context(), 1); err != nil {
						t.Error(err)
					}
				}
				w.Release(1)
			})
		}
		began := time.Now()
		testkit.OK(t, w.Acquire(t.Context(), n), "Acquire of all")
		testkit.Took(t, began, 0, 50*time.Millisecond, "all permits")
		running.Store(false)
		w.Release(n)
		wg.Wait()
	})
}

// A large request that is cancelled lets those behind it in at once.
func TestWeightedCancelledAcquireDoesNotStarveOthers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newWeighted(t, 10)
		testkit.OK(t, w.Acquire(t.Context(), 1), "Acquire")
		ctx, cancel := context.WithCancel(t.Context())
		big := testkit.Go(func() error { return w.Acquire(ctx, 10) })
		for w.TryAcquire(1) { // until the large request waits
			w.Release(1)
			time.Sleep(time.Millisecond)
		}
		go cancel()
		began := time.Now()
		testkit.OK(t, w.Acquire(t.Context(), 1), "Acquire behind the large one")
		testkit.Took(t, began, 0, 50*time.Millisecond, "one permit")
		testkit.Is(t, <-big, context.Canceled, "the large one")
		w.Release(2)
	})
}

// A request whose context ended before enough permits were free fails, and keeps none.
func TestWeightedAcquireCancelled(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newWeighted(t, 2)
		testkit.OK(t, w.Acquire(t.Context(), 1), "Acquire")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for w.TryAcquire(1) {
				w.Release(1)
				time.Sleep(time.Millisecond)
			}
			cancel()
			w.Release(1)
		})
		testkit.Is(t, w.Acquire(ctx, 2), context.Canceled, "Acquire")
		wg.Wait()
		time.Sleep(20 * time.Millisecond)
		testkit.Equal(t, w.TryAcquire(2), true, "both")
		w.Release(2)
		testkit.Is(t, w.Acquire(ctx, 1), context.Canceled, "Acquire with a done context")
	})
}

func TestWeightedHammer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const n = 6
		w := newWeighted(t, n)
		var wg sync.WaitGroup
		for i := 1; i < n; i++ {
			wg.Go(func() {
				for range testkit.Thorough(100, 15) {
					l, err := w.sem.LockN(t.Context(), i)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
					testkit.MustUnlock(t, l)
				}
			})
		}
		wg.Wait()
		testkit.Equal(t, w.TryAcquire(n), true, "all")
		w.Release(n)
	})
}
