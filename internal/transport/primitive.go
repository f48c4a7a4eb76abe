package transport

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The methods of this file are one script each, sent once. They return when ctx is done, or after the node's timeout. Names that
// CheckName refuses are refused before anything is sent.

// Acquire is that of node.Node.
func (n *Node) Acquire(ctx context.Context, name string, owner quorumlock.Owner, ttl time.Duration, hold int) (wire.Answer, error) {
	if err := n.checkEntry(ctx, name, owner, hold); err != nil {
		return wire.Answer{}, err
	}
	if err := owner.Validate(); err != nil {
		return wire.Answer{}, err
	}
	if ttl < quorumlock.MinTTL {
		return wire.Answer{}, errs.Misusef("quorumlock: Acquire: ttl %v is too short: use at least %v", ttl, quorumlock.MinTTL)
	}
	r := n.call(ctx, wire.Acquire(name, owner, ttl, hold, n.locks.Hint()), func(r wire.Reply) *wire.Call {
		if a, err := r.Acquired(); err != nil || !a.Granted || a.Again {
			return nil // what the owner had before is not this call's to take away
		}
		undo := wire.Release(name, owner, hold)
		return &undo
	})
	a, err := r.Acquired()
	return a, n.typed(err)
}

// Renew is that of node.Node.
func (n *Node) Renew(ctx context.Context, name string, owner quorumlock.Owner, ttl time.Duration) (bool, error) {
	if err := n.checkEntry(ctx, name, owner, 1); err != nil {
		return false, err
	}
	if ttl < quorumlock.MinTTL {
		return false, errs.Misusef("quorumlock: Renew: ttl %v is too short: use at least %v", ttl, quorumlock.MinTTL)
	}
	ok, err := n.call(ctx, wire.Renew(name, owner, ttl), nil).Done()
	return ok, n.typed(err)
}

// Release is that of node.Node.
func (n *Node) Release(ctx context.Context, name string, owner quorumlock.Owner, hold int) (left int, err error) {
	if err := n.checkEntry(ctx, name, owner, hold); err != nil {
		return 0, err
	}
	left, held, err := n.call(ctx, wire.Release(name, owner, hold), nil).Released()
	if err == nil && !held {
		return 0, quorumlock.ErrNotHeld
	}
	return left, n.typed(err)
}

// ForceRelease frees the lock, whoever holds it, and reports whether somebody did. The holder learns
// of it when it renews.
func (n *Node) ForceRelease(ctx context.Context, name string) (bool, error) {
	if err := n.checkCall(ctx, name); err != nil {
		return false, err
	}
	ok, err := n.call(ctx, wire.ForceRelease(name), nil).Done()
	return ok, n.typed(err)
}

// maxWaiters is how many waiters Inspect names.
const maxWaiters = 100

// Inspect returns who holds the lock, how often, for how long yet, the last fencing token, and the
// queue: the number of waiters, and the first hundred of them.
func (n *Node) Inspect(ctx context.Context, name string) (quorumlock.State, error) {
	if err := n.checkCall(ctx, name); err != nil {
		return quorumlock.State{}, err
	}
	s, err := n.call(ctx, wire.Inspect(name, maxWaiters), nil).Inspected()
	return s, n.typed(err)
}

// InspectSemaphore is Inspect for a semaphore: it returns who has which slot.
func (n *Node) InspectSemaphore(ctx context.Context, name string) (quorumlock.State, error) {
	if err := n.checkCall(ctx, name); err != nil {
		return quorumlock.State{}, err
	}
	s, err := n.call(ctx, wire.Inspect(name, maxWaiters).OfSemaphore(0, 0), nil).InspectedSlots()
	return s, n.typed(err)
}

// ForceReleaseSemaphore is ForceRelease for a semaphore: it frees all slots, and reports whether somebody had one.
func (n *Node) ForceReleaseSemaphore(ctx context.Context, name string) (bool, error) {
	if err := n.checkCall(ctx, name); err != nil {
		return false, err
	}
	ok, err := n.call(ctx, wire.ForceRelease(name).OfSemaphore(0, 0), nil).Done()
	return ok, n.typed(err)
}

// ReleaseOwner frees what one owner has of a lock or a semaphore, as Inspect names the owner, and reports whether the owner had something. The
// owner of a hold is used once, so a late call takes nothing from anybody else.
func (n *Node) ReleaseOwner(ctx context.Context, name string, owner quorumlock.Owner, semaphore bool) (found bool, err error) {
	if err := n.checkEntry(ctx, name, owner, 1); err != nil {
		return false, err
	}
	of, read := func(c wire.Call) wire.Call { return c }, wire.Reply.Inspected
	if semaphore {
		of, read = func(c wire.Call) wire.Call { return c.OfSemaphore(0, 0) }, wire.Reply.InspectedSlots
	}
	r := n.call(ctx, of(wire.Inspect(name, 0)), nil)
	if _, err := read(r); err != nil {
		return false, n.typed(err)
	}
	for _, field := range r.Fields(owner) {
		_, held, err := n.call(ctx, of(wire.Release(name, field, 1)), nil).Released()
		if err != nil {
			return found, n.typed(err)
		}
		found = found || held
	}
	return found, nil
}

// checkCall refuses what no call can work with.
func (n *Node) checkCall(ctx context.Context, name string) error {
	if ctx == nil {
		return quorumlock.ErrNilContext
	}
	return n.CheckName(name)
}

// checkEntry is checkCall for calls of an owner. An owner of another form than Acquire takes may have been there
// before: it can be renewed and released.
func (n *Node) checkEntry(ctx context.Context, name string, owner quorumlock.Owner, hold int) error {
	if err := n.checkCall(ctx, name); err != nil {
		return err
	}
	switch {
	case owner == "":
		return errs.Misuse("quorumlock: the owner is empty: use quorumlock.NewOwner")
	case hold < 1:
		return errs.Misusef("quorumlock: hold is %d: use 1 to acquire or release, 2 and up to re-enter", hold)
	}
	return nil
}

// call sends one script and waits for it no longer than ctx and the node's timeout. undo says what to
// send after an answer whose caller has gone before it came.
func (n *Node) call(ctx context.Context, c wire.Call, undo func(wire.Reply) *wire.Call) wire.Reply {
	if err := ctx.Err(); err != nil {
		return wire.Reply{Err: n.Failure(err, false)}
	}
	err := n.locks.Begin()
	if err != nil {
		return wire.Reply{Err: err}
	}
	answered := make(chan wire.Reply, 1)
	var taken atomic.Bool // by the caller, or by undo
	n.Do(ctx, quorum.Foreground, time.Now().Add(n.config.Timeout), []wire.Call{c}, func(rs []wire.Reply) {
		r := rs[0].Boxed()
		if taken.CompareAndSwap(false, true) {
			answered <- r
			n.locks.End()
			return
		}
		if undo != nil {
			if u := undo(r); u != nil {
				n.Do(ctx, quorum.Foreground, time.Now().Add(n.config.Timeout), []wire.Call{*u}, func([]wire.Reply) { n.locks.End() })
				return
			}
		}
		n.locks.End()
	})
	select {
	case r := <-answered:
		return r
	case <-ctx.Done():
		if taken.CompareAndSwap(false, true) {
			return wire.Reply{Err: n.Failure(ctx.Err(), false)}
		}
		return <-answered
	}
}

// typed makes a reply that could not be read an error of this node, as the others are.
func (n *Node) typed(err error) error {
	if _, ok := errors.AsType[*quorumlock.NodeError](err); err == nil || ok || errors.Is(err, quorumlock.ErrClosed) {
		return err
	}
	return &quorumlock.NodeError{Node: n.config.Name, Err: err}
}
