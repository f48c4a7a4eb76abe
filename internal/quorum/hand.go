package quorum

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

const (
	// maxHandTTL is for how long a lock is handed over at most. It is not the whole TTL: if the waiter is gone, the
	// next one waits for so long. It counts from the attempt with which the waiter stood in line last, which is no longer
	// ago than fresh, so that more than a second is left.
	maxHandTTL = 1800 * time.Millisecond
	fresh      = 650 * time.Millisecond // FRESH in line.lua

	// renewHanded is how long after a lock was handed over it is renewed, for its whole TTL. Most locks are
	// held for less.
	renewHanded = 10 * time.Millisecond
)

// handTTL is for how long the lock may be handed over to a waiter. It is 0, and nothing is handed over, to one who
// does not renew; if no time for a renewal might be left; and under the restart guard, since a node hands over without
// a look at itself.
func (l *Lock) handTTL() time.Duration {
	ttl := min(l.set.TTL, maxHandTTL)
	if !l.set.Renew || l.set.Quarantine() > 0 || l.set.Drift.Validity(ttl, min(fresh, ttl/2)) < l.set.NodeTimeout {
		return 0
	}
	return ttl
}

// inherit makes the lock that was handed to the waiter a hold, if a quorum of the nodes has done so, and
// returns its lease. It returns nil if there is none, or too little is left of it: the next attempt takes over
// what there is.
//
// It is an attempt like any other, but that the nodes have cast their votes by themselves. All that counts is
// the same: that the owner is used once, that the validity counts from before the nodes were told of it,
// and that a quorum has agreed on the token.
func (l *Lock) inherit(ctx, waiting context.Context, w *waiter) *quorumlock.Lease {
	t := w.heirTenure()
	if t == nil || t.agreeOnToken(ctx, waiting) != nil {
		return nil
	}
	t.start = w.since
	if t.remaining() < l.set.NodeTimeout { // the renewal might come too late
		return nil
	}
	w.setHeirHolds(true)
	lease, err := t.begin(ctx, w.since)
	if err != nil {
		w.setHeirHolds(false)
		return nil
	}
	w.finish()
	for _, cell := range w.handedCells() { // some have come since the tenure began
		t.handedLate(cell)
	}
	if w.mayStray(t.number + 1) { // it may stand in line where the lock was handed over
		w.leave(ctx)
	}
	return lease
}

// handed notes that a cell has handed the lock to the heir of an attempt, and reports whether the waiter has a
// use for it. It counts if that is the last attempt: what was handed to a former one, the next takes over.
func (w *waiter) handed(c Cell, cell, attempt int, token uint64) (useful bool) {
	w.change(func() {
		useful = !w.finished
		switch {
		case !useful:
		case cell < 0 || cell >= len(w.seats) || w.lock.cells[cell] != c: // heard from the server's other address
		case attempt == w.attempts:
			w.seats[cell].handed = token
		case w.seats[cell].busy: // the attempt since did not meet it
			w.seats[cell].woken = true
		}
	})
	return useful
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

func (w *waiter) setHeirHolds(holds bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heirHolds = holds
}

func (w *waiter) handedCells() (cells []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.seats {
		if s.handed > 0 {
			cells = append(cells, i)
		}
	}
	return cells
}

// handedLate notes that one more node has handed over the lock. From now on it counts in renewals: one that
// renews what it was never heard to grant may be the same server as another.
func (t *tenure) handedLate(cell int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cells[cell].state = granted
}

// heirs says whose hold is given back where the waiter leaves a line: any heir's, and nobody's once one holds
// the lock: then it is kept where a node hands it over late.
func (w *waiter) heirs() quorumlock.Owner {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heirHolds {
		return ""
	}
	return scripts.AnyHeir
}

// late takes what was handed over when its waiter did not wait any more: it adds to the hold, or is given back
// if there is none. It is called in a goroutine of its own.
func (c *Client) late(cell Cell, number int, heir quorumlock.Owner) {
	if c.begin() != nil {
		return
	}
	defer c.end()
	c.mu.Lock()
	t := c.held[heir]
	c.mu.Unlock()
	if t != nil {
		if number >= 0 && number < len(t.cells) && t.lock.cells[number] == cell {
			t.handedLate(number)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxHandTTL)
	defer cancel()
	cell.Node.Send(ctx, scripts.Leave(cell.Name, "", heir))
}

// heirTenure returns the tenure of the waiter's heir, nil if no quorum has handed over. Nodes that have not handed over
// yet count like those that refuse; if they do later, the owner has the lock there, too.
func (w *waiter) heirTenure() *tenure {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isHanded() {
		return nil
	}
	t := newTenure(w.lock, scripts.HeirOf(w.id, w.attempts))
	t.handed, t.waiter, t.place.Waiter = true, w, w.id
	t.ttl, t.number = w.lock.handTTL(), w.attempts
	for i, s := range w.seats {
		t.cells[i] = cellState{state: refused}
		vote := No
		if s.handed > 0 {
			t.cells[i] = cellState{state: granted, token: s.handed}
			vote = Yes
			w.lock.client.saw(s.handed)
		}
		t.ballot.cast(i, vote)
	}
	return t
}
