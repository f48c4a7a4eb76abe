package transport

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Each request of a method ends when ctx is done, or after the node's timeout. Names that ValidateName refuses are refused before anything is sent.

// Acquire does the work of node.Node.Acquire.
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
			return nil // the owner keeps its earlier hold
		}
		undo := wire.Release(name, owner, hold)
		return &undo
	})
	a, err := r.Acquired()
	return a, n.typed(err)
}

// Renew does the work of node.Node.Renew.
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

// Release does the work of node.Node.Release.
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

// ForceRelease frees the lock of any holder, or all slots of a semaphore, and reports whether there
// was a holder. The holder learns of it when it renews.
func (n *Node) ForceRelease(ctx context.Context, name string) (bool, error) {
	held, err := ask(ctx, n, name, wire.ForceRelease(name), wire.Reply.Done)
	if wire.IsSemaphore(err) {
		return ask(ctx, n, name, wire.ForceRelease(name).OfSemaphore(0, 0), wire.Reply.Done)
	}
	return held, err
}

// maxWaiters limits the waiters in the result of Inspect.
const maxWaiters = 100

// Inspect returns the holders of the lock, or of the slots of a semaphore, with their counts, the
// remaining TTL, the last fencing token, and the queue: its length, and its first hundred waiters.
// A second script reads the data of the holder.
func (n *Node) Inspect(ctx context.Context, name string) (quorumlock.State, error) {
	s, _, err := n.InspectKind(ctx, name)
	return s, err
}

// InspectKind is Inspect, and reports whether the name is a semaphore's.
func (n *Node) InspectKind(ctx context.Context, name string) (s quorumlock.State, semaphore bool, err error) {
	if err := n.checkCall(ctx, name); err != nil {
		return s, false, err
	}
	rs := n.calls(ctx, []wire.Call{wire.Inspect(name, maxWaiters), wire.Leader(name)}, nil)
	s, err = rs[0].Inspected()
	if led, failed := rs[1].Led(); failed == nil && s.Owner != "" && wire.Base(led.Holder) == s.Owner {
		s.Data = led.Value // unless the holder has changed between the scripts
	}
	if semaphore = wire.IsSemaphore(err); semaphore {
		s, err = ask(ctx, n, name, wire.Inspect(name, maxWaiters).OfSemaphore(0, 0), wire.Reply.InspectedSlots)
	}
	return s, semaphore, n.typed(err)
}

// ask makes a call that concerns no owner, and reads its reply.
func ask[T any](ctx context.Context, n *Node, name string, c wire.Call, read func(wire.Reply) (T, error)) (T, error) {
	if err := n.checkCall(ctx, name); err != nil {
		return *new(T), err
	}
	v, err := read(n.call(ctx, c, nil))
	return v, n.typed(err)
}

// ReleaseOwner frees all that an owner, as Inspect names it, has of a lock or a semaphore. found
// reports whether it had something. An owner is used for one hold, so a late call harms no other.
func (n *Node) ReleaseOwner(ctx context.Context, name string, owner quorumlock.Owner) (found bool, err error) {
	if err := n.checkEntry(ctx, name, owner, 1); err != nil {
		return false, err
	}
	of := func(c wire.Call) wire.Call { return c }
	r := n.call(ctx, wire.Inspect(name, 0), nil)
	_, err = r.Inspected()
	if wire.IsSemaphore(err) {
		of = func(c wire.Call) wire.Call { return c.OfSemaphore(0, 0) }
		r = n.call(ctx, of(wire.Inspect(name, 0)), nil)
		_, err = r.InspectedSlots()
	}
	if err != nil {
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

// Ready tests whether the node would grant the lock name, which no caller uses, and returns the
// round trip. It leaves no keys. s has the prefix of the locks and the restart guard. Ready returns
// when ctx is done, or after the node's timeout. The error is a *[quorumlock.NodeError] with the
// reason of a refusal: the node is unreachable, a replica, out of memory, the wrong shard or
// quarantined, or denies the user a command. Ready needs only the permissions of a lock.
func (n *Node) Ready(ctx context.Context, s options.Settings, name string) (time.Duration, error) {
	if ctx == nil {
		return 0, quorumlock.ErrNilContext
	}
	asked := time.Now()
	err := n.call(ctx, wire.Ready(s.Prefix+name, options.Quarantine(&s)), nil).Readied()
	return time.Since(asked), n.typed(err)
}

// checkCall returns the error of a nil ctx or a wrong name.
func (n *Node) checkCall(ctx context.Context, name string) error {
	if ctx == nil {
		return quorumlock.ErrNilContext
	}
	return n.ValidateName(name)
}

// checkEntry is checkCall for calls of an owner. An owner of a form that Acquire refuses can be
// renewed and released, because such a hold may exist.
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

// call sends one script, and waits for the reply until ctx is done, or for the node's timeout. undo
// returns the call to send after a reply without a waiting caller.
func (n *Node) call(ctx context.Context, c wire.Call, undo func(wire.Reply) *wire.Call) wire.Reply {
	return n.calls(ctx, []wire.Call{c}, undo)[0]
}

// calls is call for several scripts, in one request. undo gets the first reply.
func (n *Node) calls(ctx context.Context, calls []wire.Call, undo func(wire.Reply) *wire.Call) []wire.Reply {
	failed := func(err error) []wire.Reply { return slices.Repeat([]wire.Reply{{Err: err}}, len(calls)) }
	if err := ctx.Err(); err != nil {
		return failed(n.Failure(err, false))
	}
	err := n.locks.Begin()
	if err != nil {
		return failed(err)
	}
	answered := make(chan []wire.Reply, 1)
	var taken atomic.Bool // by the caller, or by undo
	n.Do(ctx, client.Foreground, n.config.Timeout, calls, func(rs []wire.Reply) {
		all := make([]wire.Reply, len(rs))
		for i := range rs {
			all[i] = rs[i].Boxed()
		}
		if taken.CompareAndSwap(false, true) {
			answered <- all
			n.locks.End()
			return
		}
		if undo != nil {
			if u := undo(all[0]); u != nil {
				n.Do(ctx, client.Foreground, n.config.Timeout, []wire.Call{*u}, func([]wire.Reply) { n.locks.End() })
				return
			}
		}
		n.locks.End()
	})
	select {
	case all := <-answered:
		return all
	case <-ctx.Done():
		if taken.CompareAndSwap(false, true) {
			return failed(n.Failure(ctx.Err(), false))
		}
		return <-answered
	}
}

// typed returns the error of an unreadable reply as an error of this node, and others unchanged.
func (n *Node) typed(err error) error {
	if _, ok := errors.AsType[*quorumlock.NodeError](err); err == nil || ok || errors.Is(err, quorumlock.ErrClosed) {
		return err
	}
	return &quorumlock.NodeError{Node: n.String(), Err: err}
}
