package redlock

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
)

// Semaphore is a lock for up to k holders at one time, over a majority of the client's nodes. It
// has k slots, and each holder has one of them: [quorumlock.Lease.Slot]. It is a
// [quorumlock.Locker], safe for concurrent use; its zero value is not usable.
//
// # Order
//
// Callers are served in the order of their calls, fleet-wide. A release hands its slot to the first
// in the queue. If other slots are free as well, the release notifies the first instead, with the
// number of the released slot. The first then usually asks for that slot. The slot of a dead holder
// is free after its TTL.
//
// If slots are held for hardly longer than a round trip, releases reach the nodes in different
// orders, and callers are granted different slots at different nodes. Then a grant takes more
// attempts, and a slow or dead node makes the semaphore slower: fewer nodes are left for a
// majority.
//
// # Several permits
//
// [Semaphore.LockN] takes n slots as one lease, all or none. Its [quorumlock.Lease.Slots] has a
// fencing token for each slot. The lease lasts for as long as it has all slots: if one is lost, the
// lease is lost, and the others are released. The lease cannot be detached, and n greater than 1
// cannot be combined with [quorumlock.WithOwner]. An Observer gets the events of each slot, with
// the time since the call of LockN; or one event, if LockN fails before it enters the queue.
//
// Of all calls of LockN, one collects slots at a time, in the order of the calls, so they do not
// deadlock. It waits in the queue like n calls of Lock at the same time, so a large n does not
// starve. The other calls of LockN wait outside the queue. Until a LockN enters the queue, later
// callers may take slots that the collecting call does not need. A collecting LockN keeps its slots
// while it waits for more. They are renewed, also with [quorumlock.WithoutRenewal]. Close and
// Shutdown release them.
//
// # Tokens
//
// The fencing token of a lease is higher than that of every earlier lease of the same slot. Tokens
// of different slots cannot be compared. So a resource must compare tokens for each slot, such as
// the n-th connection of a pool.
//
// # Why it is sound
//
// Counting permits at each node would be unsound: three nodes with two permits each can make three
// majorities. So a hold is of one slot, and needs a majority of nodes that have granted that slot
// to its owner. Every node grants a slot to one owner at a time, as with a mutex. Two majorities
// share a node, so a slot has one holder, and k slots have k holders. Grants of different slots do
// not make a majority together; a node that granted another slot than most counts as a refusal. The
// argument of a Mutex for nodes that forget applies to each slot. So does the argument for its
// tokens: each slot has a counter of its own at each node.
//
// # Different numbers of permits
//
// All users of a semaphore must pass the same k. While it has a holder, a caller or waiter with
// another k gets [quorumlock.ErrMismatch], with both numbers, and no slot. Once it has no holder,
// the next caller's k counts.
//
// # Re-entry
//
// Lock with a ctx that descends from a lease enters that lease again: it takes no second slot. LockN
// enters n slots that ctx has. If ctx has some, but fewer, LockN returns [quorumlock.ErrDeadlock].
// To take two slots, use LockN, or contexts that do not descend from one another.
type Semaphore struct {
	member
	mutex *Mutex
}

var _ quorumlock.Locker = (*Semaphore)(nil)

// Semaphore returns the semaphore of that name, with 1 to 1,000 permits. It does
// no I/O and starts no goroutine. If the name, permits or an option is invalid, the methods of the
// Semaphore return an error that matches [quorumlock.ErrMisuse]. If the name belongs to another
// kind, or was that of a mutex within the last few minutes, its methods return
// [quorumlock.ErrWrongKind]; if others use it with another number, [quorumlock.ErrMismatch].
func (c *Client) Semaphore(name string, permits int, opts ...quorumlock.Option) *Semaphore {
	cell, err := client.SlotsOf(permits)
	m := c.mutex(name, cell, err, opts)
	return &Semaphore{m.member, m}
}

// Name returns the name of the semaphore, without its prefix.
func (s *Semaphore) Name() string { return s.mutex.Name() }

// Lock acquires a slot. It implements [quorumlock.Locker].
func (s *Semaphore) Lock(ctx context.Context) (*quorumlock.Lease, error) { return s.mutex.Lock(ctx) }

// TryLock acquires a slot without waiting. It implements [quorumlock.Locker]. If no slot is free,
// it returns a *[quorumlock.HeldError] with one of the holders.
func (s *Semaphore) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	return s.mutex.TryLock(ctx)
}

// LockN acquires n slots: all or none. It is Lock for an n of 1, and otherwise as documented under
// Several permits. If n is less than 1 or more than the permits, it returns an error that matches
// [quorumlock.ErrMisuse].
func (s *Semaphore) LockN(ctx context.Context, n int) (*quorumlock.Lease, error) {
	return s.mutex.lock.LockN(ctx, n)
}

// TryLockN is LockN without waiting: if fewer than n slots are free, it returns a
// *[quorumlock.HeldError]. Of several callers at the same time, one acquires its slots if as many
// are free: they take turns, so a call may take three node timeouts more than n calls of TryLock.
func (s *Semaphore) TryLockN(ctx context.Context, n int) (*quorumlock.Lease, error) {
	return s.mutex.lock.TryLockN(ctx, n)
}
