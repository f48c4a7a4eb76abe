package engine

import (
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
)

// A failed release or leave may keep a key or an entry at its node, which then refuses a free lock.
// So the call stays pending, and is repeated until the node has confirmed it, however long the node
// is away. Running it twice is harmless: its owner is used once, and its waiter has gone.
//
// No TTL ends it while the node is away. A frozen server runs its socket buffers when it thaws, and
// its grants then have a full TTL. It reads the sockets in turn, 16 KB at a time. So a release on a
// new connection may run before an acquire on an old one, even a reset one. If an earlier call of
// unknown outcome may still run, the node confirms the release twice. The pause in between is
// longer than a server takes to run a full pipeline.

const (
	maxPending = 1 << 14               // for one node; keys beyond this limit end with their TTL
	firstTry   = 50 * time.Millisecond // the pause after a call has failed

	MaxRetry     = 500 * time.Millisecond // the longest pause while the node is away
	ConfirmAfter = 500 * time.Millisecond // the pause between the two confirmations
	RetryTimeout = time.Second            // the time limit of a try
)

// Pending returns the release or leave that becomes pending after a call: because the node may run
// it later, or because an earlier call may still run. twice: the node has to confirm it twice.
func Pending(m *core.Machine, k *core.Call, err error, later bool) (again core.Call, twice, is bool) {
	if err != nil && !later {
		return core.Call{}, false, false
	}
	again, times := m.Retry(*k, err != nil)
	return again, times > 1 || err == nil, times > 0
}

// PendingReleases are the pending releases of one node. The zero value has none.
type PendingReleases[R any] struct {
	unconfirmed []PendingRelease[R]
	confirmed   []PendingRelease[R] // confirmed once, by again
	next        time.Duration       // when the timer fires; 0 if it is not set
	pause       time.Duration       // before the next try of unconfirmed; 0 unless the last has failed
	underWay    int                 // releases of the try that is under way
}

// PendingRelease is a release or leave that needs one or two more confirmations.
type PendingRelease[R any] struct {
	Release R
	Twice   bool          // the node has to confirm it twice
	again   time.Duration // the next try after the first confirmation; 0 before it
}

// Add adds a pending release. confirmed: the node has confirmed it once. Call Schedule next.
func (r *PendingReleases[R]) Add(release R, twice, confirmed bool, now time.Duration) {
	p := PendingRelease[R]{Release: release, Twice: twice}
	switch {
	case r.Len() >= maxPending:
	case confirmed:
		p.again = now + ConfirmAfter
		r.confirmed = append(r.confirmed, p)
	default:
		r.unconfirmed = append(r.unconfirmed, p)
	}
}

// Schedule returns the time of the next try, and whether to set the timer to it.
func (r *PendingReleases[R]) Schedule(now time.Duration) (at time.Duration, set bool) {
	if r.Busy() || r.Empty() {
		return 0, false
	}
	if len(r.confirmed) > 0 {
		at = r.confirmed[0].again
	}
	if soon := now + max(r.pause, firstTry); len(r.unconfirmed) > 0 && (at == 0 || soon < at) {
		at = soon
	}
	if r.next != 0 && at >= r.next {
		return 0, false
	}
	r.next = at
	return at, true
}

// Due begins a try, and returns its releases; none while a try is under way. After the try, call
// Done.
func (r *PendingReleases[R]) Due(now time.Duration) (due []PendingRelease[R]) {
	if r.Busy() {
		return nil
	}
	again := 0
	for again < len(r.confirmed) && r.confirmed[again].again <= now {
		again++
	}
	all := len(r.unconfirmed)
	if r.pause > firstTry { // the node may still be away: one call probes it
		all = min(all, 1)
	}
	due = slices.Concat(r.unconfirmed[:all], r.confirmed[:again])
	r.unconfirmed, r.confirmed = r.unconfirmed[all:], r.confirmed[again:]
	r.next, r.underWay = 0, len(due)
	return due
}

// Outcome is the outcome of a try of one release.
type Outcome uint8

const (
	NotServed Outcome = iota // the node may run it later, or has not answered
	Confirmed                // the node has run it
	Refused                  // no further try: refused for good, or pending elsewhere
)

// Done ends a try. It keeps the releases that were not served or need another confirmation. Call
// Schedule next.
func (r *PendingReleases[R]) Done(due []PendingRelease[R], outcomes []Outcome, now time.Duration) {
	failed := false
	for i, p := range due {
		switch {
		case outcomes[i] == NotServed:
			failed, p.again = true, 0
			r.unconfirmed = append(r.unconfirmed, p)
		case outcomes[i] == Confirmed && p.Twice && p.again == 0:
			p.again = now + ConfirmAfter
			r.confirmed = append(r.confirmed, p)
		}
	}
	r.underWay, r.pause = 0, min(2*max(r.pause, firstTry), MaxRetry)
	if !failed {
		r.pause = 0
	}
}

// Unconfirmed returns how many releases wait for a first confirmation, without those under way.
func (r *PendingReleases[R]) Unconfirmed() int { return len(r.unconfirmed) }

// Len returns the number of releases, including those in flight.
func (r *PendingReleases[R]) Len() int {
	return len(r.unconfirmed) + len(r.confirmed) + r.underWay
}

// Busy reports whether a try is under way.
func (r *PendingReleases[R]) Busy() bool { return r.underWay > 0 }

// Empty reports whether no release waits for a try.
func (r *PendingReleases[R]) Empty() bool { return len(r.unconfirmed)+len(r.confirmed) == 0 }

// Any reports whether is returns true for a release that waits for a try.
func (r *PendingReleases[R]) Any(is func(R) bool) bool {
	f := func(p PendingRelease[R]) bool { return is(p.Release) }
	return slices.ContainsFunc(r.unconfirmed, f) || slices.ContainsFunc(r.confirmed, f)
}

// Drop drops the waiting releases for which is returns true.
func (r *PendingReleases[R]) Drop(is func(R) bool) {
	f := func(p PendingRelease[R]) bool { return is(p.Release) }
	r.unconfirmed, r.confirmed = slices.DeleteFunc(r.unconfirmed, f), slices.DeleteFunc(r.confirmed, f)
}
