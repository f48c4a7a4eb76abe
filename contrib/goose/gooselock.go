// Package gooselock lets one process of a fleet at a time migrate with goose
// (github.com/pressly/goose/v3).
//
//	locker, err := gooselock.New(client.Mutex("myapp:migrations", quorumlock.WithWait(5*time.Minute)))
//	...
//	provider, err := goose.NewProvider(dialect, db, files, goose.WithSessionLocker(locker))
//	...
//	err = quorumlock.Do(ctx, mutex, func(ctx context.Context) error { // of the same lock; optional
//		_, err := provider.Up(ctx)
//		return err
//	})
//
// It is for databases without locks of their own, and for migrations that span several databases.
// In Postgres or MySQL, use the lockers of goose's package lock: they are in the database that they
// protect.
//
// # A lost lock
//
// If the lock is lost during a migration, the next migration does not begin, and the provider's
// method returns an error that matches [quorumlock.ErrLost]. It says so after the last migration,
// too: then everything is applied. In [quorumlock.Do], as above, the loss also cancels the context
// of the migration that is under way; the provider then enters the hold of Do.
//
// # Limits
//
// Nothing takes back a statement that the database runs when the lock is lost. Without Do, the whole
// transaction goes on, and is committed. Another process may begin the same migration meanwhile: both
// may apply it, unless the second one fails, as a CREATE TABLE does. A Go migration in Do finds its
// lease with [quorumlock.LeaseOf]; package fence can refuse its transaction when it is late.
//
// A SQL migration without a transaction may end between two statements, or before its version is
// recorded. Make its statements repeatable. Without Do, Go migrations without a transaction go on
// after a loss, one after the other: goose does not run them on the connection that has the lock.
//
// A provider takes no lock for HasPending and GetVersions, nor for Up without pending migrations.
// Status and GetDBVersion take the lock, so they wait for a migration. goose's functions without a
// Provider, such as goose.Up, and its command take no lock of this kind.
//
// A provider that waits for the lock occupies a connection of its database.
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/quorumlock/quorumlock"
)

// SessionLocker is a [lock.SessionLocker], for goose.WithSessionLocker. It is safe for concurrent
// use, also by several providers; its zero value is not usable.
type SessionLocker struct {
	lock quorumlock.Locker

	mu       sync.Mutex
	sessions map[*sql.Conn]*session
}

var _ lock.SessionLocker = (*SessionLocker)(nil)

// session is the lock of a connection.
type session struct {
	lease  *quorumlock.Lease
	stop   func() bool   // of the end of the session by a loss
	closed chan struct{} // closed when a loss has ended the session
}

// New returns a SessionLocker that holds l while a provider migrates. Give each database, or each
// group of databases that migrate together, a lock of its own. New returns an error if l is nil.
func New(l quorumlock.Locker) (*SessionLocker, error) {
	if isNil(l) {
		return nil, fmt.Errorf("%w: gooselock: New: the lock is nil: use one for the migrations of a database, such as client.Mutex(\"myapp:migrations\")", quorumlock.ErrMisuse)
	}
	return &SessionLocker{lock: l, sessions: make(map[*sql.Conn]*session)}, nil
}

// SessionLock acquires the lock. It waits until ctx is done, or for the time of
// [quorumlock.WithWait]. Its errors are those of Lock of [quorumlock.Locker]; goose wraps them. If
// ctx descends from a lease of the lock, SessionLock enters its hold: two providers that migrate
// with one such context exclude each other no longer.
//
// If the lock is lost before SessionUnlock, conn is closed as soon as its statement or transaction
// ends. goose then begins no other one on it.
func (s *SessionLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	lease, err := s.lock.Lock(ctx)
	if err != nil {
		return err
	}
	held := &session{lease: lease, closed: make(chan struct{})}
	held.stop = context.AfterFunc(lease.Context(), func() {
		defer close(held.closed)
		if errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost) {
			_ = conn.Close()
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[conn] = held
	return nil
}

// SessionUnlock releases the lock, even if ctx is done. It returns an error that matches
// [quorumlock.ErrLost] if the lock was lost before, and goose returns it with the outcome of the
// migrations. A release without a quorum is no error: the keys expire with their TTL. SessionUnlock
// returns [quorumlock.ErrNotHeld] if the connection does not have the lock.
func (s *SessionLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	s.mu.Lock()
	held := s.sessions[conn]
	delete(s.sessions, conn)
	s.mu.Unlock()
	if held == nil {
		return fmt.Errorf("gooselock: SessionUnlock: %w", quorumlock.ErrNotHeld)
	}
	if !held.stop() {
		<-held.closed
	}
	if err := held.lease.Unlock(ctx); errors.Is(err, quorumlock.ErrLost) {
		return err
	}
	return nil
}

// isNil reports whether v is nil, or an interface with a nil pointer, such as an uninitialized
// *redlock.Mutex.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
