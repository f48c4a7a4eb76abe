package locktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Locker is a lock in the memory of this process: a [quorumlock.Locker] that is fair, re-entrant by
// context, with fencing tokens from 1. It is safe for concurrent use; its zero value is not usable.
//
// It starts no goroutine and needs no closing. Renewal always succeeds, without any work. An option
// may turn it off or limit it; a timer then ends leases at their deadline.
type Locker struct {
	name   string
	set    options.Settings
	err    error  // error of the name or an option; nil if all are valid
	client string // first part of the owners

	mu     sync.Mutex
	delay  time.Duration
	fail   error
	token  uint64    // last token granted
	held   *hold     // nil if the lock is free
	queue  []*waiter // empty while the lock is free
	owners int       // number of owners made
}

var _ quorumlock.Locker = (*Locker)(nil)

// waiter is a waiting Lock or Hold.
type waiter struct {
	ctx   context.Context // for the lease; nil for a Hold
	owner quorumlock.Owner
	done  chan outcome // receives the result of a Lock
}

type outcome struct {
	lease *quorumlock.Lease
	err   error
}

// New returns a lock of that name. Two locks are independent, even if they have the same name: pass
// one to all that share it.
//
// The options WithTTL, WithoutRenewal, WithMaxHold, WithWait, WithDrift, WithLabel and
// WithoutReentry have the same effect as for real locks. The observer of WithObserver gets
// Acquired, Refused and Released: see [AllUnlocked]. WithOwner is an error. The others have no
// effect. If the name or an option is invalid, the methods return an error.
func New(name string, opts ...quorumlock.Option) *Locker {
	set, err := options.Resolve(opts...)
	if err == nil && set.Owner != "" {
		err = errs.Misuse("quorumlock: locktest: WithOwner is not supported: enter a hold with the context of its lease")
	}
	if err == nil {
		err = quorumlock.ValidateName(name)
	}
	return &Locker{name: name, set: set, err: err, client: set.Label + "~" + settings.NewID()}
}

// Name returns the name of the lock.
func (l *Locker) Name() string { return l.name }

// Lock acquires the lock. It waits for its turn until ctx is done. See [quorumlock.Locker] for its
// errors. While [Locker.Fail] has an error, Lock returns it at once; a real lock would ride out an
// outage until ctx is done.
func (l *Locker) Lock(ctx context.Context) (*quorumlock.Lease, error) {
	return l.observed(ctx, l.set.Wait == 0, func(ctx context.Context) (*quorumlock.Lease, error) {
		lease, err := l.acquire(ctx, l.set.Wait != 0)
		if held, ok := err.(*quorumlock.HeldError); ok && l.set.Wait == 0 {
			return nil, errs.Join(context.DeadlineExceeded, held)
		}
		return lease, err
	})
}

// TryLock acquires the lock without waiting for its turn. See [quorumlock.Locker] for its errors.
func (l *Locker) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	return l.observed(ctx, true, func(ctx context.Context) (*quorumlock.Lease, error) { return l.acquire(ctx, false) })
}

// observed calls acquire, and reports it to the Observer.
func (l *Locker) observed(ctx context.Context, try bool, acquire func(context.Context) (*quorumlock.Lease, error)) (*quorumlock.Lease, error) {
	if ctx == nil {
		return nil, quorumlock.ErrNilContext
	}
	if l.err != nil {
		return nil, l.err
	}
	o := l.set.Observer
	if o == nil {
		return acquire(ctx)
	}
	began := time.Now()
	if c := o.Begin(ctx, l.name); c != nil {
		ctx = c
	}
	lease, err := acquire(ctx)
	e := quorumlock.Event{Kind: quorumlock.EventAcquired, Lock: l.name, Took: time.Since(began), Try: try, Lease: lease, Err: err}
	if err != nil {
		e.Kind = quorumlock.EventRefused
	}
	o.Observe(ctx, e)
	return lease, err
}

func (l *Locker) acquire(ctx context.Context, wait bool) (*quorumlock.Lease, error) {
	patience := ctx // bounds the wait of this call; the lease descends from ctx
	if l.set.Wait > 0 && wait {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(ctx, l.set.Wait)
		defer cancel()
	}
	if err := l.pause(patience); err != nil {
		return nil, err
	}
	l.mu.Lock()
	if lease, err, ok := l.enter(ctx, wait); ok {
		l.mu.Unlock()
		return lease, err
	}
	w := &waiter{ctx: ctx, owner: l.owner(), done: make(chan outcome, 1)}
	l.queue = append(l.queue, w)
	l.mu.Unlock()

	select {
	case o := <-w.done:
		return o.lease, o.err
	case <-patience.Done():
		return nil, l.leave(w, patience.Err())
	}
}

// pause waits for the delay that the test has set.
func (l *Locker) pause(ctx context.Context) error {
	l.mu.Lock()
	d := l.delay
	l.mu.Unlock()
	if d > 0 && ctx.Err() == nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// enter is the part of acquire that does not wait. over is false if the call must wait.
func (l *Locker) enter(ctx context.Context, wait bool) (lease *quorumlock.Lease, err error, over bool) {
	if h, ok := ctx.Value(key{l}).(*hold); ok && h == l.held && len(h.leases) > 0 {
		if l.set.NoReentry {
			return nil, options.Reentry(l.name), true
		}
		return h.lease(ctx), nil, true
	}
	if l.fail != nil {
		return nil, l.fail, true
	}
	if l.held == nil {
		return l.grant(ctx, l.owner()), nil, true
	}
	if !wait {
		return nil, l.refusal(0), true
	}
	return nil, nil, false
}

// leave removes a waiter at the end of its wait from the queue, and returns its error.
func (l *Locker) leave(w *waiter, err error) error {
	l.mu.Lock()
	i := slices.Index(l.queue, w)
	if i < 0 { // it was granted the lock at the same time
		l.mu.Unlock()
		if o := <-w.done; o.lease != nil {
			// Nobody else has this lease, so this cannot fail.
			_ = o.lease.Unlock(context.Background())
		}
		return err
	}
	defer l.mu.Unlock()
	refusal := l.refusal(i + 1)
	l.queue = slices.Delete(l.queue, i, i+1)
	return errs.Join(err, refusal)
}

func (l *Locker) refusal(position int) error {
	return &quorumlock.HeldError{Name: l.name, Holder: l.held.owner, TTL: max(time.Until(l.held.deadline()), 0), Position: position}
}

func (l *Locker) owner() quorumlock.Owner {
	l.owners++
	return quorumlock.Owner(fmt.Sprintf("%s:%d", l.client, l.owners))
}

// grant grants the lock to an owner. l.mu is held, and the lock is free.
func (l *Locker) grant(ctx context.Context, owner quorumlock.Owner) *quorumlock.Lease {
	h := l.take(owner)
	h.schedule()
	return h.lease(ctx)
}

func (l *Locker) take(owner quorumlock.Owner) *hold {
	l.token++
	l.held = &hold{locker: l, owner: owner, token: l.token, granted: time.Now(), extended: time.Now(), leases: make(map[*quorumlock.Lease]context.CancelCauseFunc)}
	return l.held
}

// free ends the present hold and grants the lock to the first in the queue. l.mu is held.
func (l *Locker) free() {
	l.held.stop()
	l.held = nil
	for len(l.queue) > 0 && l.held == nil {
		w := l.queue[0]
		l.queue = l.queue[1:]
		switch {
		case w.ctx == nil:
			l.take(w.owner)
		case w.ctx.Err() != nil: // it is about to leave
			w.done <- outcome{err: w.ctx.Err()}
		default:
			w.done <- outcome{lease: l.grant(w.ctx, w.owner)}
		}
	}
}
