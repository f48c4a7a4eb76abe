package locktest

import (
	"context"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
)

// key finds the hold of a lock in the context of a lease.
type key struct{ locker *Locker }

// hold is one owner's time with a Locker. Its fields are guarded by the Locker's mutex, or do not change.
type hold struct {
	locker   *Locker
	owner    quorumlock.Owner
	token    uint64
	granted  time.Time
	extended time.Time // when it was granted or extended last
	leases   map[*quorumlock.Lease]context.CancelCauseFunc
	lost     *quorumlock.LostError // not nil once it is lost
	ended    time.Time             // when it was lost or left
	keep     time.Time             // until when the lock stays taken, though everybody has left
	timer    *time.Timer           // loses the hold at its deadline, or ends the keep
}

var _ quorumlock.Hold = (*hold)(nil)

// lease returns a new lease of the hold. The Locker's mutex is held.
func (h *hold) lease(ctx context.Context) *quorumlock.Lease {
	lease, cancel := quorumlock.NewLease(context.WithValue(ctx, key{h.locker}, h), h)
	h.leases[lease] = cancel
	return lease
}

// deadline is until when the hold is valid. The Locker's mutex is held.
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
	return end
}

// schedule sets the timer for a hold that is not renewed for ever. The Locker's mutex is held.
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
		h.timer = time.AfterFunc(time.Until(end.Add(set.Drift.Validity(set.TTL, 0))), h.expire)
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
		return // it is over, or was extended as the timer fired
	}
	h.lose("it was not renewed in time")
}

// lose ends the hold and tells its leases. The Locker's mutex is held.
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

func (h *hold) Extend(ctx context.Context) error {
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
	h.schedule()
	return nil
}

func (h *hold) Leave(ctx context.Context, lease *quorumlock.Lease, keep time.Duration) error {
	began := time.Now()
	lost, left, err := h.leave(lease, keep)
	if o := h.locker.set.Observer; o != nil {
		o.Observe(ctx, quorumlock.Event{Kind: quorumlock.Released, Lock: h.locker.name, Took: time.Since(began), Lease: lease,
			Ended: left == 0 && !lost, Held: time.Since(h.granted), Err: err})
	}
	return err
}

// leave returns whether the hold was lost before, and how many leases are left in it.
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

// freeKept frees a lock that was kept after its holder had left.
func (h *hold) freeKept() {
	h.locker.mu.Lock()
	defer h.locker.mu.Unlock()
	if h.locker.held == h {
		h.locker.free()
	}
}

// Hold has somebody else take the lock: at once if it is free, or else as soon as the present holder has left, before all
// who wait. It does not wait for that. release gives the lock back; call it once or more often.
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

// Lose has the present holder lose its lease, as if the nodes had forgotten it: the lease's context ends with a
// *[quorumlock.LostError], and the first in the queue gets the lock. It reports whether there was a lease to lose.
func (l *Locker) Lose() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil || len(l.held.leases) == 0 {
		return false
	}
	l.held.lose("the test took it away")
	return true
}

// Delay makes every call of Lock and TryLock that begins from now on take d longer, or until its ctx is done. 0 ends that.
func (l *Locker) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Fail makes Lock, TryLock, Extend and Unlock return err from now on, and the calls of Lock that wait: a
// *[quorumlock.QuorumError], for example. Unlock releases the lock all the same, and leases stay valid: see [Locker.Lose]. Nil ends that.
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

// Waiting returns how many calls of Lock wait for their turn.
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
