package client

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock"
)

// watch collects the events of one call for the Observer; nil without an Observer. Until the call
// is decided, one goroutine at a time uses it: the caller, or a step with the call's mu held.
type watch struct {
	ctx      context.Context // from Observer.Begin
	waited   time.Time       // when waiting began; zero if the call did not wait
	attempts int
	handed   bool
	steps    []quorumlock.Step
}

// maxSteps limits the recorded steps. A call may wait for hours, with an attempt each second.
const maxSteps = 64

// watched runs f, a call of Lock, TryLock or Attach, and notifies the Observer, if any.
func (l *Lock) watched(ctx context.Context, try bool, f func(*Lock, context.Context, *watch) (*quorumlock.Lease, error)) (*quorumlock.Lease, error) {
	return l.watchedSince(time.Time{}, time.Time{}, ctx, try, f)
}

// watchedSince is watched for a part of a call that began before, and may have waited since a time.
func (l *Lock) watchedSince(began, waited time.Time, ctx context.Context, try bool, f func(*Lock, context.Context, *watch) (*quorumlock.Lease, error)) (*quorumlock.Lease, error) {
	o := l.set.Observer
	if o == nil {
		lease, err := f(l, ctx, nil)
		return lease, l.withData(ctx, err)
	}
	if began.IsZero() {
		began = time.Now()
	}
	w := &watch{ctx: ctx, waited: waited}
	if c := o.Begin(ctx, l.name); c != nil {
		w.ctx = c
	}
	lease, err := f(l, w.ctx, w)
	err = l.withData(w.ctx, err)
	observed := false
	defer func() {
		// The Observer panicked: no caller gets the lease, so it must not be renewed for ever.
		if !observed && lease != nil {
			_ = lease.Unlock(context.WithoutCancel(ctx))
		}
	}()
	now := time.Now()
	e := quorumlock.Event{Kind: quorumlock.EventAcquired, Lock: l.name, Took: now.Sub(began), Try: try,
		Attempts: w.attempts, Handed: w.handed, Steps: w.steps, Lease: lease, Err: err}
	if err != nil {
		e.Kind = quorumlock.EventRefused
	}
	if !w.waited.IsZero() {
		e.Waited = now.Sub(w.waited)
	}
	o.Observe(w.ctx, e)
	observed = true
	return lease, err
}

// note records a step. A nil w ignores it.
func (w *watch) note(kind quorumlock.StepKind, why error) {
	if w == nil {
		return
	}
	now := time.Now()
	if kind == quorumlock.StepAttempt {
		w.attempts++
	} else if w.waited.IsZero() {
		w.waited = now
	}
	// The reason has become known.
	if last := len(w.steps) - 1; kind == quorumlock.StepWaiting && last >= 0 && w.steps[last].Kind == kind {
		w.steps[last].Err = why
	} else if len(w.steps) < maxSteps {
		w.steps = append(w.steps, quorumlock.Step{At: now, Kind: kind, Err: why})
	}
}

// entered records that a lease enters another call's hold: this call's attempts do not count.
func (w *watch) entered(lease *quorumlock.Lease) *quorumlock.Lease {
	if w != nil && lease != nil {
		w.attempts = 0
	}
	return lease
}

// tell notifies the Observer of the hold, if any, from a goroutine of its own, as log does.
func (c *session) tell(e quorumlock.Event) {
	if c.watch == nil {
		return
	}
	event := e // allocated only here
	event.Lock = c.lock.name
	c.lock.client.tell(func() { c.lock.set.Observer.Observe(c.watch.ctx, event) })
}
