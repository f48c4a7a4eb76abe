package quorum

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock"
)

// watch is what the Observer learns of one call of Lock or TryLock. It is nil if there is no Observer. Until the call is
// decided, one goroutine at a time notes steps: the caller, or a step of the call with its mu held.
type watch struct {
	ctx      context.Context // of Begin
	waited   time.Time       // since when; zero if there was no need to wait
	attempts int
	handed   bool
	steps    []quorumlock.Step
}

// maxSteps is how many steps of a call are kept. A call may wait for hours, and makes an attempt more than once a second.
const maxSteps = 64

// watched runs f, a call of Lock or TryLock, and tells the Observer, if there is one. ctx is not nil.
func (l *Lock) watched(ctx context.Context, try bool, f func(*Lock, context.Context, *watch) (*quorumlock.Lease, error)) (*quorumlock.Lease, error) {
	o := l.set.Observer
	if o == nil {
		return f(l, ctx, nil)
	}
	began := time.Now()
	w := &watch{ctx: ctx}
	if c := o.Begin(ctx, l.name); c != nil {
		w.ctx = c
	}
	lease, err := f(l, w.ctx, w)
	told := false
	defer func() {
		if !told && lease != nil { // the Observer panics: nobody gets the lease, and the watchdog must not renew it for ever
			_ = lease.Unlock(context.WithoutCancel(ctx))
		}
	}()
	now := time.Now()
	e := quorumlock.Event{Kind: quorumlock.Acquired, Lock: l.name, Took: now.Sub(began), Try: try,
		Attempts: w.attempts, Handed: w.handed, Steps: w.steps, Lease: lease, Err: err}
	if err != nil {
		e.Kind = quorumlock.Refused
	}
	if !w.waited.IsZero() {
		e.Waited = now.Sub(w.waited)
	}
	o.Observe(w.ctx, e)
	told = true
	return lease, err
}

// note notes a step, if somebody observes.
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
	if last := len(w.steps) - 1; kind == quorumlock.StepWaiting && last >= 0 && w.steps[last].Kind == kind { // the reason has become known
		w.steps[last].Err = why
	} else if len(w.steps) < maxSteps {
		w.steps = append(w.steps, quorumlock.Step{At: now, Kind: kind, Err: why})
	}
}

// entered notes that a lease enters a hold that another call has begun, though this call may have asked the nodes before.
func (w *watch) entered(lease *quorumlock.Lease) *quorumlock.Lease {
	if w != nil && lease != nil {
		w.attempts = 0
	}
	return lease
}

// tell tells the Observer of the hold, if there is one, from a goroutine of its own, as log does.
func (c *call) tell(e quorumlock.Event) {
	if c.watch == nil {
		return
	}
	e.Lock = c.lock.name
	c.lock.client.start(func() { c.lock.set.Observer.Observe(c.watch.ctx, e) })
}
