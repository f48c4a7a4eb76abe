package client

import (
	"context"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// AllowDetach lets leases of l be detached, unless l is shared or a semaphore. All nodes of l must
// be of one client. Call AllowDetach before l is used.
func (l *Lock) AllowDetach() { l.detaches = !l.shared && l.cells[0].Permits == 0 }

// Detach does the work of Lease.Detach. leave ends the lease; it returns false after an Unlock.
func (c *session) Detach(ctx context.Context, lease *quorumlock.Lease, d time.Duration, leave func() bool) (string, error) {
	client, began := c.lock.client, time.Now()
	if client.Begin() != nil {
		// Close has cancelled the lease's context.
		if !leave() {
			return "", quorumlock.ErrNotHeld
		}
		return "", c.released(ctx, lease, began, 0, false, quorumlock.ErrLost)
	}
	defer client.End()
	parked := &Parked{Key: c.lock.cells[0].Name, Need: c.needed(), Until: began.Add(c.lock.set.Drift.Validity(d, 0))}
	c.mu.Lock()
	now := client.time()
	c.applyAt(now, core.Event{Kind: core.Tick}) // the deadline may have passed
	err := c.detachable(lease, d)
	if err == nil && !leave() {
		err = quorumlock.ErrNotHeld
	}
	if err != nil {
		c.flush()
		return "", err
	}
	c.hold.leases = c.hold.leases[:0]
	held := c.machine.Held(now)
	_, parked.Owner = client.waiterOf(client.newNumber(client.calls.Add(1)))
	c.ctx, c.caller.Parked = ctx, parked.Owner
	client.keeps(c.number, d)
	c.endHold(now, core.Event{Kind: core.Detach, Keep: d})
	c.flush()
	err = c.confirmed()
	c.mu.Lock()
	var ok bool
	parked.Source, ok = c.machine.Parked()
	switch {
	case c.hold.loss != nil:
		err = c.hold.loss
	case err == nil && !ok, err != nil && c.machine.Remaining(client.time()) <= 0:
		err = c.lostError(core.NotRenewed)
	}
	ended := c.hold.loss == nil
	c.mu.Unlock()
	if c.released(ctx, lease, began, held, ended, err) != nil {
		return "", err
	}
	return parked.String(), nil
}

// detachable returns the reason why a lease cannot be detached, or nil. The caller holds mu.
func (c *session) detachable(lease *quorumlock.Lease, d time.Duration) error {
	set := &c.lock.set
	switch {
	case !c.lock.detaches || c.downgraded.Load():
		return errs.Misusef("quorumlock: Detach: the lease of %q cannot be detached: use a Mutex, or the writer of an RWMutex, of package redlock", c.lock.name)
	case d < quorumlock.MinTTL, set.Drift.Validity(d, 0) <= 0:
		return errs.Misusef("quorumlock: Detach: %v is too short for another process to take the hold over: use %v at least, and more than the drift", d, quorumlock.MinTTL)
	case set.MaxTTL > 0 && d > set.MaxTTL:
		return errs.Misusef("quorumlock: Detach: %v is longer than WithRestartGuard(%v) expects of any client: use a shorter time, or a longer guard at all clients", d, set.MaxTTL)
	case d > maxParked:
		return errs.Misusef("quorumlock: Detach: %v is too long: use at most %v", d, maxParked)
	case c.hold.find(lease) < 0:
		return quorumlock.ErrNotHeld
	case c.hold.kept > c.lock.client.mono():
		return errs.Misusef("quorumlock: Detach: UnlockAfter of another lease of this hold of %q keeps the lock: unlock that one with Unlock", c.lock.name)
	case len(c.hold.leases) > 1 && c.hold.loss != nil:
		return c.hold.loss
	case len(c.hold.leases) > 1:
		return errs.Misusef("quorumlock: Detach: %d leases of this hold of %q are entered: unlock the others first, they would lose it", len(c.hold.leases), c.lock.name)
	}
	return nil
}

// maxParked limits the duration of a Detach.
const maxParked = 365 * 24 * time.Hour

const (
	maxSplits  = 8                     // attempts while several Attaches split the nodes
	splitPause = 10 * time.Millisecond // mean pause before the second attempt; doubles
	splitTime  = time.Second           // no new attempt later; four node timeouts if longer
)

// taking is an Attach; empty for other calls.
type taking struct {
	parked *Parked // the hold that is taken over
	split  bool    // it failed because of another Attach
}

// Attach takes over a detached hold of l.
func (l *Lock) Attach(ctx context.Context, p *Parked) (*quorumlock.Lease, error) {
	need, cells := l.Quorum()
	if l.err == nil && (need != p.Need || cells != len(p.Source.Counts) || l.cells[0].Name != p.Key) {
		return nil, errs.Misusef("quorumlock: Attach: the text is of a lock over %d nodes with a quorum of %d, and this client has %d with a quorum of %d: use a client of the same nodes and the same quorum",
			len(p.Source.Counts), p.Need, cells, need)
	}
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	defer l.client.End()
	return l.watched(ctx, true, func(l *Lock, ctx context.Context, w *watch) (*quorumlock.Lease, error) {
		return l.attach(ctx, p, w)
	})
}

// attach makes attempts until the new holder is certain. Another owner with a quorum may be about
// to pass the hold back. If it still has a quorum after two node timeouts, its Attach has
// succeeded: an attempt of a process with the same node timeout is over by then. If the owner
// differs each time, the hold moves on quickly.
func (l *Lock) attach(ctx context.Context, p *Parked, w *watch) (*quorumlock.Lease, error) {
	config := l.config
	config.Source = &p.Source
	last := time.Now().Add(max(splitTime, 4*l.set.NodeTimeout))
	var other quorumlock.Owner
	for try := 1; ; try++ {
		c := l.newSession(&config, l.client.nextTicket(), nil, w)
		c.caller.Former = p.Owner
		c.taking.parked = p
		lease, err := c.run(ctx, ctx, nil)
		if lease != nil {
			l.saw(l.client.mono(), p.Source.Token)
			return lease, nil
		}
		c.mu.Lock()
		split, taker := c.taking.split, c.machine.TakenOver()
		pause := splitPause<<min(try, 6)/4 + time.Duration(c.machine.Draw(int(splitPause<<min(try, 6)/2)))
		c.mu.Unlock()
		if err == nil { // the hold ended before there was a lease
			err = c.tooLate()
		}
		switch {
		case !split:
			return nil, err
		case taker != "" && (taker == other || l.client.find(taker, l) != nil || time.Now().After(last)):
			return nil, l.gone(p, nil)
		case taker != "":
			pause = 2 * l.set.NodeTimeout
		case try >= maxSplits || time.Now().After(last):
			return nil, err
		}
		other = taker
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, errs.Join(ctx.Err(), err)
		case <-l.client.stopping:
			return nil, quorumlock.ErrClosed
		}
	}
}

// attachFailure returns the error of a failed Attach. The caller holds mu.
func (c *session) attachFailure(why core.Reason) error {
	switch why {
	case core.Gone:
		return c.lock.gone(c.taking.parked, c.nodeErrors())
	case core.WrongUse:
		return c.notALock()
	case core.TooLate:
		return c.tooLate()
	case core.Held:
		c.taking.split = true
		if len(c.nodeErrors()) == 0 {
			return c.heldError()
		}
		return errs.Join(c.heldError(), c.quorumError(c.machine.Granted()))
	}
	return c.quorumError(c.machine.Granted())
}

// gone returns the error of an Attach that comes too late.
func (l *Lock) gone(p *Parked, nodes []*quorumlock.NodeError) *quorumlock.LostError {
	return &quorumlock.LostError{Name: l.name, Owner: p.Owner, Nodes: slices.Clone(nodes),
		Reason: "it was attached or freed before, or its time, until " + p.Until.UTC().Format(time.RFC3339) + ", was over"}
}
