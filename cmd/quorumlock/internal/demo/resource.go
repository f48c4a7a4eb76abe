package demo

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
)

// errStale is the error of a write with a lower fencing token than an earlier one.
var errStale = errors.New("stale fencing token")

// resource is the resource behind the lock: a small store that checks fencing tokens, as a database
// would with "update ... where token <= ?". It also watches its users, which real stores need not
// do: so the demo knows whether the lock keeps its promises. It is safe for concurrent use.
type resource struct {
	stale func(token, highest uint64) bool // the fencing rule; only tests have another

	mu      sync.Mutex
	highest uint64 // the highest token of an accepted write
	usage
	inside map[*quorumlock.Lease]bool
	last   uint64 // the token of the last holder who entered
}

// usage counts the uses of the resource.
type usage struct {
	writes   int // accepted
	overlaps int // holders who entered while another one's lease was valid
	disorder int // holders with a token not higher than the one before
}

func newResource() *resource {
	return &resource{
		stale:  func(token, highest uint64) bool { return token < highest },
		inside: make(map[*quorumlock.Lease]bool),
	}
}

// write accepts a write, unless a holder with a higher token has written before.
func (r *resource) write(token uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale(token, r.highest) {
		return fmt.Errorf("%w: %d, after a write with %d", errStale, token, r.highest)
	}
	r.highest = max(r.highest, token)
	r.writes++
	return nil
}

// enter notes that a holder begins to use the resource, until leave.
func (r *resource) enter(l *quorumlock.Lease) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.inside {
		if time.Now().Before(other.ValidUntil()) {
			r.overlaps++
		}
	}
	if l.Token() <= r.last {
		r.disorder++
	}
	r.last = l.Token()
	r.inside[l] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.inside, l)
	}
}

// seen returns the usage until now.
func (r *resource) seen() usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage
}
