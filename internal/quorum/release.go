package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// releaseAll releases at every node and returns when a quorum of each member has confirmed. A node that has yet to
// answer the attempt is left to acquired, which gives back when the answer comes: a release sent now could
// overtake the grant.
//
// If keep is positive, the nodes keep the key for that long instead. A node that answers the attempt later releases
// it all the same.
func (t *tenure) releaseAll(ctx context.Context, keep time.Duration) error {
	start := time.Now()
	t.mu.Lock()
	t.release = &release{ballot: newPatientBallot(t.lock.tree, len(t.cells)), gone: make([]bool, len(t.cells)), keeps: keep > 0}
	var late []int
	var parts []part
	for _, p := range t.lock.parts {
		late = append(late, t.answered(p, unanswered).cells...)
		if q := t.answered(p, granted, refused, unknown, quarantined); len(q.cells) > 0 {
			parts = append(parts, q)
		}
	}
	t.mu.Unlock()
	if keep > 0 {
		t.lock.ask(ctx, parts, func(cell int) scripts.Call { return t.keepCall(cell, keep) }, each(t.kept))
	} else {
		t.lock.ask(ctx, parts, t.releaseCall, each(t.released))
	}
	limit, stop := t.lock.bounded(ctx, start)
	defer stop()
	select {
	case <-t.release.ballot.decided:
	case <-limit.Done(): // nodes that have answered the attempt since then may take as long once more
		for _, cell := range late {
			t.release.ballot.cast(cell, No)
		}
		<-t.release.ballot.decided // the others answer by their timeout
	}

	t.mu.Lock()
	broken := t.lock.tree.Broken(t.release.gone)
	t.mu.Unlock()
	switch {
	case broken: // somebody took the keys away, and could have held the lock since
		return quorumlock.ErrLost
	case t.release.ballot.result() == Lost:
		return t.quorumError(t.release.ballot)
	}
	return nil
}

// release collects what the nodes answer when a hold ends.
type release struct {
	ballot *ballot
	gone   []bool // cells that did not have the key any more; under the tenure's mu
	keeps  bool   // the nodes keep the key until it expires
}

// keepCall lets the key expire by itself.
func (t *tenure) keepCall(cell int, keep time.Duration) scripts.Call {
	return scripts.Renew(t.lock.cells[cell].Name, t.at(cell), keep)
}

// kept takes a node's answer to keepCall.
func (t *tenure) kept(cell int, r scripts.Reply) {
	ok, err := r.Done()
	t.mu.Lock()
	t.cells[cell].err = err
	t.release.gone[cell] = err == nil && !ok && t.cells[cell].state == granted
	t.mu.Unlock()
	vote := No
	if err == nil && ok {
		vote = Yes
	}
	t.release.ballot.cast(cell, vote)
}

// released takes a node's answer to a release.
func (t *tenure) released(cell int, r scripts.Reply) {
	_, wasHeld, err := r.Released()
	if err != nil {
		t.lock.client.owe(t.lock.cells[cell].Node, t.releaseCall(cell), t.lock.leftFor(t.waiter), err)
	}
	t.mu.Lock()
	end := t.release
	if end != nil {
		t.cells[cell].err = err
		end.gone[cell] = err == nil && !wasHeld && !(t.handed && t.waiter.isCleared(cell))
	}
	t.mu.Unlock()
	switch {
	case end == nil: // of an attempt that was not won
	case err != nil, end.keeps:
		end.ballot.cast(cell, No)
	default:
		end.ballot.cast(cell, Yes)
	}
}

// leftFor is how long a key, or an entry in the queue, may last that a call has left at a node.
func (l *Lock) leftFor(w *waiter) time.Duration {
	return max(l.set.TTL, w.life())
}

// releaseCall also takes the waiter out of the queue where it may be queued. Where the attempt was granted it is not,
// unless an answer to an earlier attempt was lost.
func (t *tenure) releaseCall(cell int) scripts.Call {
	t.mu.Lock()
	out := t.cells[cell].state == granted
	t.mu.Unlock()
	name := t.lock.cells[cell].Name
	if out && !t.waiter.mayStray(t.number+1) {
		return scripts.Release(name, t.at(cell), 1)
	}
	return scripts.ReleaseAndLeave(name, t.at(cell), t.waiter.id, t.waiter.takesBack())
}

// abandon gives up an attempt whose caller has gone, for the reason err, which it returns. What the nodes have
// granted, or may have granted, is released in the background; what they grant later is released when they answer.
func (t *tenure) abandon(ctx context.Context, err error) error {
	t.waiter.finish()
	t.giveUp(ctx)
	return err
}

// giveWay ends an attempt that has failed for the reason err, which it returns. It waits until the nodes that
// granted have the lock back. So the caller's next attempt is not refused by its own leftovers, and a waiter knows
// its position.
func (t *tenure) giveWay(ctx, waiting context.Context, err error) error {
	if e := waiting.Err(); e != nil {
		return t.abandon(ctx, e)
	}
	done, nodes := t.giveUp(ctx)
	for range nodes {
		select {
		case <-done:
		case <-waiting.Done():
			return err
		}
	}
	return err
}

// giveUp ends the attempt and gives back at every node that has granted, or may have. The channel gets a value for
// each node that had granted, when it has the lock back.
func (t *tenure) giveUp(ctx context.Context) (done <-chan struct{}, nodes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = over // from here on, acquired gives back what late answers grant
	given := make(chan struct{}, len(t.lock.parts))
	for _, p := range t.lock.parts {
		q := t.answered(p, granted, unknown)
		if len(q.cells) == 0 {
			continue
		}
		wait := len(t.answered(p, granted).cells) > 0
		if wait {
			nodes++
		}
		t.lock.client.start(func() {
			t.giveBack(ctx, q)
			if wait {
				given <- struct{}{}
			}
		})
	}
	return given, nodes
}

// answered is the part of p whose cells have given one of those answers. It is called with mu held.
func (t *tenure) answered(p part, which ...answer) part {
	q := part{node: p.node}
	for _, cell := range p.cells {
		if slices.Contains(which, t.cells[cell].state) {
			q.cells = append(q.cells, cell)
		}
	}
	return q
}

// giveBack undoes an attempt that is over, at a node that has granted or may have. A waiter that goes on
// waiting is queued again with its ticket. So after a split vote every node has the lowest ticket first.
func (t *tenure) giveBack(ctx context.Context, p part) {
	if t.waiter.isFinished() {
		t.lock.askPart(ctx, p, t.releaseCall, t.released)
		return
	}
	yield := func(cell int) scripts.Call {
		return scripts.Yield(t.lock.cells[cell].Name, t.at(cell), t.entryAt(cell))
	}
	t.lock.askPart(ctx, p, yield, func(cell int, r scripts.Reply) {
		open, err := r.Yielded()
		if err != nil {
			// The waiter's next attempt finds out where it is queued. What was granted must not be in its way.
			c := t.lock.cells[cell]
			t.lock.client.owe(c.Node, scripts.Release(c.Name, t.at(cell), 1), t.lock.set.TTL, err)
			t.waiter.stray(t.number)
			return
		}
		t.waiter.yielded(cell, open)
	})
	if t.waiter.isFinished() { // meanwhile
		t.lock.leave(ctx, p, t.waiter)
	}
}

// leaveQueues takes the waiter of an attempt that was won out of the queue of the nodes that did not
// grant: a holder that is first in a queue would keep the others waiting. Nodes that have yet to answer are
// dealt with when they do.
func (t *tenure) leaveQueues(ctx context.Context) {
	t.waiter.finish()
	where := []answer{refused, unknown, quarantined}
	if t.waiter.mayStray(t.number) {
		where = append(where, granted) // a late yield of an earlier attempt may have put it back there since
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.lock.parts {
		if q := t.answered(p, where...); len(q.cells) > 0 {
			t.lock.client.start(func() { t.lock.leave(ctx, q, t.waiter) })
		}
	}
}

// leave takes w out of the queue at some cells of a node, and gives back what they have handed to its successors,
// unless one of them holds the lock.
func (l *Lock) leave(ctx context.Context, p part, w *waiter) {
	all := w.clears(p.cells)
	call := func(cell int) scripts.Call { return scripts.Leave(l.cells[cell].Name, w.id, all) }
	l.askPart(ctx, p, call, func(cell int, r scripts.Reply) {
		if _, err := r.Done(); err != nil {
			l.client.owe(p.node, call(cell), l.leftFor(w), err)
		}
	})
}
