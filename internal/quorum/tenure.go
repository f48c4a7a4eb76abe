package quorum

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// phase is where a tenure is in its life. It only moves forward.
type phase uint8

const (
	acquiring phase = iota // the attempt runs
	held                   // won: there are leases, the deadline is ahead
	lost                   // the deadline has passed, or the keys are gone; its leases have ended
	over                   // the attempt failed, or the last lease was unlocked
)

// tenure is one owner's attempt on a lock and, if it is won, the hold it leads to. The owner is used
// for nothing else, ever.
type tenure struct {
	lock      *Lock
	owner     quorumlock.Owner
	hint      uint64
	ballot    *ballot // the votes on the attempt
	waiter    *waiter // the call that makes the attempt
	number    int     // of the waiter's attempt
	entry     scripts.Entry
	handed    bool          // handed to the waiter's successor, not acquired by an attempt: see hand.go
	heard     chan struct{} // a node has answered; capacity 1
	contested chan struct{} // closed when a cell has refused
	once      sync.Once     // closes contested
	token     uint64        // the fencing token; set before the tenure is held

	mu     sync.Mutex
	phase  phase
	cells  []cellState
	since  time.Time     // when the hold began
	start  time.Time     // before the first send of the attempt or renewal that the validity counts from
	ttl    time.Duration // that the keys got then
	timer  *time.Timer   // ends the tenure at its deadline; set while held
	leases map[*quorumlock.Lease]context.CancelCauseFunc
	loss   *quorumlock.LostError // why it is lost

	release *release // set once the release has begun
	late    bool     // the last renewal failed, and that is logged

	// Of the watchdog, guarded by the client's mu.
	when  time.Time // the next renewal
	index int       // in the client's schedule, -1 if it is not there
}

var _ quorumlock.Tenure = (*tenure)(nil)

// cellState is what one cell last said.
type cellState struct {
	state answer
	token uint64         // if granted: the tenure's token at this node
	err   error          // the last failure there
	why   scripts.Answer // if refused
	twin  bool           // another cell of this lock is on the same server: this one never votes, and has no key to lose
}

type answer uint8

const (
	unanswered answer = iota
	granted
	refused
	unknown     // failed: the script may have run or may run yet
	quarantined // kept from granting by the restart guard: neither granted nor refused, and nothing to undo
)

func newTenure(l *Lock, owner quorumlock.Owner) *tenure {
	return &tenure{
		lock:      l,
		owner:     owner,
		ballot:    newBallot(l.tree, len(l.cells)),
		cells:     make([]cellState, len(l.cells)),
		ttl:       l.set.TTL,
		heard:     make(chan struct{}, 1),
		contested: make(chan struct{}),
		leases:    make(map[*quorumlock.Lease]context.CancelCauseFunc, 1),
		index:     -1,
	}
}

// newAttempt is a tenure for an attempt of w.
func newAttempt(l *Lock, w *waiter) *tenure {
	t := newTenure(l, l.client.newOwner())
	t.hint = l.hint()
	t.waiter = w
	t.number = w.begin(t)
	t.entry = w.entry()
	return t
}

func (t *tenure) Name() string            { return t.lock.name }
func (t *tenure) Owner() quorumlock.Owner { return t.owner }
func (t *tenure) Token() uint64           { return t.token }

func (t *tenure) HoldCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.leases)
}

func (t *tenure) ValidUntil() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.start.Add(t.lock.set.Drift.Validity(t.ttl, 0))
}

// remaining is how much validity is left. It is called with mu held.
func (t *tenure) remaining() time.Duration {
	return t.lock.set.Drift.Validity(t.ttl, elapsed(t.start, t.lock.client.now()))
}

// begin makes a won attempt a hold, if any validity is left of it, and returns its first lease.
func (t *tenure) begin(ctx context.Context, start time.Time) (*quorumlock.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.start = start
	left := t.remaining()
	if left <= 0 {
		return nil, fmt.Errorf("quorumlock: %q was granted, but so late that nothing is left of its TTL of %v: use a longer TTL or look at the nodes' latency", t.lock.name, t.ttl)
	}
	t.since = t.lock.client.now()
	due := t.due(start)
	if t.handed {
		due = t.lock.client.now().Add(min(renewHanded, left/3))
	}
	if err := t.lock.client.track(t, due); err != nil {
		return nil, err
	}
	t.phase = held
	t.timer = time.AfterFunc(left, t.checkDeadline)
	return t.lease(ctx), nil
}

// due is when a hold is to be renewed that counts from start.
func (t *tenure) due(start time.Time) time.Time { return start.Add(t.lock.set.TTL / 3) }

// at is the owner as it stands at a cell.
func (t *tenure) at(cell int) quorumlock.Owner { return scripts.OfCell(t.owner, cell) }

// entryAt is the entry in the queue of a cell.
func (t *tenure) entryAt(cell int) scripts.Entry {
	e := t.entry
	e.Successor.Cell = cell
	return e
}

// alive reports whether the lock is held.
func (t *tenure) alive() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phase == held && t.remaining() > 0
}

// enter returns a lease of the hold, whose context descends from ctx.
func (t *tenure) enter(ctx context.Context) (*quorumlock.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase != held || t.remaining() <= 0 {
		return nil, quorumlock.ErrLost
	}
	return t.lease(ctx), nil
}

// lease adds a lease to the hold. It is called with mu held.
func (t *tenure) lease(ctx context.Context) *quorumlock.Lease {
	outer, _ := ctx.Value(heldKey{}).(*holds)
	lease, lose := quorumlock.NewLease(context.WithValue(ctx, heldKey{}, &holds{t, outer}), t)
	t.leases[lease] = lose
	return lease
}

// reenter is enter for a hold that somebody is in already. It costs nothing while at least half of the
// TTL is left, and tries to extend it first otherwise.
func (t *tenure) reenter(ctx context.Context) (*quorumlock.Lease, error) {
	t.mu.Lock()
	extend := t.remaining() < t.ttl/2
	t.mu.Unlock()
	if extend {
		err := t.extend(ctx)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil && t.alive() {
			t.lock.set.Logger.Warn("quorumlock: entered a lease that could not be extended", "lock", t.lock.name, "owner", t.owner, "until", t.ValidUntil(), "error", err)
		}
	}
	return t.enter(ctx)
}

// checkDeadline ends the hold if its validity is over. It needs no node for that.
func (t *tenure) checkDeadline() {
	t.mu.Lock()
	if t.phase != held {
		t.mu.Unlock()
		return
	}
	left := t.remaining()
	if left > 0 {
		t.timer.Reset(left)
	}
	why := "it was not renewed in time"
	switch {
	case t.overheld():
		why = fmt.Sprintf("it was held for longer than WithMaxHold(%v)", t.lock.set.MaxHold)
	case !t.lock.set.Renew:
		why = "it was not extended in time"
	}
	t.mu.Unlock()
	if left <= 0 {
		t.lose(why)
	}
}

// lose tells every lease that the hold is lost, and why.
func (t *tenure) lose(why string) {
	t.mu.Lock()
	if t.phase != held {
		t.mu.Unlock()
		return
	}
	t.phase = lost
	t.timer.Stop()
	tell := slices.Collect(maps.Values(t.leases))
	t.mu.Unlock()
	err := &quorumlock.LostError{Name: t.lock.name, Owner: t.owner, Reason: why, Nodes: t.nodeErrors()}
	t.mu.Lock()
	t.loss = err
	t.mu.Unlock()
	for _, lose := range tell {
		lose(err)
	}
	t.waiter.release()
	t.lock.client.forget(t)
	t.lock.set.Logger.Warn("quorumlock: lease lost", "lock", t.lock.name, "owner", t.owner, "error", err)
}

// Leave is quorumlock.Tenure's.
func (t *tenure) Leave(ctx context.Context, l *quorumlock.Lease, keep time.Duration) error {
	if t.lock.client.begin() != nil {
		return quorumlock.ErrLost // Close has told the lease so
	}
	defer t.lock.client.end()
	t.checkDeadline()

	t.mu.Lock()
	delete(t.leases, l)
	wasLost := t.phase == lost
	last := len(t.leases) == 0 && t.phase != over
	if last {
		t.phase = over // before the release is sent: no renewal starts after it
		t.timer.Stop()
	}
	t.mu.Unlock()

	var err error
	if last {
		if keep > 0 {
			t.lock.client.keeps(t.owner, keep)
		} else {
			t.waiter.release()
		}
		t.lock.client.forget(t)
		err = t.releaseAll(ctx, keep)
	}
	if wasLost {
		return t.lost()
	}
	return err
}

// lost is the error of a hold that is lost.
func (t *tenure) lost() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loss == nil { // lose is about to set it
		return quorumlock.ErrLost
	}
	return t.loss
}
