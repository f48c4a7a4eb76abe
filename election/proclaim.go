package election

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A round writes the value of a term to the nodes. There is one for each new value, and one every
// third of the TTL, which renews the value. A node accepts a write only from the present holder of
// the lock, and only if no higher token has written: see proclaim.lua.

// round is one attempt to write the value to all nodes. The mutex of its term guards it.
type round struct {
	version uint64
	left    int // nodes that have not answered
	yes     int // nodes that have the value
	errs    []*quorumlock.NodeError
}

// proclaimer is a caller that waits for a version at a quorum.
type proclaimer struct {
	version uint64
	done    chan error // capacity 1
}

// Proclaim changes the value of the leader, and returns when the value is at a quorum of the nodes.
// After that, no call of Leader returns the former value as sure. Of concurrent calls the last one
// wins; the others return with it.
//
// Proclaim returns an error at once if the value is longer than 65,536 bytes. After the term, it
// returns the error of [Term.Err] and changes nothing. It returns a *[quorumlock.QuorumError] if
// too few nodes accepted the value, and ctx's error if ctx is done first. After these two errors
// the nodes may have the value, and the term repeats the write until the term ends or has another
// value.
func (t *Term) Proclaim(ctx context.Context, value string) error {
	if ctx == nil {
		return quorumlock.ErrNilContext
	}
	if err := checkValue(value); err != nil {
		return err
	}
	if err := t.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	t.value = value
	t.version++
	p := t.expect()
	t.mu.Unlock()
	t.signal()
	return t.await(ctx, p)
}

// expect adds a proclaimer of the present version. The caller must hold mu.
func (t *Term) expect() *proclaimer {
	p := &proclaimer{t.version, make(chan error, 1)}
	if t.told >= t.version {
		p.done <- nil
		return p
	}
	t.callers = append(t.callers, p)
	return p
}

func (t *Term) await(ctx context.Context, p *proclaimer) error {
	var err error
	select {
	case err = <-p.done:
	case <-t.ctx.Done():
	case <-ctx.Done():
		err = ctx.Err()
	}
	if over := t.Err(); over != nil {
		return over
	}
	return err
}

// begin starts the keeper, and returns when the first value is at a quorum. It repeats rounds that
// fail. It returns an error when the term is over, or when too many nodes refuse the value for
// good.
func (t *Term) begin(ctx context.Context) error {
	if err := t.election.lock.Client().Go(t.keep); err != nil {
		_ = t.lease.Unlock(context.WithoutCancel(ctx)) // lost with the client
		return err
	}
	need, cells := t.election.lock.Quorum()
	var last error // the last error of a round
	for {
		t.mu.Lock()
		p := t.expect()
		t.mu.Unlock()
		err := t.await(ctx, p)
		if err == nil {
			return nil
		}
		if over := t.Err(); over == nil && !isFinal(err, need, cells) {
			if last == nil {
				t.election.set.Logger.Warn("quorumlock: the value of a new leader is not at a quorum yet, trying again", "lock", t.election.Name(), "owner", t.Owner(), "error", err)
			}
			last = err
			continue
		}
		_ = t.giveUp()
		switch {
		case ctx.Err() != nil && last != nil:
			return errs.Join(ctx.Err(), last)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrResigned): // the client is shutting down: no caller has the term yet
			return quorumlock.ErrClosed
		}
		return err
	}
}

// giveUp ends a term before a caller has it.
func (t *Term) giveUp() error {
	t.end(ErrResigned)
	t.finished()
	<-t.over
	return t.err
}

func (t *Term) signal() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// tell begins a round. A whole round sends the value; others send it only to nodes that ask for it.
func (t *Term) tell(whole bool) {
	_, cells := t.election.lock.Quorum()
	t.mu.Lock()
	r := &round{version: t.version, left: cells}
	whole = whole || t.round == nil
	value := t.value
	t.round = r
	t.mu.Unlock()
	for cell := range cells {
		t.ask(r, cell, value, whole)
	}
}

func (t *Term) ask(r *round, cell int, value string, whole bool) {
	l := t.election.lock
	call := wire.KeepProclaimed(l.Key(cell), t.Owner(), t.election.set.TTL, t.Token(), r.version)
	if whole {
		call = wire.Proclaim(l.Key(cell), t.Owner(), t.election.set.TTL, t.Token(), r.version, value)
	}
	err := l.Ask(cell, call.At(cell), func(reply wire.Reply) {
		p, err := reply.Proclaimed()
		if p == wire.NotThere && !whole && err == nil {
			t.ask(r, cell, value, true)
			return
		}
		t.answered(r, cell, p == wire.Proclaimed && err == nil, err)
	})
	if err != nil {
		t.answered(r, cell, false, err)
	}
}

// answered counts the answer of a node.
func (t *Term) answered(r *round, cell int, yes bool, err error) {
	need, cells := t.election.lock.Quorum()
	t.mu.Lock()
	r.left--
	if err != nil {
		r.errs = append(r.errs, t.election.lock.NodeError(cell, err))
	}
	if yes {
		r.yes++
	}
	if r.yes == need && yes {
		t.decide(r, nil)
	}
	over := r.left == 0 && r == t.round
	if over {
		t.due = time.Now().Add(t.pause(r.yes, need, cells))
		if r.yes < need {
			t.decide(r, &quorumlock.QuorumError{Granted: r.yes, Needed: need, Nodes: r.errs})
		}
	}
	t.mu.Unlock()
	if over {
		t.signal()
	}
}

// decide answers the proclaimers of the round's version and of earlier versions. The caller must
// hold mu.
func (t *Term) decide(r *round, err error) {
	if err == nil {
		t.told = max(t.told, r.version)
	}
	rest := t.callers[:0]
	for _, p := range t.callers {
		if p.version > r.version {
			rest = append(rest, p)
			continue
		}
		p.done <- err
	}
	clear(t.callers[len(rest):])
	t.callers = rest
}

// pause returns the time until the next round. It is short while a node lacks the value.
func (t *Term) pause(yes, need, cells int) time.Duration {
	ttl := t.election.set.TTL
	switch {
	case yes == cells:
		return ttl / 3
	case yes >= need:
		return ttl / 12
	}
	return max(ttl/48, 5*time.Millisecond)
}

// withdraw deletes the value at the nodes. At an unreachable node the key ends with its TTL. It
// does not count until then, because its owner does not hold the lock.
func (t *Term) withdraw() {
	l := t.election.lock
	_, cells := l.Quorum()
	for cell := range cells {
		_ = l.Ask(cell, wire.Withdraw(l.Key(cell), t.Owner()).At(cell), func(wire.Reply) {})
	}
}
