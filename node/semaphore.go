package node

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// Semaphore is a semaphore on a single node, and as safe as that node. Its rules are those of
// redlock.Semaphore. It is a [quorumlock.Locker], safe for concurrent use; its zero value is not
// usable.
type Semaphore struct {
	member
	mutex *Mutex
}

var _ quorumlock.Locker = (*Semaphore)(nil)

// Semaphore returns the semaphore of that name, with 1 to [quorumlock.MaxPermits] permits. It does
// no I/O. If the name, permits or an option is invalid, the methods of the Semaphore return an
// error.
func (n *Node) Semaphore(name string, permits int, opts ...quorumlock.Option) *Semaphore {
	cell, err := quorum.SlotsOf(permits)
	m := n.mutex(name, cell, err, opts)
	return &Semaphore{m.member, m}
}

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string { return s.mutex.Name() }

// Lock acquires a slot. See [Mutex.Lock].
func (s *Semaphore) Lock(ctx context.Context) (*quorumlock.Lease, error) { return s.mutex.Lock(ctx) }

// TryLock acquires a slot without waiting for its turn. See [Mutex.TryLock].
func (s *Semaphore) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	return s.mutex.TryLock(ctx)
}

// Inspect returns the state of the semaphore, with the owner of each slot. See [Mutex.Inspect].
func (s *Semaphore) Inspect(ctx context.Context) (quorumlock.State, error) {
	if err := s.mutex.lock.Err(); err != nil {
		return quorumlock.State{}, err
	}
	return transport.Of(s.mutex.node).InspectSemaphore(ctx, s.mutex.key)
}

// ForceUnlock releases all slots. See [Mutex.ForceUnlock].
func (s *Semaphore) ForceUnlock(ctx context.Context) error {
	if err := s.mutex.lock.Err(); err != nil {
		return err
	}
	_, err := transport.Of(s.mutex.node).ForceReleaseSemaphore(ctx, s.mutex.key)
	return err
}

// ForceUnlockOwner releases the slot of one owner. See [Mutex.ForceUnlockOwner].
func (s *Semaphore) ForceUnlockOwner(ctx context.Context, owner quorumlock.Owner) error {
	return s.mutex.forceOwner(ctx, owner, true)
}
