package redlock

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
)

// RWMutex is a read-write lock over a majority of the client's nodes. Any number of readers share
// it, or one writer holds it. It is safe for concurrent use; its zero value is not usable. As a
// [quorumlock.Locker] it is the write side; [RWMutex.RLocker] is the read side. The write side is
// the [Mutex] of the same name: each excludes the other.
//
// # Order
//
// Readers and writers are served in the order of their calls, fleet-wide: a reader that calls after
// a waiting writer waits for it. A release hands the lock to the first in the queue. If that is a
// reader, the release hands the lock to all readers before the first writer at once. Each reader
// has a deadline of its own at every node, so a dead reader delays a writer by at most its TTL.
// While more than about 16 owners read, the HeldError of a reader behind a writer names no holder.
//
// A reader costs a node the same beside thousands of readers. A waiting writer looks at every
// reader about every 600 ms.
//
// # Tokens
//
// A writer's token is that of a Mutex: higher than that of every earlier writer. A reader's token
// is at least that of the last writer before it, and lower than that of every later one. So a
// resource refuses a reader's token only if a later writer has used the resource.
//
// # Why it is sound
//
// A reader and a writer, and two writers, conflict at every node, as two owners of a Mutex do; two
// readers conflict at none. Two quorums share a node, so of two owners that conflict only one has a
// quorum. The argument of a Mutex for nodes that forget applies unchanged. A reader's token is the
// highest counter among its quorum, which shares a node with the quorum of the last writer. The
// token is written to a quorum before the reader has the lock, so that a later writer continues
// from it.
//
// # Re-entry
//
// A reader whose ctx descends from a lease enters that lease again, its own or a writer's, even if
// another writer waits. The reverse would deadlock: Lock with the ctx of a reader's lease returns
// [quorumlock.ErrUpgrade] at once. A writer becomes a reader with [RWMutex.Downgrade].
//
// In Java, a writer can also take the read lock and then unlock the write lock. Here that is no
// downgrade: a reader with the context of the writer's lease shares its hold, which stays exclusive
// until its last lease is unlocked. The reader's context is done after the writer's Unlock, since
// it descends from that of the writer's lease.
type RWMutex struct {
	member         // the write side
	writer, reader *Mutex
}

var _ quorumlock.Locker = (*RWMutex)(nil)

// RWMutex returns the read-write lock of that name. It does no I/O and starts no goroutine. If the
// name or an option is invalid, the methods of the RWMutex return an error that matches
// [quorumlock.ErrMisuse].
func (c *Client) RWMutex(name string, opts ...quorumlock.Option) *RWMutex {
	writer := c.mutex(name, client.Cell{}, nil, opts)
	return &RWMutex{writer.member, writer, c.mutex(name, client.Cell{Shared: true}, nil, opts)}
}

// Name returns the name of the lock, without its prefix.
func (m *RWMutex) Name() string { return m.writer.Name() }

// Lock acquires the lock for a writer. It implements [quorumlock.Locker]. It returns
// [quorumlock.ErrUpgrade] if ctx descends from a reader's lease of this lock, or the owner of
// [quorumlock.WithOwner] has one.
func (m *RWMutex) Lock(ctx context.Context) (*quorumlock.Lease, error) { return m.writer.Lock(ctx) }

// TryLock is Lock without waiting. It implements [quorumlock.Locker].
func (m *RWMutex) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	return m.writer.TryLock(ctx)
}

// RLock acquires the lock for a reader. It is Lock of [quorumlock.Locker], but shares the lock with
// other readers.
func (m *RWMutex) RLock(ctx context.Context) (*quorumlock.Lease, error) { return m.reader.Lock(ctx) }

// TryRLock is RLock without waiting. It returns a *[quorumlock.HeldError] if a writer holds the
// lock, waits for it in a call of Lock, or contends for it at the same time in a call of TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*quorumlock.Lease, error) {
	return m.reader.TryLock(ctx)
}

// RLocker returns the read side as a Locker, for [quorumlock.Do] and for multilock.New.
func (m *RWMutex) RLocker() quorumlock.Locker { return m.reader }

// Downgrade converts a writer's lease into a reader's, without a moment in which another writer
// could acquire the lock. The lease and its token stay the same. From the call on, other readers
// may have the lock, too. Waiting readers acquire it at once.
//
// These errors change nothing:
//
//   - [quorumlock.ErrNotHeld] if the lease was unlocked;
//   - [quorumlock.ErrLost] if the lease is lost;
//   - [quorumlock.ErrNilContext] for a nil ctx, and ctx's error if ctx was already done;
//   - an error that matches [quorumlock.ErrMisuse] if the lease is a reader's, is of another lock,
//     or is not the only lease of its hold.
//
// Downgrade returns a *[quorumlock.QuorumError] if too few nodes answered, and ctx's error if ctx
// is done during the call. The lease is then a reader's, too, but the nodes may learn of it only
// with the next renewal, and readers wait until then. A second Downgrade does not repeat the
// request: it returns the error for a reader's lease. To repeat the request at once, call
// [quorumlock.Lease.Extend]. With [quorumlock.WithoutRenewal], only Extend repeats it.
func (m *RWMutex) Downgrade(ctx context.Context, lease *quorumlock.Lease) error {
	return m.writer.lock.Downgrade(ctx, lease)
}
