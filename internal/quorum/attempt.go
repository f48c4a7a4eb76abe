package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// attempt tries once to acquire the lock for a new owner. It is decided as soon as the votes are, or
// waiting is done; the lease descends from ctx. After a failure everything is undone or being undone:
// the waiter w stands in line again, or has left it if waiting is done. Without w it does not join.
//
// This is the Redlock algorithm (redis.io, "Distributed Locks with Redis"), with the nodes asked at
// the same time, and with a fencing token that a quorum of them agrees on.
func (l *Lock) attempt(ctx, waiting context.Context, w *waiter) (*quorumlock.Lease, error) {
	t := newAttempt(l, w)
	start := l.client.now() // before the first send: all that follows counts against the validity

	l.ask(ctx, l.parts, t.acquireCall, t.acquired)
	select {
	case <-t.ballot.decided:
	case <-waiting.Done():
		return nil, t.abandon(ctx, waiting.Err())
	case <-l.client.done:
		return nil, t.abandon(ctx, quorumlock.ErrClosed)
	}
	if t.ballot.result() == Lost {
		return nil, t.giveWay(ctx, waiting, t.refusal())
	}
	if err := t.agreeOnToken(ctx, waiting); err != nil {
		return nil, t.giveWay(ctx, waiting, err)
	}
	lease, err := t.begin(ctx, start)
	if err != nil {
		return nil, t.giveWay(ctx, waiting, err)
	}
	t.leaveLines(ctx)
	return lease, nil
}

// ask sends calls to the nodes of the lock, to all at once and in one goroutine each. answer gets the
// replies of a node, in that goroutine: when they came, or at the node timeout at the latest.
func (l *Lock) ask(ctx context.Context, parts []part, call func(cell int) scripts.Call, answer func(p part, rs []scripts.Reply)) {
	if len(parts) == 0 {
		return
	}
	ctx, cancel := l.bounded(ctx, time.Now())
	var sending atomic.Int32
	sending.Store(int32(len(parts)))
	for _, p := range parts {
		l.client.start(func() {
			replies := send(ctx, p, call)
			if sending.Add(-1) == 0 {
				cancel()
			}
			answer(p, replies)
		})
	}
}

// each takes a node's replies one by one.
func each(answer func(cell int, r scripts.Reply)) func(part, []scripts.Reply) {
	return func(p part, rs []scripts.Reply) {
		for i, r := range rs {
			answer(p.cells[i], r)
		}
	}
}

// askPart is ask for one node, in the caller's goroutine.
func (l *Lock) askPart(ctx context.Context, p part, call func(int) scripts.Call, answer func(int, scripts.Reply)) {
	ctx, cancel := l.bounded(ctx, time.Now())
	defer cancel()
	for i, r := range send(ctx, p, call) {
		answer(p.cells[i], r)
	}
}

func send(ctx context.Context, p part, call func(cell int) scripts.Call) []scripts.Reply {
	calls := make([]scripts.Call, len(p.cells))
	for i, cell := range p.cells {
		calls[i] = call(cell)
	}
	return p.node.Send(ctx, calls...)
}

// bounded gives what is sent a time of its own: it goes on when the caller has gone, since its outcome
// must be known or undone, and ends at the node timeout.
func (l *Lock) bounded(ctx context.Context, start time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(ctx), start.Add(l.set.NodeTimeout))
}

func (t *tenure) acquireCall(cell int) scripts.Call {
	name, ttl := t.lock.cells[cell].Name, t.lock.set.TTL
	if t.waiter == nil {
		return scripts.Acquire(name, t.owner, ttl, 1, t.hint).Guarded(t.lock.set.Quarantine())
	}
	return scripts.AcquireInTurn(name, t.owner, ttl, t.hint, t.placeAt(cell)).Guarded(t.lock.set.Quarantine())
}

// acquired takes a node's answer to the attempt. One that comes when the attempt or the tenure is over
// is undone by a release of its own; one that comes while the lock is held joins the lease.
//
// What a node has said is noted as a whole before any of it counts: whoever ends the attempt on a vote of it
// finds the rest, and gives back with one call.
func (t *tenure) acquired(p part, rs []scripts.Reply) {
	states := make([]cellState, len(rs))
	for i, r := range rs {
		states[i] = t.read(p.cells[i], r)
	}
	late, leave := part{node: p.node}, part{node: p.node}
	t.mu.Lock()
	gone := t.phase == over
	for i, state := range states {
		cell := p.cells[i]
		t.cells[cell] = state
		switch {
		case gone && state.state != refused && state.state != quarantined || t.release != nil: // Unlock waits for this node's word
			late.cells = append(late.cells, cell)
		case state.state != granted:
			leave.cells = append(leave.cells, cell)
		}
	}
	t.mu.Unlock()
	for i, state := range states {
		if state.err != nil || gone && (state.state != refused || t.waiter.overtaken(t.number)) {
			t.waiter.stray(t.number)
		}
		vote := No
		if state.state == granted {
			vote = Yes
		}
		t.ballot.cast(p.cells[i], vote)
	}
	if len(late.cells) > 0 {
		t.giveBack(context.Background(), late)
	}
	if len(leave.cells) > 0 && t.waiter != nil && t.waiter.isFinished() {
		t.lock.leave(context.Background(), leave, t.waiter)
	}
}

// read notes what a cell has answered to the attempt.
func (t *tenure) read(cell int, r scripts.Reply) cellState {
	a, err := r.Acquired()
	switch {
	case errors.Is(err, quorumlock.ErrQuarantined):
		return cellState{state: quarantined, err: err}
	case err != nil:
		return cellState{state: unknown, err: err}
	case a.Again:
		// Nobody but this attempt uses its owner, and nothing is sent twice: the lock came to this
		// server under another address, and must not count twice.
		err = fmt.Errorf("%q was acquired here a moment ago: is this the same server as another node, or behind a proxy that sends commands twice?", t.lock.cells[cell].Name)
		return cellState{state: unknown, err: err, twin: true}
	case !a.Granted:
		t.waiter.refused(cell, a)
		return cellState{state: refused}
	}
	t.lock.client.saw(a.Token)
	return cellState{state: granted, token: a.Token}
}

// agreeOnToken sets the tenure's token to the highest that a node granted, and makes sure that a
// quorum of the nodes counts on from there. Usually all agree already.
//
// Why tokens rise with every grant: two grants share a node that granted to both and whose counter
// was at the first one's token, at least, before the first was over; so the second got more there.
// Only nodes that granted are raised, and only while the owner's tenure there lasts: a counter raised
// by a latecomer could end up at a token that another holder has.
func (t *tenure) agreeOnToken(ctx, waiting context.Context) error {
	own := make([]uint64, len(t.cells)) // the tokens as they stand now; stragglers do not change them
	t.mu.Lock()
	for i, c := range t.cells {
		if c.state == granted {
			own[i] = c.token
			t.token = max(t.token, c.token)
		}
	}
	t.mu.Unlock()

	b := newBallot(t.lock.tree, len(t.cells))
	var lower []part
	for _, p := range t.lock.parts {
		q := part{node: p.node}
		for _, cell := range p.cells {
			switch own[cell] {
			case t.token:
				b.cast(cell, Yes)
			case 0:
				b.cast(cell, No)
			default:
				q.cells = append(q.cells, cell)
			}
		}
		if len(q.cells) > 0 {
			lower = append(lower, q)
		}
	}
	if b.result() == Won {
		return nil
	}
	raise := func(cell int) scripts.Call {
		return scripts.Raise(t.lock.cells[cell].Name, t.owner, t.lock.set.TTL, own[cell], t.token)
	}
	raised := func(cell int, r scripts.Reply) {
		ok, err := r.Done()
		vote := No
		if ok {
			vote = Yes
		}
		if err != nil {
			t.mu.Lock()
			t.cells[cell].err = err
			t.mu.Unlock()
		}
		b.cast(cell, vote)
	}
	t.lock.ask(ctx, lower, raise, each(raised))
	select {
	case <-b.decided:
	case <-waiting.Done():
		return waiting.Err()
	}
	if b.result() == Lost {
		return t.quorumError(b)
	}
	return nil
}

// refusal says why the votes were lost: ErrHeld if refusals alone suffice for that, a *QuorumError if
// failures do, and both if it took both.
func (t *tenure) refusal() error {
	refusals := make([]Vote, len(t.cells))
	failures := make([]Vote, len(t.cells))
	t.mu.Lock()
	for i, c := range t.cells {
		refusals[i], failures[i] = Yes, Yes
		switch c.state {
		case refused:
			refusals[i] = No
		case unknown, quarantined:
			failures[i] = No
		}
	}
	t.mu.Unlock()
	tree := t.lock.tree
	switch {
	case tree.Tally(refusals) == Lost:
		return fmt.Errorf("%w: %q", quorumlock.ErrHeld, t.lock.name)
	case tree.Tally(failures) == Lost:
		return t.quorumError(t.ballot)
	}
	return errors.Join(fmt.Errorf("%w: %q", quorumlock.ErrHeld, t.lock.name), t.quorumError(t.ballot))
}

// quorumError says how many members b won, and what went wrong at the nodes that failed.
func (t *tenure) quorumError(b *ballot) *quorumlock.QuorumError {
	e := &quorumlock.QuorumError{Granted: b.won(), Needed: max(t.lock.tree.Need, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range t.cells {
		if c.err != nil {
			e.Nodes = append(e.Nodes, nodeError(t.lock.cells[i].Node, c.err))
		}
	}
	return e
}

func nodeError(n Node, err error) *quorumlock.NodeError {
	if e, ok := errors.AsType[*quorumlock.NodeError](err); ok {
		return e
	}
	return &quorumlock.NodeError{Node: n.String(), Err: err}
}
