// Package certmagiclock gives a storage of CertMagic (github.com/caddyserver/certmagic) the locks of quorumlock, so that one
// process of a fleet at a time asks for a certificate.
//
// It is for storages whose own locks are weaker than what the fleet needs, or missing: an object store, a database, a shared
// file system.
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/caddyserver/certmagic"

	"github.com/quorumlock/quorumlock"
)

// Storage is a [certmagic.Storage] that locks with quorumlock, and leaves the rest to another. It is safe for
// concurrent use; its zero value is not usable.
//
// Locks are renewed, so a long order of a certificate keeps its lock, and one of a process that died is free when its TTL is over.
// CertMagic asks for no more: its interface has no way to say that a lock was lost, and it tolerates that two processes
// order the same certificate once in a while. quorumlock.WithLogger logs losses.
type Storage struct {
	certmagic.Storage
	lock func(name string) quorumlock.Locker

	mu     sync.Mutex
	leases map[string][]*quorumlock.Lease // by the name of the lock, the oldest first; all but the last are lost
}

var (
	_ certmagic.Storage   = (*Storage)(nil)
	_ certmagic.TryLocker = (*Storage)(nil)
)

// New returns base with other locks: lock returns that of a name, such as client.Mutex with a prefix. It returns an error if base or lock is nil.
func New(base certmagic.Storage, lock func(name string) quorumlock.Locker) (*Storage, error) {
	if base == nil {
		return nil, errors.New("quorumlock: certmagiclock: New: the storage is nil: use one that has all but the locks, such as a *certmagic.FileStorage")
	}
	if lock == nil {
		return nil, errors.New("quorumlock: certmagiclock: New: the function is nil: use one that returns the lock of a name, such as client.Mutex")
	}
	return &Storage{Storage: base, lock: lock, leases: make(map[string][]*quorumlock.Lease)}, nil
}

// Lock waits until it has the lock or ctx is done. The lock is kept until Unlock, also if ctx is done earlier. For the
// errors see Lock of [quorumlock.Locker].
func (s *Storage) Lock(ctx context.Context, name string) error {
	lock, err := s.locker(name)
	if err != nil {
		return err
	}
	lease, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	s.keep(name, lease)
	return nil
}

// TryLock does not wait. It returns false and no error if somebody else has the lock. For the errors see TryLock of [quorumlock.Locker].
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	lock, err := s.locker(name)
	if err != nil {
		return false, err
	}
	lease, err := lock.TryLock(ctx)
	if _, few := errors.AsType[*quorumlock.QuorumError](err); errors.Is(err, quorumlock.ErrHeld) && !few {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.keep(name, lease)
	return true, nil
}

// Unlock releases the lock, also if ctx is done. It returns nil if the lock was lost before: nothing is left to release. It
// returns a *[quorumlock.QuorumError] if too few nodes have confirmed, which forget the lock when its TTL is over, and an error if
// this Storage does not have the lock.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	lease := s.oldest(name)
	if lease == nil {
		return fmt.Errorf("quorumlock: certmagiclock: Unlock(%q): %w", name, quorumlock.ErrNotHeld)
	}
	if err := lease.Unlock(ctx); !errors.Is(err, quorumlock.ErrLost) {
		return err
	}
	return nil
}

func (s *Storage) locker(name string) (quorumlock.Locker, error) {
	if l := s.lock(name); l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("quorumlock: certmagiclock: the name %q has no lock: return one for each name", name)
}

func (s *Storage) keep(name string, lease *quorumlock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[name] = append(s.leases[name], lease)
}

// oldest takes out the oldest lease of a name. If there are several, the younger one was granted because the oldest was
// lost: to release the younger one for the caller of the older would free a lock that is at work.
func (s *Storage) oldest(name string) *quorumlock.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.leases[name]
	if len(all) == 0 {
		return nil
	}
	if s.leases[name] = all[1:]; len(all) == 1 {
		delete(s.leases, name)
	}
	return all[0]
}
