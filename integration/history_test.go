package integration

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// grant is one lease as its holder saw it.
type grant struct {
	worker  int
	lock    string
	token   uint64
	called  time.Time // Lock
	granted time.Time // Lock returned
	told    time.Time // of the loss; zero if it was not
	leaving time.Time // Unlock
	left    time.Time // Unlock returned
	err     error     // the result of Unlock
	until   time.Time // the lease's deadline in the end

	how        string    // the kind, for the report of a soak
	slot       int       // of a semaphore
	reads      bool      // it is a reader's
	downgraded time.Time // Downgrade was called; zero if it was not
}

// end returns the time until which the holder could believe to hold the lock.
func (g *grant) end() time.Time {
	end := g.leaving
	if g.until.Before(end) {
		end = g.until
	}
	if !g.told.IsZero() && g.told.Before(end) {
		end = g.told
	}
	return end
}

func (g *grant) String() string {
	return fmt.Sprintf("worker %d with token %d", g.worker, g.token)
}

// kept returns an error if one of the promises to a single holder was not kept.
func (g *grant) kept() error {
	switch {
	case past(g.granted, g.until):
		return fmt.Errorf("%v got %q %v after its deadline", g, g.lock, g.granted.Sub(g.until))
	case g.told.IsZero() && past(g.leaving, g.until):
		return fmt.Errorf("%v held %q for %v past its deadline and was not told", g, g.lock, g.leaving.Sub(g.until))
	case !g.told.IsZero() && past(g.told, g.until):
		return fmt.Errorf("%v was told of the loss of %q %v after its deadline", g, g.lock, g.told.Sub(g.until))
	}
	return nil
}

// past reports whether a time is later than a deadline, apart from the delays of this machine.
func past(at, deadline time.Time) bool {
	return at.Sub(deadline) > margin+machine.between(deadline, at)
}

// follows returns an error if a grant does not leave alone the one before, or has no higher token.
func follows(before, g *grant) error {
	if g.granted.Before(before.end()) {
		return fmt.Errorf("granted to %v while held by %v, for %v yet", g, before, before.end().Sub(g.granted))
	}
	if g.token <= before.token {
		return fmt.Errorf("granted to %v after %v", g, before)
	}
	return nil
}

// refusal is a call of Lock that got no lease.
type refusal struct {
	called time.Time
	err    error
}

// history is the record of a workload's workers. It is safe for concurrent use.
type history struct {
	began time.Time

	mu       sync.Mutex
	grants   []*grant // in the order in which Lock returned
	refusals []refusal
	turns    []int // by worker: how many turns have ended
}

// at is a time in ns since the history began, by the monotonic clock.
func (h *history) at(t time.Time) int64 { return t.Sub(h.began).Nanoseconds() }

func (h *history) granted(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants = append(h.grants, g)
}

func (h *history) told(g *grant) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	g.told = now
}

func (h *history) ended(g *grant, leaving, left, until time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.leaving, g.left, g.until, g.err = leaving, left, until, err
	h.turns[g.worker]++
}

func (h *history) refused(worker int, r refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusals = append(h.refusals, r)
	h.turns[worker]++
}

func (h *history) turned() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.turns)
}

// since counts the grants, by lock, of calls that began after from, and the calls without a quorum.
func (h *history) since(from time.Time) (grants map[string]int, outages int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	grants = make(map[string]int)
	for _, g := range slices.Backward(h.grants) {
		if g.granted.Before(from) {
			break
		}
		if g.called.After(from) {
			grants[g.lock]++
		}
	}
	for _, r := range slices.Backward(h.refusals) {
		if _, ok := errors.AsType[*quorumlock.QuorumError](r.err); ok && r.called.After(from) {
			outages++
		}
	}
	return grants, outages
}

// check checks the promises against the history when all workers have stopped. The order and
// exclusion of holders and tokens are checked only if the faults were within the bound.
func (h *history) check(t *testing.T, exclusive bool) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.grants {
		if err := g.kept(); err != nil {
			t.Error(err)
		}
	}
	if !exclusive {
		return
	}
	for lock, grants := range h.byLock() {
		for i, g := range grants[1:] {
			if err := follows(grants[i], g); err != nil {
				t.Errorf("%q: %v", lock, err)
			}
		}
		if err := linearizable(pictures(), t.Name()+" "+lock, leases, h.operations(grants)); err != nil {
			t.Errorf("%q: the leases: %v", lock, err)
		}
	}
}

// byLock returns the grants of each lock, in the order in which they were had.
func (h *history) byLock() map[string][]*grant {
	locks := make(map[string][]*grant)
	for _, g := range h.grants {
		locks[g.lock] = append(locks[g.lock], g)
	}
	for _, grants := range locks {
		slices.SortFunc(grants, func(a, b *grant) int { return a.granted.Compare(b.granted) })
	}
	return locks
}

// tally counts the events of a run.
type tally struct {
	grants, losses, unconfirmed, waits, outages int
}

func (h *history) tally() tally {
	var n tally
	h.mu.Lock()
	defer h.mu.Unlock()
	n.grants, n.waits = len(h.grants), len(h.refusals)
	for _, g := range h.grants {
		if _, ok := errors.AsType[*quorumlock.QuorumError](g.err); ok {
			n.unconfirmed++
		} else if g.err != nil {
			n.losses++
		}
	}
	for _, r := range h.refusals {
		if _, ok := errors.AsType[*quorumlock.QuorumError](r.err); ok {
			n.outages++
		}
	}
	return n
}

func (n *tally) add(m tally) {
	n.grants += m.grants
	n.losses += m.losses
	n.unconfirmed += m.unconfirmed
	n.waits += m.waits
	n.outages += m.outages
}

func (n tally) String() string {
	return fmt.Sprintf("%d grants, %d leases lost, %d releases without a quorum, %d waits given up (%d of them without a quorum)",
		n.grants, n.losses, n.unconfirmed, n.waits, n.outages)
}
