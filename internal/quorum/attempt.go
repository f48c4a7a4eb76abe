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
// the waiter w is queued again, or has left the queue if waiting is done.
//
// This is the Redlock algorithm (redis.io, "Distributed Locks with Redis"), with the nodes asked at
// the same time, and with a fencing token that a quorum of them agrees on.
func (l *Lock) attempt(ctx, waiting context.Context, w *waiter) (*quorumlock.Lease, error) {
	t := newAttempt(l, w)
	l.client.trying(t.owner, true)
	defer l.client.trying(t.owner, false)
	start := l.client.now() // before the first send: all that follows counts against the validity

	l.ask(ctx, l.parts, t.acquireCall, t.acquired)
	var silence <-chan time.Time // ends what is left for silent nodes, once another has refused
	decided, contested := t.ballot.decided, t.contested
	for open := true; open; {
		select {
		case <-decided:
			decided = nil
			open = t.isUnclear()
		case <-t.heard:
			open = !w.together(t) && (decided != nil || t.isUnclear())
		case <-contested:
			contested = nil
			silence = time.After(t.tolerance())
		case <-silence:
			open = false
		case <-waiting.Done():
			return nil, t.abandon(ctx, waiting.Err())
		case <-l.client.stopping:
			return nil, t.abandon(ctx, quorumlock.ErrClosed)
		}
	}
	switch t.ballot.result() {
	case Lost:
		return nil, t.giveWay(ctx, waiting, t.refusal())
	case Pending: // the next attempt wins the lock, or one of the contenders does: all give way to the lowest ticket
		err := error(t.heldError())
		if silent := t.silentErrors(); w.tries && len(silent) > 0 {
			err = errors.Join(err, &quorumlock.QuorumError{Granted: t.ballot.won(), Needed: max(l.tree.Need, 1), Nodes: silent})
		}
		return nil, t.giveWay(ctx, waiting, err)
	}
	if err := t.agreeOnToken(ctx, waiting); err != nil {
		return nil, t.giveWay(ctx, waiting, err)
	}
	lease, err := t.begin(ctx, start)
	if err != nil {
		return nil, t.giveWay(ctx, waiting, err)
	}
	t.leaveQueues(ctx)
	return lease, nil
}

// ask sends calls to all nodes of the lock at once, in one goroutine each. answer gets the replies of a node,
// in that goroutine, as soon as they come, and at the node timeout at the latest.
func (l *Lock) ask(ctx context.Context, parts []part, call func(cell int) scripts.Call, answer func(p part, rs []scripts.Reply)) {
	if len(parts) == 0 {
		return
	}
	ctx, cancel := l.bounded(ctx, time.Now())
	var sending atomic.Int32
	sending.Store(int32(len(parts)))
	for _, p := range parts {
		l.client.start(func() {
			replies := l.send(ctx, p, call)
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
	for i, r := range l.send(ctx, p, call) {
		answer(p.cells[i], r)
	}
}

func (l *Lock) send(ctx context.Context, p part, call func(cell int) scripts.Call) []scripts.Reply {
	calls := make([]scripts.Call, len(p.cells))
	for i, cell := range p.cells {
		calls[i] = call(cell)
	}
	sent := time.Now()
	replies := p.node.Send(ctx, calls...)
	l.client.answered(p.node, replies, time.Since(sent), l.set.Logger)
	return replies
}

// bounded returns a context for what is sent. It does not end with the caller's, since the outcome must be known
// or undone. It ends at the node timeout.
func (l *Lock) bounded(ctx context.Context, start time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(ctx), start.Add(l.set.NodeTimeout))
}

func (t *tenure) acquireCall(cell int) scripts.Call {
	set := &t.lock.set
	return scripts.AcquireInTurn(t.lock.cells[cell].Name, t.at(cell), set.TTL, t.hint, t.entryAt(cell)).Guarded(set.Quarantine())
}

// acquired takes a node's answer to the attempt. An answer that comes when the attempt or the tenure is over is
// undone by a release of its own. One that comes while the lock is held joins the lease.
//
// All of a node's answers are noted before any of them counts: whoever ends the attempt on one of these votes
// finds the others, and gives back with one call.
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
		case gone && state.state != refused && state.state != quarantined || t.release != nil: // Unlock waits for this node's answer
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
		if state.state == refused {
			t.once.Do(func() { close(t.contested) })
		}
	}
	t.look()
	if len(late.cells) > 0 {
		t.giveBack(context.Background(), late)
	}
	if len(leave.cells) > 0 && t.waiter.isFinished() {
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
	case a.Again, !a.Granted && !a.Free && scripts.Base(a.Holder) == t.owner:
		// Only this attempt uses its owner, and nothing is sent twice: so the call has reached this server
		// at another address, too.
		err = fmt.Errorf("%q was acquired here a moment ago: is this the same server as another node, or behind a proxy that sends commands twice?", t.lock.cells[cell].Name)
		return cellState{state: unknown, err: err, twin: true}
	case !a.Granted:
		t.waiter.refused(cell, a)
		return cellState{state: refused, why: a}
	}
	t.lock.saw(a.Token)
	return cellState{state: granted, token: a.Token}
}

// agreeOnToken sets the tenure's token to the highest that a node granted, and makes sure that a
// quorum of the nodes counts on from there. Usually all agree already.
//
// Why tokens rise with every grant: two grants share a node that granted both. Before the first grant was over,
// the counter of that node was at least at the first grant's token, so the second grant got a higher one there.
// Only nodes that granted are raised, and only while the owner holds the lock there: a late raise could set the
// counter to a token that another holder has.
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
		return scripts.Raise(t.lock.cells[cell].Name, t.at(cell), t.lock.set.TTL, own[cell], t.token)
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

// refusal says why the votes were lost: a *HeldError if the refusals alone are enough for that, a *QuorumError if
// the failures are, and both if it took both. ErrNotALock ends the call only if it alone rules out a quorum.
func (t *tenure) refusal() error {
	refusals := make([]Vote, len(t.cells))
	failures := make([]Vote, len(t.cells))
	others := make([]Vote, len(t.cells)) // No where the key is not a lock
	own := t.refusedByItsOwn()
	t.mu.Lock()
	for i, c := range t.cells {
		refusals[i], failures[i], others[i] = Yes, Yes, Yes
		switch c.state {
		case refused:
			if own {
				failures[i] = No
				t.cells[i].err = errors.New("the release of this client's last hold has not arrived yet")
				continue
			}
			refusals[i] = No
		case unknown, quarantined:
			failures[i] = No
			if errors.Is(c.err, quorumlock.ErrNotALock) {
				others[i] = No
			}
		}
	}
	t.mu.Unlock()
	tree := t.lock.tree
	switch {
	case tree.Tally(others) == Lost:
		return &notALock{t.quorumError(t.ballot)}
	case tree.Tally(refusals) == Lost:
		return t.heldError()
	case tree.Tally(failures) == Lost:
		return t.quorumError(t.ballot)
	}
	return errors.Join(t.heldError(), t.quorumError(t.ballot))
}

// refusedByItsOwn reports whether a TryLock was refused only because of holds of this client that have ended.
func (t *tenure) refusedByItsOwn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := false
	for _, c := range t.cells {
		if c.state == refused {
			if own = t.waiter.tries && t.lock.client.ended(scripts.Base(c.why.Holder)); !own {
				return false
			}
		}
	}
	return own
}

// look has the attempt look at what has come. It never blocks: messages are heard with locks held.
func (t *tenure) look() {
	select {
	case t.heard <- struct{}{}:
	default:
	}
}

// isUnclear reports whether a TryLock that was refused should hear more nodes: who has the lock is not known yet.
func (t *tenure) isUnclear() bool {
	if !t.waiter.tries || t.ballot.result() != Lost {
		return false
	}
	t.mu.Lock()
	whole := true
	for _, c := range t.cells {
		whole = whole && c.state != unanswered
	}
	t.mu.Unlock()
	undecided, _ := t.waiter.undecided()
	return undecided && !whole
}

// notALock is the error of an attempt that no waiting helps.
type notALock struct{ *quorumlock.QuorumError }

func (e *notALock) Unwrap() error { return e.QuorumError }

// heldError says who holds the lock, as most of the nodes that refused have it.
func (t *tenure) heldError() *quorumlock.HeldError {
	e := &quorumlock.HeldError{Name: t.lock.name}
	t.mu.Lock()
	defer t.mu.Unlock()
	most := 0
	for _, c := range t.cells {
		if c.state != refused || c.why.Free {
			continue
		}
		who, n := scripts.Base(c.why.Holder), 0
		for _, d := range t.cells {
			if d.state == refused && !d.why.Free && scripts.Base(d.why.Holder) == who {
				n++
			}
		}
		if n > most {
			most, e.Holder, e.TTL = n, who, 0
		}
		if who == e.Holder {
			e.TTL = max(e.TTL, c.why.TTL)
		}
	}
	for _, c := range t.cells {
		if c.state == refused && !t.waiter.tries {
			e.Position = max(e.Position, c.why.Position+1)
		}
	}
	return e
}

// quorumError says how many members b won, and what went wrong at the nodes that failed.
func (t *tenure) quorumError(b *ballot) *quorumlock.QuorumError {
	return &quorumlock.QuorumError{Granted: b.won(), Needed: max(t.lock.tree.Need, 1), Nodes: t.nodeErrors()}
}

// silentErrors names the nodes that have not answered, and failed before.
func (t *tenure) silentErrors() (errs []*quorumlock.NodeError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range t.cells {
		if n := t.lock.cells[i].Node; c.state == unanswered && t.lock.client.health.fails(n) {
			errs = append(errs, &quorumlock.NodeError{Node: n.String(), Err: errors.New("no answer yet, and none the last time")})
		}
	}
	return errs
}

// nodeErrors is what went wrong last at each cell.
func (t *tenure) nodeErrors() (errs []*quorumlock.NodeError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range t.cells {
		if c.err != nil {
			errs = append(errs, nodeError(t.lock.cells[i].Node, c.err))
		}
	}
	return errs
}

func nodeError(n Node, err error) *quorumlock.NodeError {
	if e, ok := errors.AsType[*quorumlock.NodeError](err); ok {
		return e
	}
	return &quorumlock.NodeError{Node: n.String(), Err: err}
}
