package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
)

// life is the shutdown of a client: what may still begin, and what Shutdown and Close wait for.
type life struct {
	stopping chan struct{}  // closed by Shutdown or Close; nothing is acquired after
	lost     chan struct{}  // closed by Close when every lease counts as lost
	flight   atomic.Int64   // operations between Begin and End; stays 0 once 0 and closed
	telling  atomic.Int64   // calls of the user's Logger and Observer by tell; none begins while flight is 0
	gone     chan struct{}  // closed when closed is set, and flight and telling are 0
	group    errgroup.Group // every goroutine; one starts only while flight > 0

	mu       sync.Mutex // guards the registry, too
	closed   bool
	stops    bool          // stopping is closed
	sessions int           // waiting and holding calls
	idle     chan struct{} // closed when sessions and flight are 0; nil before Shutdown
}

// The limits of the wait of a Close. The user's code may block, and a frozen node answers nothing.
const (
	closeWait = time.Second            // in all
	leastWait = 100 * time.Millisecond // at each step, for work that needs neither
)

// CloseTime returns the end of the wait of a Close that belongs to a Shutdown with ctx.
func CloseTime(ctx context.Context) time.Time {
	until := time.Now().Add(closeWait)
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		return end
	} else if ctx.Err() != nil {
		return time.Now()
	}
	return until
}

// WaitUntil waits for done until a time, and for leastWait at least. It reports whether done is
// closed.
func WaitUntil(until time.Time, done <-chan struct{}) bool {
	late := time.NewTimer(max(time.Until(until), leastWait))
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// Stopping returns a channel that is closed when Shutdown or Close begins.
func (l *life) Stopping() <-chan struct{} { return l.stopping }

func (l *life) isStopping() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}

// Closed returns a channel that is closed when Close has made every lease count as lost.
func (l *life) Closed() <-chan struct{} { return l.lost }

// stop closes stopping. The caller holds mu.
func (l *life) stop() {
	if !l.stops {
		l.stops = true
		close(l.stopping)
	}
}

// checkIdle closes gone and idle if their conditions hold. The caller holds mu.
func (l *life) checkIdle() {
	if l.flight.Load() > 0 {
		return
	}
	if l.closed && l.telling.Load() == 0 {
		closeOnce(l.gone)
	}
	if l.idle != nil && l.sessions == 0 {
		closeOnce(l.idle)
	}
}

// closeOnce closes a channel that may be closed already. The caller holds the mutex that guards it.
func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// Begin begins an operation that may call the nodes, and End ends it. Begin returns ErrClosed once
// the client is closed. Close waits for every End, within its limit.
func (l *life) Begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return quorumlock.ErrClosed
	}
	l.enter()
	return nil
}

// beginCall is Begin for a call of Lock or TryLock. It returns ErrClosed once Shutdown has begun.
// Shutdown waits for the calls that began before.
func (l *life) beginCall() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stops {
		return quorumlock.ErrClosed
	}
	l.enter()
	return nil
}

func (l *life) End() {
	if l.flight.Add(-1) == 0 {
		l.mu.Lock()
		l.checkIdle()
		l.mu.Unlock()
	}
}

// enter is Begin for callers between Begin and End. So once the client is closed and flight is 0,
// no operation begins.
func (l *life) enter() {
	l.flight.Add(1)
}

// Go runs f in a goroutine that Close waits for. It returns ErrClosed once the client is closed.
func (l *life) Go(f func()) error {
	if err := l.Begin(); err != nil {
		return err
	}
	defer l.End()
	l.start(f)
	return nil
}

// Aside is Go for work of the client's own: Shutdown does not wait for it.
func (l *life) Aside(f func()) error {
	if err := l.Begin(); err != nil {
		return err
	}
	defer l.End()
	l.tell(f)
	return nil
}

// start is Go for callers between Begin and End.
func (l *life) start(f func()) {
	l.enter()
	l.group.Go(func() error {
		defer l.End()
		f()
		return nil
	})
}

// tell runs f, which calls the user's Logger or Observer, in a goroutine of its own. So a log that
// is slow, blocks or uses a lock delays nothing. Shutdown does not wait for f. Call tell between
// Begin and End.
func (l *life) tell(f func()) {
	l.telling.Add(1)
	l.group.Go(func() error {
		defer func() {
			if l.telling.Add(-1) == 0 {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.checkIdle()
			}
		}()
		f()
		return nil
	})
}
