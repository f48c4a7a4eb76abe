package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// releaseAll releases at every node and returns when a quorum has confirmed. A node that has yet to
// answer the attempt is left to acquired, which gives back when it does: a release sent now could
// overtake the grant.
func (t *tenure) releaseAll(ctx context.Context) error {
	start := time.Now()
	t.mu.Lock()
	t.release = &release{ballot: newBallot(t.lock.tree, len(t.cells)), gone: make([]bool, len(t.cells))}
	var late []int
	var parts []part
	for _, p := range t.lock.parts {
		late = append(late, t.answered(p, unanswered).cells...)
		if q := t.answered(p, granted, refused, unknown, quarantined); len(q.cells) > 0 {
			parts = append(parts, q)
		}
	}
	t.mu.Unlock()
	t.lock.ask(ctx, parts, t.releaseCall, each(t.released))
	limit, stop := t.lock.bounded(ctx, start)
	defer stop()
	select {
	case <-t.release.ballot.decided:
	case <-limit.Done(): // those that have answered the attempt since may take as long once more
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

// release is what the nodes say to the end of a hold.
type release struct {
	ballot *ballot
	gone   []bool // cells that did not have the key any more; under the tenure's mu
}

// released takes a node's answer to a release.
func (t *tenure) released(cell int, r scripts.Reply) {
	_, wasHeld, err := r.Released()
	t.mu.Lock()
	end := t.release
	if end != nil {
		t.cells[cell].err = err
		end.gone[cell] = err == nil && !wasHeld
	}
	t.mu.Unlock()
	switch {
	case end == nil: // of an attempt that was not won
	case err != nil:
		end.ballot.cast(cell, No)
	default:
		end.ballot.cast(cell, Yes)
	}
}

// releaseCall also takes the waiter out of the line, where it may be: not where the attempt was granted, unless
// an answer to an earlier one was lost.
func (t *tenure) releaseCall(cell int) scripts.Call {
	t.mu.Lock()
	out := t.cells[cell].state == granted
	t.mu.Unlock()
	name := t.lock.cells[cell].Name
	if t.waiter == nil || out && !t.waiter.mayStray(t.number+1) {
		return scripts.Release(name, t.owner, 1)
	}
	return scripts.ReleaseAndLeave(name, t.owner, t.waiter.id, t.waiter.heirs())
}

// abandon gives up an attempt whose caller has gone, for the reason err, which it returns. Whatever the
// nodes have granted, or may have, is released in the background; what they are yet to answer, when
// they do.
func (t *tenure) abandon(ctx context.Context, err error) error {
	if t.waiter != nil {
		t.waiter.finish()
	}
	t.giveUp(ctx)
	return err
}

// giveWay ends an attempt that has failed for the reason err, which it returns, and waits for the nodes
// that had granted to have it back: what the caller does next shall not find its own traces, and a
// waiter shall know where it stands.
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

// giveUp ends the attempt and gives back at every node that has answered anything but a plain refusal.
// The channel gets a value for each of the nodes that had granted, when it is done.
func (t *tenure) giveUp(ctx context.Context) (done <-chan struct{}, nodes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = over // from here on, an answer that comes late is given back by itself
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

// giveBack undoes an attempt that is over at a node that has granted, or may have. A waiter who goes on
// waiting takes its place in line again, with its ticket: so a split vote ends with the lowest ticket
// first at every node.
func (t *tenure) giveBack(ctx context.Context, p part) {
	if t.waiter.isFinished() {
		t.lock.askPart(ctx, p, t.releaseCall, t.released)
		return
	}
	yield := func(cell int) scripts.Call {
		return scripts.Yield(t.lock.cells[cell].Name, t.owner, t.placeAt(cell))
	}
	t.lock.askPart(ctx, p, yield, func(cell int, r scripts.Reply) {
		open, err := r.Yielded()
		if err != nil {
			t.waiter.stray(t.number)
			return
		}
		t.waiter.yielded(cell, open)
	})
	if t.waiter.isFinished() { // meanwhile
		t.lock.leave(ctx, p, t.waiter)
	}
}

// leaveLines takes the waiter of an attempt that was won out of the line of the nodes that did not
// grant: a holder at the head of a line would keep the others waiting. Nodes that are yet to answer
// are dealt with when they do.
func (t *tenure) leaveLines(ctx context.Context) {
	if t.waiter == nil {
		return
	}
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

// leave takes w out of the line at some cells of a node, and gives back what they have handed to an heir of it,
// unless one holds the lock.
func (l *Lock) leave(ctx context.Context, p part, w *waiter) {
	heirs := w.heirs()
	l.askPart(ctx, p, func(cell int) scripts.Call {
		return scripts.Leave(l.cells[cell].Name, w.id, heirs)
	}, func(int, scripts.Reply) {})
}
