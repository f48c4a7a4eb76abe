package node

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// RWMutex is a read-write lock on a single node: as safe as that node is. Its rules are those of redlock.RWMutex. As a
// [quorumlock.Locker] it is its writer, which is the [Mutex] of the same name; [RWMutex.RLocker] is its reader. It is safe for
// concurrent use; its zero value is not usable.
type RWMutex struct {
	member         // the writer
	writer, reader *Mutex
}

var _ quorumlock.Locker = (*RWMutex)(nil)

// RWMutex returns the read-write lock of that name. If the name or an option is bad, its calls return an error that says so.
func (n *Node) RWMutex(name string, opts ...quorumlock.Option) *RWMutex {
	writer := n.mutex(name, quorum.Cell{}, nil, opts)
	return &RWMutex{writer.member, writer, n.mutex(name, quorum.Cell{Shared: true}, nil, opts)}
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

// Downgrade makes a writer's lease a reader's, as redlock.RWMutex's does.
func (m *RWMutex) Downgrade(ctx context.Context, lease *quorumlock.Lease) error {
	return m.writer.lock.Downgrade(ctx, lease)
}

// Inspect returns who holds or shares the lock.
func (m *RWMutex) Inspect(ctx context.Context) (quorumlock.State, error) {
	return m.writer.Inspect(ctx)
}

// ForceUnlock frees the lock, whoever holds or shares it. They learn of it when they next renew.
func (m *RWMutex) ForceUnlock(ctx context.Context) error { return m.writer.ForceUnlock(ctx) }

// ForceUnlockOwner is [Mutex.ForceUnlockOwner]: it frees one writer, or one reader.
func (m *RWMutex) ForceUnlockOwner(ctx context.Context, owner quorumlock.Owner) error {
	return m.writer.ForceUnlockOwner(ctx, owner)
}
