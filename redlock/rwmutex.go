package redlock

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// RWMutex is a read-write lock over a majority of the client's nodes. Any number of readers share it, or one writer holds it.
// It is safe for concurrent use; its zero value is not usable. As a [quorumlock.Locker] it is its writer; [RWMutex.RLocker] is
// its reader. Its write side is the [Mutex] of the same name: each excludes the other.
//
// # Order
//
// Readers and writers are served in the order in which they called, fleet-wide: a reader that calls after a waiting writer
// waits for it. A release hands the lock to the first in the queue, and if that is a reader, to all readers before the first
// writer at once. A reader that dies delays a writer by no more than the reader's TTL: each has a deadline of its own at
// every node.
//
// # Tokens
//
// A writer's token is a Mutex's: higher than that of every earlier writer. A reader's token is at least that of the last
// writer before it, and lower than that of every later one. So a resource that compares tokens knows, when it refuses a
// reader, that a later writer has been there.
//
// # Why it is sound
//
// A reader and a writer, and two writers, conflict at every node, as two owners of a Mutex do; two readers conflict at none.
// Two quorums have a node in common, so of two owners that conflict only one has a quorum. What holds for a Mutex while
// nodes forget holds here for the same reason. A reader's token is the highest counter among its quorum, which has a node in
// common with the quorum that counted for the last writer; and it is written to a quorum before the reader has the lock, so
// that a later writer counts on from it.
//
// # Re-entry
//
// With a ctx that descends from a lease, a reader enters its own lease, or a writer's, again, even if another writer waits.
// The reverse would wait for itself: Lock with the ctx of a reader's lease returns [quorumlock.ErrUpgrade] at once. A writer
// becomes a reader with [RWMutex.Downgrade].
type RWMutex struct {
	member         // the writer
	writer, reader *Mutex
}

var _ quorumlock.Locker = (*RWMutex)(nil)

// RWMutex returns the read-write lock of that name. It costs nothing and starts nothing. If the name or an option is bad, its
// calls return an error that says so.
func (c *Client) RWMutex(name string, opts ...quorumlock.Option) *RWMutex {
	writer := c.mutex(name, quorum.Cell{}, nil, opts)
	return &RWMutex{writer.member, writer, c.mutex(name, quorum.Cell{Shared: true}, nil, opts)}
}

// Name returns the name of the lock.
func (m *RWMutex) Name() string { return m.writer.Name() }

// Lock acquires the lock for a writer, as [quorumlock.Locker] says. If ctx descends from a reader's lease of this lock, or the
// owner of [quorumlock.WithOwner] has one, it returns [quorumlock.ErrUpgrade].
func (m *RWMutex) Lock(ctx context.Context) (*quorumlock.Lease, error) { return m.writer.Lock(ctx) }

// TryLock is Lock without waiting, as [quorumlock.Locker] says.
func (m *RWMutex) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	return m.writer.TryLock(ctx)
}

// RLock acquires the lock for a reader. It does what [quorumlock.Locker] says of Lock, but shares the lock with other readers.
func (m *RWMutex) RLock(ctx context.Context) (*quorumlock.Lease, error) { return m.reader.Lock(ctx) }

// TryRLock is RLock without waiting: if a writer holds the lock, waits for it in a call of Lock, or contends for it at the same
// time in a call of TryLock, it returns a *[quorumlock.HeldError].
func (m *RWMutex) TryRLock(ctx context.Context) (*quorumlock.Lease, error) {
	return m.reader.TryLock(ctx)
}

// RLocker returns the reader's side as a Locker, for [quorumlock.Do] and for multilock.New.
func (m *RWMutex) RLocker() quorumlock.Locker { return m.reader }

// Downgrade makes a writer's lease a reader's, without a moment in which another writer could have the lock. The lease and
// its token stay the same. From the call on, the caller must not count on being alone. Readers that wait get the lock at once.
//
// It returns [quorumlock.ErrNotHeld] if the lease was unlocked, [quorumlock.ErrLost] if it is lost, and an error that says so
// if it is a reader's, is of another lock, or is not the only lease of its hold. With a nil ctx it returns
// [quorumlock.ErrNilContext], and with one that is already done, ctx's error; neither changes anything.
//
// It returns a *[quorumlock.QuorumError] if too few nodes answered, and ctx's error if ctx is done meanwhile: then the lease is
// a reader's, too, but readers may have to wait until the nodes have heard of it, with the next renewal. A second call only says
// that the lease is a reader's. To try again at once, call [quorumlock.Lease.Extend], which tells the nodes as well. With
// [quorumlock.WithoutRenewal] nothing else does.
func (m *RWMutex) Downgrade(ctx context.Context, lease *quorumlock.Lease) error {
	return m.writer.lock.Downgrade(ctx, lease)
}

// Inspect is [Mutex.Inspect]: it shows the writer, or the readers.
func (m *RWMutex) Inspect(ctx context.Context) (Inspection, error) { return m.writer.Inspect(ctx) }

// ForceUnlock is [Mutex.ForceUnlock]: it frees the lock, whoever holds or shares it.
func (m *RWMutex) ForceUnlock(ctx context.Context) error { return m.writer.ForceUnlock(ctx) }

// ForceUnlockOwner is [Mutex.ForceUnlockOwner]: it frees one writer, or one reader.
func (m *RWMutex) ForceUnlockOwner(ctx context.Context, owner quorumlock.Owner) error {
	return m.writer.ForceUnlockOwner(ctx, owner)
}
