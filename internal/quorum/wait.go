package quorum

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// How long Lock waits between attempts. Random, so that contenders who split the votes once do not
// do so again.
const (
	afterRelease = 5 * time.Millisecond   // at most, after a release was told: the other nodes follow
	whileHeld    = 500 * time.Millisecond // on average, if nothing is told
	afterFailure = 100 * time.Millisecond // on average, while there is no quorum to ask
)

// waiter waits for a lock to become free: for word of a release from its nodes, and for some time. Its
// zero value with a lock is ready; it subscribes on the first wait.
type waiter struct {
	lock  *Lock
	heard chan struct{} // a release, or that one may have been missed
	stops []func()
}

// wait returns nil when it is time for the next attempt, and ctx's error when ctx is done. last is why
// the attempt before failed.
func (w *waiter) wait(ctx context.Context, last error) error {
	pause := jitter(afterFailure)
	if errors.Is(last, quorumlock.ErrHeld) {
		pause = jitter(whileHeld)
		w.listen()
	} else {
		w.lock.set.Logger.Warn("quorumlock: no quorum, trying again", "lock", w.lock.name, "error", last)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	heard := w.heard
	for {
		select {
		case <-heard:
			heard = nil
			timer.Reset(rand.N(afterRelease))
		case <-timer.C:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		case <-w.lock.client.done:
			return quorumlock.ErrClosed
		}
	}
}

// jitter is a random duration from half of d to one and a half of it.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

func (w *waiter) listen() {
	if w.heard != nil {
		return
	}
	w.heard = make(chan struct{}, 1)
	for _, c := range w.lock.cells {
		w.stops = append(w.stops, c.Node.Listen(scripts.UnlockChannel(c.Name), func(string) {
			select {
			case w.heard <- struct{}{}:
			default:
			}
		}))
	}
}

func (w *waiter) stop() {
	for _, stop := range w.stops {
		stop()
	}
}
