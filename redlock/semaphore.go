package redlock

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// Semaphore lets up to k holders in at one time, over a majority of the client's nodes. It has k slots, and each holder has one
// of them: [quorumlock.Lease.Slot]. It is a [quorumlock.Locker], safe for concurrent use; its zero value is not usable.
//
// # Order
//
// Callers are served in the order in which they called, fleet-wide. A release hands its slot to the first in the queue. If
// other slots are free as well, it wakes the first instead and tells it which slot was released. The first then usually asks for that slot.
// The slot of a holder that died is free when its TTL is over.
//
// If slots are held for hardly longer than a round trip, releases reach the nodes in different orders, and callers are granted
// different slots at different nodes. Then a grant takes more attempts, and a node that is slow or down makes the semaphore
// slower: fewer nodes are left to make a majority.
//
// # Tokens
//
// The fencing token of a lease is higher than that of every earlier lease of the same slot. Tokens of different slots cannot be
// compared. So a resource that compares tokens has to do so for each slot, such as the n-th connection of a pool.
//
// # Why it is sound
//
// To count permits at each node would be unsound: three nodes that each let two in can make three majorities. So a hold is of one
// slot, and needs a majority of nodes that have given that slot to its owner. Every node gives a slot to one owner at a time, as it
// does with a mutex. Two majorities have a node in common, so a slot has one holder, and k slots have k holders. Nodes that
// gave an owner different slots do not make a majority; those that gave another slot than most count as if they had
// refused. What holds for a Mutex while nodes forget holds for each slot for the same reason, and so does the order of its tokens:
// each slot has a counter of its own at each node.
//
// # Different numbers of permits
//
// All who use a semaphore should give the same k. If they do not, nobody is given a slot beyond its own k. The one with the
// greater k uses slots that the others do not know, so up to the greatest k are in. A waiter with a smaller k, all of whose slots are
// taken, may be passed by one behind it with a greater k, which may come later by up to 0.6 s for it.
//
// # Re-entry
//
// With a ctx that descends from a lease, Lock enters that lease again: it takes no second slot. Take two slots with contexts that
// do not descend from one another.
type Semaphore struct {
	member
	mutex *Mutex
}

var _ quorumlock.Locker = (*Semaphore)(nil)

// Semaphore returns the semaphore of that name, with 1 to [quorumlock.MaxPermits] permits. It costs nothing and starts nothing. If
// the name, permits or an option is bad, its calls return an error that says so. If the name belongs to another kind, or was
// that of a mutex within the last day, they return [quorumlock.ErrWrongKind].
func (c *Client) Semaphore(name string, permits int, opts ...quorumlock.Option) *Semaphore {
	cell, err := quorum.SlotsOf(permits)
	m := c.mutex(name, cell, err, opts)
	return &Semaphore{m.member, m}
}

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string { return s.mutex.Name() }

// Lock acquires a slot, as [quorumlock.Locker] says.
func (s *Semaphore) Lock(ctx context.Context) (*quorumlock.Lease, error) { return s.mutex.Lock(ctx) }

// TryLock acquires a slot without waiting, as [quorumlock.Locker] says. It is refused if no slot is free. A
// *[quorumlock.HeldError] names one of the holders.
func (s *Semaphore) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	return s.mutex.TryLock(ctx)
}

// Inspect is [Mutex.Inspect]: it shows who has which slot.
func (s *Semaphore) Inspect(ctx context.Context) (Inspection, error) { return s.mutex.Inspect(ctx) }

// ForceUnlock is [Mutex.ForceUnlock]: it frees all slots.
func (s *Semaphore) ForceUnlock(ctx context.Context) error { return s.mutex.ForceUnlock(ctx) }

// ForceUnlockOwner is [Mutex.ForceUnlockOwner]: it frees the slot of that owner.
func (s *Semaphore) ForceUnlockOwner(ctx context.Context, owner quorumlock.Owner) error {
	return s.mutex.ForceUnlockOwner(ctx, owner)
}
