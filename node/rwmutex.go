package node

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// RWMutex is a read-write lock on a single node, and as safe as that node. Its rules are those of
// redlock.RWMutex. As a [quorumlock.Locker] it is its writer, which is the [Mutex] of the same
// name; [RWMutex.RLocker] is its reader. It is safe for concurrent use; its zero value is not
// usable.
type RWMutex struct {
	member         // the writer
	writer, reader *Mutex
}

var _ quorumlock.Locker = (*RWMutex)(nil)

// RWMutex returns the read-write lock of that name. It does no I/O. If the name or an option is
// invalid, the methods of the RWMutex return an error.
func (n *Node) RWMutex(name string, opts ...quorumlock.Option) *RWMutex {
	writer := n.mutex(name, quorum.Cell{}, nil, opts)
	return &RWMutex{writer.member, writer, n.mutex(name, quorum.Cell{Shared: true}, nil, opts)}
}

// Name returns the name of the lock.
func (m *RWMutex) Name() string { return m.writer.Name() }

// Lock acquires the lock for a writer. See [Mutex.Lock]. If ctx descends from a reader's lease of
// this lock, or the owner of [quorumlock.WithOwner] has one, it returns [quorumlock.ErrUpgrade].
func (m *RWMutex) Lock(ctx context.Context) (*quorumlock.Lease, error) { return m.writer.Lock(ctx) }

// TryLock is Lock without waiting for its turn. See [Mutex.TryLock].
func (m *RWMutex) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	return m.writer.TryLock(ctx)
}

// RLock acquires the lock for a reader, which shares it with other readers. See [Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context) (*quorumlock.Lease, error) { return m.reader.Lock(ctx) }

// TryRLock is RLock without waiting for its turn. It returns a *[quorumlock.HeldError] if a writer
// holds the lock, waits for it in Lock, or contends for it in TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*quorumlock.Lease, error) {
	return m.reader.TryLock(ctx)
}

// RLocker returns the reader's side as a Locker, for [quorumlock.Do] and for multilock.New.
func (m *RWMutex) RLocker() quorumlock.Locker { return m.reader }

// Downgrade turns a writer's lease into a reader's. See redlock.RWMutex.Downgrade.
func (m *RWMutex) Downgrade(ctx context.Context, lease *quorumlock.Lease) error {
	return m.writer.lock.Downgrade(ctx, lease)
}

// Inspect returns the state of the lock, with its writer or readers. See [Mutex.Inspect].
func (m *RWMutex) Inspect(ctx context.Context) (quorumlock.State, error) {
	return m.writer.Inspect(ctx)
}

// ForceUnlock releases the lock for its writer or all readers. See [Mutex.ForceUnlock].
func (m *RWMutex) ForceUnlock(ctx context.Context) error { return m.writer.ForceUnlock(ctx) }

// ForceUnlockOwner releases the lock for one writer or one reader. See [Mutex.ForceUnlockOwner].
func (m *RWMutex) ForceUnlockOwner(ctx context.Context, owner quorumlock.Owner) error {
	return m.writer.ForceUnlockOwner(ctx, owner)
}
