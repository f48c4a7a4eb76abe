package testkit

import (
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock"
)

// Resource is the resource that a lock protects in a test. It knows every goroutine that believes
// to hold the lock, and takes writes with fencing tokens, as a store would. Its zero value with a T
// is ready, and safe for concurrent use.
type Resource struct {
	T testing.TB

	mu      sync.Mutex
	inside  map[*quorumlock.Lease]bool
	highest uint64
	seen    map[uint64]bool
	grants  int
}

// Enter must be called with a new lease. It fails the test if the token is not higher than all
// earlier ones, or if another lease is inside that has not ended.
func (r *Resource) Enter(l *quorumlock.Lease) {
	r.T.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside == nil {
		r.inside, r.seen = make(map[*quorumlock.Lease]bool), make(map[uint64]bool)
	}
	for other := range r.inside {
		if other.Context().Err() == nil {
			r.T.Errorf("%s entered with token %d while %s is inside with token %d", l.Owner(), l.Token(), other.Owner(), other.Token())
		}
	}
	if r.seen[l.Token()] {
		r.T.Errorf("token %d was given out twice", l.Token())
	}
	if l.Token() <= r.highest {
		r.T.Errorf("token %d after %d", l.Token(), r.highest)
	}
	r.inside[l], r.seen[l.Token()] = true, true
	r.highest = max(r.highest, l.Token())
	r.grants++
}

// Leave must be called before the lease is unlocked.
func (r *Resource) Leave(l *quorumlock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inside, l)
}

// Write reports whether the resource takes a write with that token: none below the highest.
func (r *Resource) Write(token uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.highest {
		return false
	}
	r.highest = token
	return true
}

// Grants returns the number of leases that have entered.
func (r *Resource) Grants() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants
}
