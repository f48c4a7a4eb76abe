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
	lost                   // the deadline has passed, or the keys are gone; its leases are told
	over                   // the attempt failed, or the last lease was unlocked
)

// tenure is one owner's attempt on a lock and, if it is won, the hold it leads to. The owner is used
// for nothing else, ever.
type tenure struct {
	lock   *Lock
	owner  quorumlock.Owner
	hint   uint64
	ballot *ballot // the votes on the attempt
	waiter *waiter // who makes the attempt; nil for TryLock
	place  scripts.Place
	token  uint64 // the fencing token; set before the tenure is held

	mu     sync.Mutex
	phase  phase
	cells  []cellState
	start  time.Time   // before the first send of the attempt or renewal that the validity counts from
	timer  *time.Timer // ends the tenure at its deadline; set while held
	leases map[*quorumlock.Lease]context.CancelCauseFunc

	release *release // set once the release has begun

	// Of the watchdog, guarded by the client's mu.
	when  time.Time // the next renewal
	index int       // in the client's schedule, -1 if it is not there
}

var _ quorumlock.Tenure = (*tenure)(nil)

// cellState is what one cell last said.
type cellState struct {
	state   answer
	token   uint64 // if granted: the tenure's token at this node
	err     error  // the last failure there
	missing bool   // a renewal found that the node does not have the key: it is asked to grant anew
	twin    bool   // the node is another one's server under a second address: it never votes
}

type answer uint8

const (
	unanswered answer = iota
	granted
	refused
	unknown // failed: the script may have run or may run yet
)

func newTenure(l *Lock, w *waiter) *tenure {
	t := &tenure{
		lock:   l,
		owner:  l.client.newOwner(),
		hint:   l.client.Hint(),
		ballot: newBallot(l.tree, len(l.cells)),
		cells:  make([]cellState, len(l.cells)),
		leases: make(map[*quorumlock.Lease]context.CancelCauseFunc, 1),
		index:  -1,
		waiter: w,
	}
	if w != nil {
		w.begin()
		t.place = w.placeAt()
	}
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
	return t.start.Add(t.lock.set.Drift.Validity(t.lock.set.TTL, 0))
}

// remaining is how much validity is left. It is called with mu held.
func (t *tenure) remaining() time.Duration {
	return t.lock.set.Drift.Validity(t.lock.set.TTL, elapsed(t.start, time.Now()))
}

// begin makes a won attempt a hold, if any validity is left of it, and returns its first lease.
func (t *tenure) begin(ctx context.Context, start time.Time) (*quorumlock.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.start = start
	left := t.remaining()
	if left <= 0 {
		return nil, fmt.Errorf("quorumlock: %q was granted, but so late that nothing is left of its TTL of %v: use a longer TTL or look at the nodes' latency", t.lock.name, t.lock.set.TTL)
	}
	if err := t.lock.client.keep(t, t.due(start)); err != nil {
		return nil, err
	}
	t.phase = held
	t.timer = time.AfterFunc(left, t.checkDeadline)
	return t.lease(ctx), nil
}

// due is when a hold is to be renewed that counts from start.
func (t *tenure) due(start time.Time) time.Time { return start.Add(t.lock.set.TTL / 3) }

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
	extend := t.remaining() < t.lock.set.TTL/2
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
	t.mu.Unlock()
	if left <= 0 {
		t.lose("it was not renewed in time")
	}
}

// lose tells every lease that the hold is lost.
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
	for _, lose := range tell {
		lose(quorumlock.ErrLost)
	}
	t.lock.client.forget(t)
	t.lock.set.Logger.Warn("quorumlock: lease lost", "lock", t.lock.name, "owner", t.owner, "why", why)
}

// Leave is quorumlock.Tenure's.
func (t *tenure) Leave(ctx context.Context, l *quorumlock.Lease) error {
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
		t.lock.client.forget(t)
		err = t.releaseAll(ctx)
	}
	if wasLost {
		return quorumlock.ErrLost
	}
	return err
}

// releaseAll releases at every node and returns when a quorum has confirmed. A node that has yet to
// answer the attempt is left to acquired, which gives back when it does: a release sent now could
// overtake the grant.
func (t *tenure) releaseAll(ctx context.Context) error {
	start := time.Now()
	t.mu.Lock()
	t.release = &release{ballot: newBallot(t.lock.tree, len(t.cells)), gone: make([]bool, len(t.cells))}
	var late []int
	var parts []part
	for _, p := range t.lock.parts {
		late = append(late, t.answered(p, unanswered).cells...)
		if q := t.answered(p, granted, refused, unknown); len(q.cells) > 0 {
			parts = append(parts, q)
		}
	}
	t.mu.Unlock()
	t.lock.ask(ctx, start, parts, t.releaseCall, t.released)
	limit, stop := t.lock.bounded(ctx, start)
	defer stop()
	select {
	case <-t.release.ballot.decided:
	case <-limit.Done(): // those that have answered the attempt since may take as long once more
		for _, cell := range late {
			t.release.ballot.cast(cell, No)
		}
		<-t.release.ballot.decided // the others answer by their timeout
	}

	t.mu.Lock()
	broken := t.lock.tree.Broken(t.release.gone)
	t.mu.Unlock()
	switch {
	case broken: // somebody took the keys away, and could have held the lock since
		return quorumlock.ErrLost
	case t.release.ballot.result() == Lost:
		return t.quorumError(t.release.ballot)
	}
	return nil
}

// release is what the nodes say to the end of a hold.
type release struct {
	ballot *ballot
	gone   []bool // cells that did not have the key any more; under the tenure's mu
}

// released takes a node's answer to a release.
func (t *tenure) released(cell int, r scripts.Reply) {
	_, wasHeld, err := r.Released()
	t.mu.Lock()
	end := t.release
	if end != nil {
		t.cells[cell].err = err
		end.gone[cell] = err == nil && !wasHeld
	}
	t.mu.Unlock()
	switch {
	case end == nil: // of an attempt that was not won
	case err != nil:
		end.ballot.cast(cell, No)
	default:
		end.ballot.cast(cell, Yes)
	}
}

// releaseCall also takes the waiter out of the line, if an answer that was lost left it there.
func (t *tenure) releaseCall(cell int) scripts.Call {
	return scripts.Release(t.lock.cells[cell].Name, t.owner, 1, t.place.Waiter)
}

// abandon gives up an attempt whose caller has gone, for the reason err, which it returns. Whatever the
// nodes have granted, or may have, is released in the background; what they are yet to answer, when
// they do.
func (t *tenure) abandon(ctx context.Context, err error) error {
	if t.waiter != nil {
		t.waiter.finish()
	}
	t.giveUp(ctx)
	return err
}

// giveWay ends an attempt that has failed for the reason err, which it returns, and waits for the nodes
// that had granted to have it back: what the caller does next shall not find its own traces, and a
// waiter shall know where it stands.
func (t *tenure) giveWay(ctx, waiting context.Context, err error) error {
	if e := waiting.Err(); e != nil {
		return t.abandon(ctx, e)
	}
	done, nodes := t.giveUp(ctx)
	for range nodes {
		select {
		case <-done:
		case <-waiting.Done():
			return err
		}
	}
	return err
}

// giveUp ends the attempt and gives back at every node that has answered anything but a plain refusal.
// The channel gets a value for each of the nodes that had granted, when it is done.
func (t *tenure) giveUp(ctx context.Context) (done <-chan struct{}, nodes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = over // from here on, an answer that comes late is given back by itself
	given := make(chan struct{}, len(t.lock.parts))
	for _, p := range t.lock.parts {
		q := t.answered(p, granted, unknown)
		if len(q.cells) == 0 {
			continue
		}
		wait := len(t.answered(p, granted).cells) > 0
		if wait {
			nodes++
		}
		t.lock.client.start(func() {
			t.giveBack(ctx, q)
			if wait {
				given <- struct{}{}
			}
		})
	}
	return given, nodes
}

// answered is the part of p whose cells have given one of those answers. It is called with mu held.
func (t *tenure) answered(p part, which ...answer) part {
	q := part{node: p.node}
	for _, cell := range p.cells {
		if slices.Contains(which, t.cells[cell].state) {
			q.cells = append(q.cells, cell)
		}
	}
	return q
}

// giveBack undoes an attempt that is over at a node that has granted, or may have. A waiter who goes on
// waiting takes its place in line again, with its ticket: so a split vote ends with the lowest ticket
// first at every node.
func (t *tenure) giveBack(ctx context.Context, p part) {
	if t.waiter.isFinished() {
		t.lock.askPart(ctx, p, t.releaseCall, t.released)
		return
	}
	yield := func(cell int) scripts.Call {
		return scripts.Yield(t.lock.cells[cell].Name, t.owner, t.place)
	}
	t.lock.askPart(ctx, p, yield, func(cell int, r scripts.Reply) {
		if open, err := r.Yielded(); err == nil {
			t.waiter.yielded(cell, open)
		}
	})
	if t.waiter.isFinished() { // meanwhile
		t.lock.leave(ctx, p, t.waiter)
	}
}

// leaveLines takes the waiter of an attempt that was won out of the line of the nodes that did not
// grant: a holder at the head of a line would keep the others waiting. Nodes that are yet to answer
// are dealt with when they do.
func (t *tenure) leaveLines(ctx context.Context) {
	if t.waiter == nil {
		return
	}
	t.waiter.finish()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.lock.parts {
		if q := t.answered(p, refused, unknown); len(q.cells) > 0 {
			t.lock.client.start(func() { t.lock.leave(ctx, q, t.waiter) })
		}
	}
}

// leave takes w out of the line at some cells of a node.
func (l *Lock) leave(ctx context.Context, p part, w *waiter) {
	l.askPart(ctx, p, func(cell int) scripts.Call {
		return scripts.Leave(l.cells[cell].Name, w.id)
	}, func(int, scripts.Reply) {})
}
