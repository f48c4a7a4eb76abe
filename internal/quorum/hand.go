package quorum

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

const (
	// maxHandTTL caps the TTL of a handoff: if the new holder is dead, the next waiter waits this long. It counts
	// from the waiter's last attempt, which is no longer ago than fresh, so that more than a second is left.
	maxHandTTL = 1800 * time.Millisecond
	fresh      = 650 * time.Millisecond // FRESH in queue.lua

	// renewHanded is how long after a handoff the lease is renewed, for its whole TTL. Most locks are held for less.
	renewHanded = 10 * time.Millisecond
)

// handTTL is the TTL of a handoff to a waiter. It is 0, and nothing is handed over, without renewal; if no time for
// a renewal might be left; and under the restart guard, since a node hands over without a look at itself.
func (l *Lock) handTTL() time.Duration {
	ttl := min(l.set.TTL, maxHandTTL)
	if !l.set.Renew || l.set.Quarantine() > 0 || l.set.Drift.Validity(ttl, min(fresh, ttl/2)) < l.set.NodeTimeout {
		return 0
	}
	return ttl
}

// inherit makes a hold of the lock that was handed to the waiter, if a quorum of the nodes has done so, and returns
// its lease. It returns nil if no quorum has, or if too little time is left: the next attempt takes over what was
// handed over.
//
// It is an attempt like any other, except that the nodes have voted without being asked. What makes it safe is the
// same: the owner is used once, the validity counts from before the owner was sent to any node, and a quorum has
// agreed on the token.
func (l *Lock) inherit(ctx, waiting context.Context, w *waiter) *quorumlock.Lease {
	t := w.handedTenure()
	if t == nil || t.agreeOnToken(ctx, waiting) != nil {
		return nil
	}
	t.start = w.since
	if t.remaining() < l.set.NodeTimeout { // the renewal might come too late
		return nil
	}
	w.setHeld(true)
	lease, err := t.begin(ctx, w.since)
	if err != nil {
		w.setHeld(false)
		return nil
	}
	if w.mayStray(t.number + 1) { // it may be queued where the lock was handed over
		w.leave(ctx)
	}
	return lease
}

// handed notes that a cell has handed the lock to a successor. That counts if it is the successor of the last attempt;
// earlier handoffs are taken over by the next attempt. If the waiter has gone, leaving has given the handoff back.
func (w *waiter) handed(c Cell, h scripts.Handoff) {
	w.change(func() {
		switch {
		case w.finished:
		case h.Cell < 0 || h.Cell >= len(w.seats) || w.lock.cells[h.Cell] != c: // heard at another address of the server
		case h.Attempt == w.attempts:
			w.seats[h.Cell].handed = h.Token
		case w.seats[h.Cell].busy: // the attempt since then did not find this handoff
			w.seats[h.Cell].woken = true
		}
	})
}

// together reports whether the cells of the attempt, those of its successor and those that have called the waiter since
// they refused would win the lock: then the next attempt has it, and a node that is silent is not waited for.
func (w *waiter) together(t *tenure) bool {
	votes := make([]Vote, len(t.cells))
	told := false
	w.mu.Lock()
	for i, s := range w.seats {
		if s.handed > 0 || s.busy && s.woken {
			votes[i], told = Yes, true
		}
	}
	w.mu.Unlock()
	if !told {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range t.cells {
		if c.state == granted {
			votes[i] = Yes
		}
	}
	return t.lock.tree.Tally(votes) == Won
}

// clears notes that what some cells have handed to a successor is being given back, unless the waiter holds the lock,
// and reports whether it is.
func (w *waiter) clears(cells []int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cell := range cells {
		w.seats[cell].cleared = w.seats[cell].cleared || !w.held
	}
	return !w.held
}

func (w *waiter) isCleared(cell int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seats[cell].cleared
}

// isHanded reports whether a quorum of the cells has handed over the lock. It is called with mu held.
func (w *waiter) isHanded() bool {
	votes := make([]Vote, len(w.seats))
	for i, s := range w.seats {
		if s.handed > 0 {
			votes[i] = Yes
		}
	}
	return w.lock.tree.Tally(votes) == Won
}

// setHeld notes that a successor holds the lock, before the lease is given out: no entry may be left then.
func (w *waiter) setHeld(held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held, w.finished = held, held
}

// release notes that the hold is over: what is handed to a successor from here on is given back.
func (w *waiter) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = false
}

// takesBack reports whether leaving a queue also gives back what the waiter's successors were handed there. Once one
// of them holds the lock it does not, since a node may hand over late.
func (w *waiter) takesBack() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.held
}

// handedTenure returns the tenure of the waiter's successor, or nil if no quorum has handed over. A node that has not
// handed over yet counts like one that refuses. If it does later, the owner has the lock there, too.
func (w *waiter) handedTenure() *tenure {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isHanded() {
		return nil
	}
	t := newTenure(w.lock, scripts.SuccessorOf(w.id, w.attempts))
	t.handed, t.waiter, t.entry.Waiter = true, w, w.id
	t.ttl, t.number = w.lock.handTTL(), w.attempts
	for i, s := range w.seats {
		t.cells[i] = cellState{state: refused}
		vote := No
		if s.handed > 0 {
			t.cells[i] = cellState{state: granted, token: s.handed}
			vote = Yes
			w.lock.saw(s.handed)
		}
		t.ballot.cast(i, vote)
	}
	return t
}
