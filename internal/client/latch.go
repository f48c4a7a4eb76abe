package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Latch is a latch of package engine. It is safe for concurrent use.
type Latch struct {
	client *Client
	terms  engine.Latch
	cells  []Cell
	set    options.Settings
	err    error // error of the name, N or the options; every call returns it

	found atomic.Int64 // 0 before a quorum has the latch; else 1 + the most ids of a quorum so far
	open  atomic.Bool  // a quorum has had N ids

	mu     sync.Mutex
	next   *latchBatch // the batch that a call of Done joins; nil if the call begins one
	adding bool        // addBatches runs
}

// latchBatch is the set of ids that one look adds for several calls of Done.
type latchBatch struct {
	ctx  context.Context // with the values of the first caller's ctx
	ids  []string
	done chan struct{} // closed when err is set
	err  error
}

// The limits of a latch. A repair may read all ids of a node, so they must fit into one reply.
const (
	maxLatchIDs = 4096
	maxLatchID  = 200 // bytes
)

// latchRefresh is the mean interval between looks of Wait without a message: messages may be lost.
const latchRefresh = 3 * time.Second

// latchRetry is the mean pause after the first of several failures.
const latchRetry = 50 * time.Millisecond

// NewLatch returns a latch over cells. If err is not nil, every call on the latch returns it.
func NewLatch(client *Client, name string, n, need int, cells []Cell, set options.Settings, err error) *Latch {
	l := &Latch{client: client, cells: cells, set: set, err: err}
	l.terms = engine.Latch{Name: name, N: n, Need: need, Retention: set.Retention}
	for _, c := range cells {
		l.terms.Cells = append(l.terms.Cells, engine.LatchCell{Name: c.Name, Node: c.Node})
	}
	if l.err == nil && (n < 1 || n > maxLatchIDs) {
		l.err = errs.Misusef("quorumlock: Latch(%.80q, %d): n is how many ids open the latch: use 1 to %d", name, n, maxLatchIDs)
	}
	if l.err == nil {
		l.err = validateNames(cells)
	}
	return l
}

// Name returns the latch's name.
func (l *Latch) Name() string { return l.terms.Name }

// Done adds an id. It tries again until a quorum has the id, or the latch is open.
func (l *Latch) Done(ctx context.Context, id string) error {
	if size := len(id); l.err == nil && (size == 0 || size > maxLatchID) {
		return errs.Misusef("quorumlock: Done of the latch %.80q: the id has %d bytes: use 1 to %d", l.terms.Name, size, maxLatchID)
	}
	if err := l.start(ctx); err != nil {
		return err
	}
	defer l.client.End()
	return l.ask(ctx, id)
}

// Wait returns when the latch is open. It looks again once subscribed, so it misses no message.
func (l *Latch) Wait(ctx context.Context) error {
	if err := l.start(ctx); err != nil {
		return err
	}
	defer l.client.End()
	if l.open.Load() {
		return nil
	}
	return l.ask(ctx, "")
}

// Count returns the number of ids at a quorum, at most n.
func (l *Latch) Count(ctx context.Context) (int, error) {
	if err := l.start(ctx); err != nil {
		return 0, err
	}
	defer l.client.End()
	if l.open.Load() {
		return l.terms.N, nil
	}
	return l.look(ctx, wire.ReadLatch, nil)
}

// start refuses calls that cannot succeed, before anything is sent.
func (l *Latch) start(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	return l.client.admit(ctx)
}

// ask adds the id if there is one, until that has succeeded, or looks until the latch is open.
func (l *Latch) ask(ctx context.Context, id string) error {
	if l.set.Wait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, l.set.Wait)
		defer stop()
	}
	heard := make(chan struct{}, 1)
	var deafen func() // ends the subscription
	var last error    // why the last look did not suffice
	pause, failures := latchRetry, 0
	for {
		var size int
		var err error
		if id != "" {
			err = l.add(ctx, id)
		} else {
			size, err = l.look(ctx, wire.MakeLatch, nil)
		}
		var wait time.Duration
		switch {
		case err == nil && (id != "" || size == l.terms.N):
			return nil
		case err == nil:
			last = fmt.Errorf("quorumlock: the latch %q has %d of %d ids", l.terms.Name, size, l.terms.N)
			pause, failures = latchRetry, 0
			wait = l.client.around(latchRefresh)
		case l.isFinal(err):
			return err
		case ctx.Err() == nil:
			last = err
			if failures++; failures == 1 {
				l.logNoQuorum(err)
			}
			wait, pause = l.client.around(pause), min(2*pause, time.Second)
		}
		if l.set.Wait == 0 {
			return errs.Join(cmp.Or(ctx.Err(), context.DeadlineExceeded), last)
		}
		if id == "" && deafen == nil {
			deafen = l.listen(heard)
			defer deafen()
		}
		again := time.NewTimer(wait)
		select {
		case <-heard:
		case <-again.C:
		case <-ctx.Done():
		case <-l.client.stopping:
			return quorumlock.ErrClosed
		}
		again.Stop()
		if err := ctx.Err(); err != nil {
			return errs.Join(err, last)
		}
	}
}

// around returns a random pause, d on average.
func (c *Client) around(d time.Duration) time.Duration {
	if c.jitter != nil {
		return d/2 + c.jitter(d)
	}
	return d/2 + mathrand.N(d)
}

// isFinal reports whether look would return the same error again.
func (l *Latch) isFinal(err error) bool {
	return errors.Is(err, quorumlock.ErrLatchForgotten) || wire.IsWrongUse(err) && !errors.Is(err, quorumlock.ErrNoQuorum)
}

// logNoQuorum logs from a goroutine of its own, as call.log does.
func (l *Latch) logNoQuorum(err error) {
	l.client.start(func() {
		l.set.Logger.Warn("quorumlock: no quorum, trying again until there is one", "latch", l.terms.Name, "error", err)
	})
}

// listen sends to heard at each message about the latch, until stop is called.
func (l *Latch) listen(heard chan struct{}) (stop func()) {
	stops := make([]func(), len(l.cells))
	for i, c := range l.cells {
		// Only a hint: any publisher can send a message.
		stops[i] = c.Node.Listen(wire.LatchKey(c.Name), func(string) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// add adds an id, together with the ids of calls that came during the last look. So any number of
// simultaneous callers takes at most two looks.
func (l *Latch) add(ctx context.Context, id string) error {
	l.mu.Lock()
	if l.next == nil {
		l.next = &latchBatch{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
	}
	b := l.next
	b.ids = append(b.ids, id)
	if !l.adding {
		l.adding = true
		l.client.start(l.addBatches)
	}
	l.mu.Unlock()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	case <-l.client.stopping:
		return quorumlock.ErrClosed
	}
}

// addBatches adds one batch after another until none is left. The node timeouts bound each look.
func (l *Latch) addBatches() {
	for {
		l.mu.Lock()
		b := l.next
		l.next, l.adding = nil, b != nil
		l.mu.Unlock()
		if b == nil {
			return
		}
		slices.Sort(b.ids)
		_, b.err = l.look(b.ctx, wire.MakeLatch, slices.Compact(b.ids))
		close(b.done)
	}
}

// look adds ids at all cells, and returns the number of ids at a quorum of them.
func (l *Latch) look(ctx context.Context, mode wire.LatchMode, ids []string) (int, error) {
	look := engine.NewLook(&l.terms, mode, ids, int(l.found.Load()), rand.Text())
	for again := true; again; again = look.Next() {
		if err := l.client.gather(ctx, l.cells, &l.set, look.Request, look.Answer); err != nil {
			return 0, err
		}
	}
	size, err := look.End()
	if err != nil {
		return 0, err
	}
	if size == l.terms.N {
		l.open.Store(true)
	}
	for n := int64(look.Found()); ; {
		found := l.found.Load()
		if n <= found || l.found.CompareAndSwap(found, n) {
			return size, nil
		}
	}
}
