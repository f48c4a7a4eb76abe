package wire

import (
	"errors"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/options"
)

// Terms are the settings shared by all calls on one lock.
type Terms struct {
	TTL        time.Duration
	HandTTL    time.Duration // of a handoff; 0 if nothing may be handed over
	Quarantine time.Duration // of the restart guard; 0 if there is none
	Several    bool          // it is a MultiLock
}

const (
	// maxHandTTL caps the TTL of a handoff: if the new holder is dead, the next waiter waits this
	// long. The TTL counts from the waiter's last attempt, which is no older than fresh. So more
	// than a second of maxHandTTL is left.
	maxHandTTL = 1800 * time.Millisecond
	fresh      = 650 * time.Millisecond // FRESH in queue.lua
)

// TermsOf returns the terms of a lock with these settings. With HandTTL 0 nothing is handed over.
// It is 0 without renewal, and if a renewal might come too late. It is 0 under the restart guard,
// too, since a node hands over without checking itself.
func TermsOf(set *options.Settings) Terms {
	t := Terms{TTL: set.TTL, HandTTL: min(set.TTL, maxHandTTL), Quarantine: options.Quarantine(set)}
	if !set.Renew || t.Quarantine > 0 || set.Drift.Validity(t.HandTTL, min(fresh, t.HandTTL/2)) < set.NodeTimeout {
		t.HandTTL = 0
	}
	return t
}

// Cells are the cells of a lock. They have numbers from 0.
type Cells interface {
	Cells() int
	NameOf(cell int) string
	Shares(cell int) bool // whether the lock shares it with others
}

// around returns the first and the last of the cells around one that have the same name. Two of
// them may be at one server, under different addresses.
func around(cells Cells, cell int) (first, last int) {
	first, last = cell, cell
	for name := cells.NameOf(cell); first > 0 && cells.NameOf(first-1) == name; first-- {
	}
	for name := cells.NameOf(cell); last+1 < cells.Cells() && cells.NameOf(last+1) == name; last++ {
	}
	return first, last
}

// Caller is one call of Lock or TryLock, as the nodes know it.
type Caller struct {
	Waiter quorumlock.Owner
	First  quorumlock.Owner // owner of the first attempt, in Waiter's memory; may be empty
	Ticket int64
	Secret string           // proves that a handoff comes from a node; empty for a TryLock
	Parked quorumlock.Owner // for whom a Detach parks the hold; valid from then on
	Former quorumlock.Owner // from whom an Attach takes the hold
}

// Script returns a call in the form of the nodes. owner is that of its attempt, see Owner. For an
// Acquire, hint is the least token to ask for. For an Acquire and a Yield, e is the entry, to which
// Script adds the successor; e must not change until the call is sent.
func (c *Caller) Script(t *Terms, cells Cells, k *core.Call, owner quorumlock.Owner, e *Entry, hint uint64) Call {
	if k.Do.Queues() {
		// Contenders that have met, readers included, all yield to the lowest ticket: so readers
		// wait behind such a TryLock, too.
		e.Successor, e.Passable = Successor{}, c.Secret == "" && !k.Contends
		if e.Several = t.Several; c.Secret != "" {
			e.Successor = Successor{Attempt: int(k.Attempt), TTL: t.HandTTL, Cell: int(k.Cell), Secret: c.Secret}
		}
	}
	cell := int(k.Cell)
	call := c.script(t, cells.NameOf(cell), k, owner, e, hint)
	if k.Shared || cells.Shares(cell) {
		if call = call.Shared().Among(around(cells, cell)); t.Several && k.Do == core.Release {
			call = call.Lends()
		}
	}
	if k.Do == core.Acquire || k.Do == core.Restore || k.Do == core.Attach {
		call = call.Guarded(t.Quarantine)
	}
	return call
}

func (c *Caller) script(t *Terms, name string, k *core.Call, owner quorumlock.Owner, e *Entry, hint uint64) Call {
	cell := int(k.Cell)
	switch k.Whose {
	case core.Parked:
		owner = c.Parked
	case core.Former:
		owner, cell = c.Former, int(k.Of)
	}
	switch k.Do {
	case core.Park:
		return Park(name, owner, c.Parked, k.For, cell)
	case core.Attach:
		return Attach(name, owner, c.Former, k.Token, cell, int(k.Of))
	case core.Return:
		return Return(name, owner, c.Former, cell, int(k.Of))
	case core.Acquire:
		return AcquireQueued(name, owner, t.TTL, hint, e, cell).At(cell)
	case core.Raise:
		return Raise(name, owner, t.TTL, k.From, k.Token).At(cell)
	case core.Yield:
		return Yield(name, owner, *e).At(cell)
	case core.Release:
		return Release(name, owner, 1).At(cell)
	case core.ReleaseAndLeave:
		return ReleaseAndLeave(name, owner, c.Waiter, k.All).At(cell)
	case core.Leave:
		return Leave(name, c.Waiter, k.All).Through(int(k.Attempt), cell)
	case core.Restore:
		return Restore(name, owner, t.TTL, k.Token).At(cell)
	case core.Keep:
		return Renew(name, owner, k.For).At(cell)
	}
	ttl := max(t.TTL, k.For)
	if k.Shared {
		return Downgrade(name, owner, ttl).At(cell)
	}
	return Renew(name, owner, ttl).At(cell)
}

// Owner is the owner of an attempt, or its successor.
func (c *Caller) Owner(attempt int32, successor bool) quorumlock.Owner {
	switch {
	case successor:
		return SuccessorOf(c.Waiter, int(attempt))
	case attempt == 1 && c.First != "":
		return c.First
	}
	return OwnerOf(c.Waiter, int(attempt))
}

// Read reads the reply to a call. ended reports whether an owner is one of this client's that
// neither holds nor is trying to.
func (c *Caller) Read(k *core.Call, reply Reply, ended func(quorumlock.Owner) bool) core.Reply {
	var r core.Reply
	switch k.Do {
	case core.Acquire, core.Restore:
		var a Answer
		a, r.Err = reply.Acquired()
		r.OK, r.Again, r.Token, r.Slot = a.Granted, a.Again, a.Token, int32(a.Slot)
		if r.Err == nil && !a.Granted {
			who := Base(a.Holder)
			r.Holder, r.Shared, r.Free, r.Elsewhere, r.TTL, r.Position = who, a.Shared, a.Free, a.Elsewhere, a.TTL, a.Position
			r.Ours = !a.Free && who == c.Owner(k.Attempt, k.Successor)
			r.Ended = !a.Shared && ended(who) // others may share the lock
			r.Again = r.Ours && a.Holder == OfCell(who, int(k.Cell))
		}
	case core.Yield:
		var slot int
		r.First, slot, r.Err = reply.Yielded()
		r.Slot = int32(slot)
	case core.Park, core.Attach, core.Return:
		var p Transferred
		p, r.Err = reply.Transferred()
		r.OK, r.Again, r.Rival, r.Token, r.Left, r.Holder = p.OK, p.Again, p.Other != "", p.Token, p.Left, Base(p.Other)
		if r.Moved = r.Holder != "" && r.Holder == c.Former; r.Moved {
			r.Of = cellOf(p.Other)
		}
	case core.Release, core.ReleaseAndLeave:
		_, r.OK, r.Err = reply.Released()
	default:
		r.OK, r.Err = reply.Done()
	}
	if r.Err != nil {
		r.Unsent, r.Broken = IsUnsent(r.Err), IsBroken(r.Err)
		r.WrongUse, r.Quarantined = IsWrongUse(r.Err), errors.Is(r.Err, quorumlock.ErrQuarantined)
	}
	return r
}

// IsBroken reports whether the connection of a call has ended, though not for silence.
func IsBroken(err error) bool {
	_, ok := errors.AsType[interface {
		error
		Broken()
	}](err)
	return ok
}

// IsUnsent reports whether a call that failed has certainly not run, and never will.
func IsUnsent(err error) bool {
	_, ok := errors.AsType[interface {
		error
		NotSent()
	}](err)
	return ok
}
