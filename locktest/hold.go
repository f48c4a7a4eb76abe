package locktest

import (
	"context"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
)

// key is the key of a lock's hold in the context of a lease.
type key struct{ locker *Locker }

// hold is one owner's time with a Locker. The Locker's mutex guards fields that change.
type hold struct {
	locker   *Locker
	owner    quorumlock.Owner
	token    uint64
	granted  time.Time
	extended time.Time // the last grant or Extend
	promised time.Time // by ExtendTo: the validity does not end earlier
	leases   map[*quorumlock.Lease]context.CancelCauseFunc
	lost     *quorumlock.LostError // not nil after a loss
	ended    time.Time             // the time of the loss, or of the last Unlock; zero before
	// Until then the lock stays taken, although all leases were unlocked; zero without UnlockAfter.
	keep  time.Time
	timer *time.Timer // loses the hold at its deadline, or ends keep
}

var _ quorumlock.Hold = (*hold)(nil)

// lease returns a new lease of the hold. The Locker's mutex is held.
func (h *hold) lease(ctx context.Context) *quorumlock.Lease {
	lease, cancel := quorumlock.NewLease(context.WithValue(ctx, key{h.locker}, h), h)
	h.leases[lease] = cancel
	return lease
}

// deadline returns the end of the hold's validity. The Locker's mutex is held.
func (h *hold) deadline() time.Time {
	set := h.locker.set
	validity := set.Drift.Validity(set.TTL, 0)
	end := h.extended.Add(validity)
	if set.Renew {
		end = time.Now().Add(validity)
		if last := h.granted.Add(set.MaxHold); set.MaxHold > 0 && time.Now().After(last) {
			end = last.Add(validity)
			if late := h.extended.Add(validity); late.After(end) {
				end = late
			}
		}
	}
	switch {
	case !h.ended.IsZero():
		return h.ended
	case len(h.leases) == 0 && !h.keep.IsZero():
		return h.keep
	}
	return later(end, h.promised)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// schedule sets the timer of a hold that is not renewed forever. The Locker's mutex is held.
func (h *hold) schedule() {
	h.stop()
	set := h.locker.set
	switch {
	case !set.Renew:
		h.timer = time.AfterFunc(time.Until(h.deadline()), h.expire)
	case set.MaxHold > 0:
		end := h.granted.Add(set.MaxHold)
		if h.extended.After(end) {
			end = h.extended
		}
		h.timer = time.AfterFunc(time.Until(later(end.Add(set.Drift.Validity(set.TTL, 0)), h.promised)), h.expire)
	}
}

func (h *hold) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}

// expire loses a hold that was not renewed.
func (h *hold) expire() {
	h.locker.mu.Lock()
	defer h.locker.mu.Unlock()
	if h.locker.held != h || len(h.leases) == 0 || time.Now().Before(h.deadline()) {
		return // the hold has ended, or was extended as the timer fired
	}
	h.lose("it was not renewed in time")
}

// lose ends the hold and cancels its leases. The Locker's mutex is held.
func (h *hold) lose(reason string) {
	h.lost = &quorumlock.LostError{Name: h.locker.name, Owner: h.owner, Reason: reason}
	h.ended = time.Now()
	for _, cancel := range h.leases {
		cancel(h.lost)
	}
	h.locker.free()
}

func (h *hold) Name() string            { return h.locker.name }
func (h *hold) Owner() quorumlock.Owner { return h.owner }
func (h *hold) Token() uint64           { return h.token }

func (h *hold) ValidUntil() time.Time {
	h.locker.mu.Lock()
	defer h.locker.mu.Unlock()
	return h.deadline()
}

func (h *hold) HoldCount() int {
	h.locker.mu.Lock()
	defer h.locker.mu.Unlock()
	return len(h.leases)
}

func (h *hold) Extend(ctx context.Context, ttl time.Duration) error {
	h.locker.mu.Lock()
	defer h.locker.mu.Unlock()
	switch {
	case h.lost != nil:
		return quorumlock.ErrLost
	case ctx.Err() != nil:
		return ctx.Err()
	case h.locker.fail != nil:
		return h.locker.fail
	}
	h.extended = time.Now()
	h.promised = later(h.promised, h.extended.Add(h.locker.set.Drift.Validity(ttl, 0)))
	h.schedule()
	return nil
}

func (h *hold) EndLease(ctx context.Context, lease *quorumlock.Lease, keep time.Duration) error {
	began := time.Now()
	lost, left, err := h.leave(lease, keep)
	if o := h.locker.set.Observer; o != nil {
		o.Observe(ctx, quorumlock.Event{Kind: quorumlock.EventReleased, Lock: h.locker.name, Took: time.Since(began), Lease: lease,
			Ended: left == 0 && !lost, Held: time.Since(h.granted), Err: err})
	}
	return err
}

// leave returns whether the hold was lost before, and the number of leases left in it.
func (h *hold) leave(lease *quorumlock.Lease, keep time.Duration) (lost bool, left int, err error) {
	l := h.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(h.leases, lease)
	if h.lost != nil {
		return true, len(h.leases), quorumlock.ErrLost
	}
	if until := time.Now().Add(keep); keep > 0 && until.After(h.keep) {
		h.keep = until
	}
	if len(h.leases) > 0 {
		return false, len(h.leases), nil
	}
	if rest := time.Until(h.keep); !h.keep.IsZero() && rest > 0 {
		h.stop()
		h.timer = time.AfterFunc(rest, h.freeKept)
		return false, 0, l.fail
	}
	h.ended = time.Now()
	l.free()
	return false, 0, l.fail
}

// freeKept releases a lock that was kept after its holder had left.
func (h *hold) freeKept() {
	h.locker.mu.Lock()
	defer h.locker.mu.Unlock()
	if h.locker.held == h {
		h.locker.free()
	}
}

// Hold makes another owner take the lock: at once if it is free, or else after the present holder,
// before all waiters. It does not wait. release ends the hold or the wait; repeated calls do
// nothing.
func (l *Locker) Hold() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	owner := quorumlock.Owner("somebody-else~" + l.owner())
	w := &waiter{owner: owner}
	if l.held == nil {
		l.take(owner)
	} else {
		l.queue = slices.Insert(l.queue, 0, w)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held != nil && l.held.owner == owner {
			l.free()
		} else if i := slices.Index(l.queue, w); i >= 0 {
			l.queue = slices.Delete(l.queue, i, i+1)
		}
	}
}

// Lose makes the present holder lose its lease, as if the nodes had lost it. The lease's context
// ends with a *[quorumlock.LostError], and the first in the queue gets the lock. It returns false
// if there is no lease.
func (l *Locker) Lose() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil || len(l.held.leases) == 0 {
		return false
	}
	l.held.lose("the test took it away")
	return true
}

// Delay makes every call of Lock and TryLock that begins from now on take d longer, or until its
// ctx is done. 0 ends the delay.
func (l *Locker) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Fail makes Lock, TryLock, Extend and Unlock return err from now on, and also the calls of Lock
// that already wait. A *[quorumlock.QuorumError] is an example. Unlock still releases the lock, and
// leases stay valid: see [Locker.Lose]. Nil ends the failure.
func (l *Locker) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
	if err == nil {
		return
	}
	l.queue = slices.DeleteFunc(l.queue, func(w *waiter) bool {
		if w.ctx != nil {
			w.done <- outcome{err: err}
		}
		return w.ctx != nil
	})
}

// Waiting returns the number of waiting calls of Lock.
func (l *Locker) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, w := range l.queue {
		if w.ctx != nil {
			n++
		}
	}
	return n
}
