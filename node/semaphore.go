package node

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// Semaphore is a semaphore on a single node: as safe as that node is. Its rules are those of redlock.Semaphore. It is a
// [quorumlock.Locker], safe for concurrent use; its zero value is not usable.
type Semaphore struct {
	member
	mutex *Mutex
}

var _ quorumlock.Locker = (*Semaphore)(nil)

// Semaphore returns the semaphore of that name, with 1 to [quorumlock.MaxPermits] permits. If the name, permits or an option is bad,
// its calls return an error that says so.
func (n *Node) Semaphore(name string, permits int, opts ...quorumlock.Option) *Semaphore {
	cell, err := quorum.SlotsOf(permits)
	m := n.mutex(name, cell, err, opts)
	return &Semaphore{m.member, m}
}

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string { return s.mutex.Name() }

// Lock acquires a slot, as [quorumlock.Locker] says.
func (s *Semaphore) Lock(ctx context.Context) (*quorumlock.Lease, error) { return s.mutex.Lock(ctx) }

// TryLock acquires a slot without waiting, as [quorumlock.Locker] says.
func (s *Semaphore) TryLock(ctx context.Context) (*quorumlock.Lease, error) {
	return s.mutex.TryLock(ctx)
}

// Inspect returns who has which slot.
func (s *Semaphore) Inspect(ctx context.Context) (quorumlock.State, error) {
	if err := s.mutex.lock.Err(); err != nil {
		return quorumlock.State{}, err
	}
	return transport.Of(s.mutex.node).InspectSemaphore(ctx, s.mutex.key)
}

// ForceUnlock frees all slots. Their holders learn of it when they next renew.
func (s *Semaphore) ForceUnlock(ctx context.Context) error {
	if err := s.mutex.lock.Err(); err != nil {
		return err
	}
	_, err := transport.Of(s.mutex.node).ForceReleaseSemaphore(ctx, s.mutex.key)
	return err
}

// ForceUnlockOwner is [Mutex.ForceUnlockOwner]: it frees the slot of that owner.
func (s *Semaphore) ForceUnlockOwner(ctx context.Context, owner quorumlock.Owner) error {
	return s.mutex.forceOwner(ctx, owner, true)
}
