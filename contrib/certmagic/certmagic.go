// Package certmagiclock gives a storage of CertMagic (github.com/caddyserver/certmagic) the locks
// of quorumlock, so that only one process of a fleet at a time orders a certificate.
//
// It is for storages without locks, or with weaker locks than the fleet needs: an object store, a
// database, a shared file system.
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/caddyserver/certmagic"

	"github.com/quorumlock/quorumlock"
)

// Storage is a [certmagic.Storage] with the locks of quorumlock. Another storage does the rest.
// Storage is safe for concurrent use; its zero value is not usable.
//
// Locks are renewed, so a long order keeps its lock. The lock of a dead process is free after its
// TTL. CertMagic needs no more: its interface cannot report a lost lock, and it tolerates that two
// processes order the same certificate once in a while. quorumlock.WithLogger logs losses.
type Storage struct {
	certmagic.Storage
	lock func(name string) quorumlock.Locker

	mu     sync.Mutex
	leases map[string][]*quorumlock.Lease // by lock name, oldest first; all but the last are lost
}

var (
	_ certmagic.Storage   = (*Storage)(nil)
	_ certmagic.TryLocker = (*Storage)(nil)
)

// New returns a Storage that uses base for everything but locks. The lock function returns the lock
// for a name, such as client.Lockers("certmagic:"). New returns an error if base or lock is nil.
func New(base certmagic.Storage, lock func(name string) quorumlock.Locker) (*Storage, error) {
	if isNil(base) {
		return nil, errors.New("quorumlock: certmagiclock: New: the storage is nil: use the one that keeps the certificates, such as a *certmagic.FileStorage")
	}
	if lock == nil {
		return nil, errors.New("quorumlock: certmagiclock: New: the function is nil: use one that returns the lock for a name, such as client.Lockers(\"certmagic:\")")
	}
	return &Storage{Storage: base, lock: lock, leases: make(map[string][]*quorumlock.Lease)}, nil
}

// Lock acquires the lock. It waits until ctx is done. Once granted, the lock is kept until Unlock,
// even if ctx is done earlier. The errors are those of Lock of [quorumlock.Locker].
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

// TryLock acquires the lock without waiting. It returns false and no error if the lock has another
// holder. The other errors are those of TryLock of [quorumlock.Locker].
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

// Unlock releases the lock, even if ctx is done. It returns nil if the lock was lost before,
// because nothing is left to release. It returns a *[quorumlock.QuorumError] if too few nodes
// confirmed the release. The client repeats the release at the others, and they drop the lock after
// its TTL. In this case, too, this Storage no longer has the lock. Unlock returns
// [quorumlock.ErrNotHeld] if the Storage does not have the lock.
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
	if l := s.lock(name); !isNil(l) {
		return l, nil
	}
	return nil, fmt.Errorf("quorumlock: certmagiclock: the lock function returned nil for the name %q: return a lock for each name", name)
}

func (s *Storage) keep(name string, lease *quorumlock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[name] = append(s.leases[name], lease)
}

// oldest removes and returns the oldest lease of a name. Of several leases, the younger ones were
// granted because the oldest was lost. A release of a younger one for the caller of the oldest
// would free a lock that is in use.
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

// isNil reports whether v is nil, or an interface with a nil pointer, such as an uninitialized
// *redlock.Mutex.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
