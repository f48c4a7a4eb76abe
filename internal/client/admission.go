package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// admission has the attempts of a client that wait unsent. The zero value is ready to use.
type admission struct {
	mu sync.Mutex
	engine.Admission[Node, *applicant]
	tries atomic.Int64           // number of calls of TryLock that wait
	hold  *time.Timer            // ends what holdAttempts has begun; nil if nothing is held
	held  map[Node]time.Duration // until when, by the monotonic clock
}

// applicant is a caller whose first attempt waits for its place.
type applicant struct {
	lock    *Lock
	try     bool
	outcome chan error // capacity 1; nil once the attempt has its place
}

// Nodes, Need and IsQuorum make a lock an engine.Quorum.
func (l *Lock) Nodes() []Node { return l.nodes }
func (l *Lock) Need() int     { return l.need }

func (l *Lock) IsQuorum(some []bool) bool {
	if l.need > 0 {
		n := 0
		for _, has := range some {
			if has {
				n++
			}
		}
		return n >= l.need
	}
	has := make(map[Node]bool, len(l.nodes))
	for i, n := range l.nodes {
		has[n] = some[i]
	}
	votes := make([]core.Vote, len(l.cells))
	for i, c := range l.cells {
		votes[i] = core.No
		if has[c.Node] {
			votes[i] = core.Yes
		}
	}
	return l.config.Tree.Tally(votes) == core.VoteWon
}

// takePlace waits for the place of a call's first attempt. The caller must send that attempt next,
// without another wait, because a place that is not used delays others. The error is ErrUnsent
// joined with that of ctx, ErrClosed, or, for a TryLock, a *QuorumError if too many nodes have
// failed. again is true if entered reported that the owner of l already has the lock.
func (l *Lock) takePlace(ctx context.Context, try bool, w *watch, entered <-chan struct{}) (again bool, err error) {
	c, a := l.client, &l.client.admission
	a.mu.Lock()
	if a.Enter(l) {
		a.mu.Unlock()
		return false, nil
	}
	caller := &applicant{lock: l, try: try, outcome: make(chan error, 1)}
	t := a.Wait(l, caller)
	if try {
		a.tries.Add(1)
	}
	a.mu.Unlock()
	w.note(quorumlock.StepQueued, nil)
	if try {
		err = caller.withoutQuorum(c.health.failures())
	}
	for err == nil && !again {
		select {
		case err = <-caller.outcome:
			return false, err // the caller has left the queue
		case <-entered:
			again = c.enters(l)
		case <-ctx.Done():
			err = errs.Join(ctx.Err(), quorumlock.ErrUnsent)
		case <-c.stopping:
			err = quorumlock.ErrClosed
		}
	}
	a.mu.Lock()
	late, left := error(nil), false
	select {
	case late = <-caller.outcome:
	default:
		a.leave(t)
		a.admit()
		left = true
	}
	a.mu.Unlock()
	if !left && late == nil { // it got its place meanwhile
		c.returnPlaces(l.nodes...)
	}
	return again, err
}

// leave takes an attempt out of the queue. The caller holds mu.
func (a *admission) leave(t *engine.Applicant[Node, *applicant]) {
	a.Leave(t)
	if t.Caller.try {
		a.tries.Add(-1)
	}
}

// admit gives attempts their places while there is room. The caller holds mu.
func (a *admission) admit() {
	for t := a.Admit(); t != nil; t = a.Admit() {
		if t.Caller.try {
			a.tries.Add(-1)
		}
		t.Caller.outcome <- nil
	}
}

// holdTime is how long attempts wait after the last renewal that was behind: the holds may have
// ended since.
const holdTime = time.Second

// holdAttempts makes new attempts wait while the renewals of a node are behind.
func (c *Client) holdAttempts(n Node, behind bool) {
	a := &c.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, held := a.held[n]; !behind && !held {
		return
	}
	a.Limit(n).Hold(behind)
	if !behind {
		delete(a.held, n)
		a.admit()
		return
	}
	if a.held == nil {
		a.held = make(map[Node]time.Duration)
	}
	if a.hold == nil {
		a.hold = time.AfterFunc(holdTime, c.endHolds)
	}
	a.held[n] = c.mono() + holdTime
}

// endHolds lets attempts go on at nodes whose renewals have not been behind for holdTime.
func (c *Client) endHolds() {
	a := &c.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	now, next := c.mono(), time.Duration(0)
	for n, end := range a.held {
		if end <= now {
			a.Limit(n).Hold(false)
			delete(a.held, n)
		} else if next == 0 || end < next {
			next = end
		}
	}
	if a.hold = nil; next != 0 {
		a.hold = time.AfterFunc(next-now, c.endHolds)
	}
	a.admit()
}

// at returns the attempts in flight at a node, their limit, and how many wait unsent for any nodes.
func (a *admission) at(n Node) (flight, most, unsent int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	flight, most = a.Limit(n).Flight()
	return flight, most, a.Length()
}

// returnPlaces gives back places of an attempt that was not sent.
func (c *Client) returnPlaces(nodes ...Node) {
	a := &c.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range nodes {
		a.Limit(n).Return()
	}
	a.admit()
}

// landed records a node's answer to an attempt that had a place.
func (c *Client) landed(n Node, replies []wire.Reply, took, now time.Duration) {
	ok, says := true, true
	for _, r := range replies {
		ok, says = ok && (r.Err == nil || !isDown(r.Err)), says && !isOvertaken(r.Err) && !wire.IsBroken(r.Err)
	}
	a := &c.admission
	a.mu.Lock()
	switch l := a.Limit(n); {
	case !says: // a full queue or the end of a connection says nothing about the node
		l.Return()
	case ok:
		l.Landed(true, took, now)
	default:
		time.AfterFunc(l.Pause(), func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			l.Landed(false, took, c.mono())
			a.admit()
		})
	}
	a.admit()
	a.mu.Unlock()
}

// refuseTries ends the calls of TryLock that wait for nodes of which no quorum answers.
func (c *Client) refuseTries() {
	a := &c.admission
	if a.tries.Load() == 0 {
		return
	}
	failed := c.health.failures()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.Without(func(n Node) bool { return failed[n] == nil }) {
		if err := t.Caller.withoutQuorum(failed); err != nil {
			a.leave(t)
			t.Caller.outcome <- err
		}
	}
	a.admit()
}

// withoutQuorum returns the error of a TryLock that waits for nodes of which too many have failed
// the last time; nil if a quorum of them may answer.
func (t *applicant) withoutQuorum(failed map[Node]error) error {
	if !t.try || len(failed) == 0 {
		return nil
	}
	e := &quorumlock.QuorumError{Needed: t.lock.config.Tree.Need()}
	some := make([]bool, 0, len(t.lock.nodes))
	for _, n := range t.lock.nodes {
		err := failed[n]
		if some = append(some, err == nil); err != nil {
			e.Nodes = append(e.Nodes, nodeError(n, err))
		}
	}
	if len(e.Nodes) == 0 || t.lock.IsQuorum(some) {
		return nil
	}
	return e
}
