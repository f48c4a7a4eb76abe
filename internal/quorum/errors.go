package quorum

import (
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
)

// The errors of a call, made of what its machine knows of the cells. They are made with the call's mu held.

// failure is why an attempt failed.
func (c *call) failure(why core.Reason) error {
	switch why {
	case core.NoQuorum, core.NotALock:
		return c.quorumError(c.machine.Granted())
	case core.TooLate:
		return fmt.Errorf("quorumlock: %q was granted, but so late that nothing is left of its TTL of %v: use a longer TTL or look at the nodes' latency", c.lock.name, c.lock.set.TTL)
	case core.HeldOrNone:
		return errors.Join(c.heldError(), c.quorumError(c.machine.Granted()))
	}
	held := c.heldError()
	if silent := c.silentErrors(); c.turn == nil && len(silent) > 0 && !c.machine.Certain() {
		return errors.Join(held, &quorumlock.QuorumError{Granted: c.machine.Granted(), Needed: c.needed(), Nodes: silent})
	}
	return held
}

func (c *call) needed() int { return max(c.lock.tree.Need, 1) }

// heldError says who holds the lock, as most of the nodes that refused have it.
func (c *call) heldError() *quorumlock.HeldError {
	e := &quorumlock.HeldError{Name: c.lock.name}
	most := 0
	for i := range c.machine.Cells {
		d := &c.machine.Cells[i]
		if !d.Refused {
			continue
		}
		if c.turn != nil {
			e.Position = max(e.Position, d.Position+1)
		}
		if d.Refusal.Free {
			continue
		}
		who, n := d.Refusal.Holder, 0
		for j := range c.machine.Cells {
			if o := &c.machine.Cells[j]; o.Refused && !o.Refusal.Free && o.Refusal.Holder == who {
				n++
			}
		}
		if n > most {
			most, e.Holder, e.TTL = n, who, 0
		}
		if who == e.Holder {
			e.TTL = max(e.TTL, d.Refusal.TTL)
		}
	}
	return e
}

// quorumError says how many members the call has won, and what went wrong at the nodes that failed.
func (c *call) quorumError(won int) *quorumlock.QuorumError {
	return &quorumlock.QuorumError{Granted: won, Needed: c.needed(), Nodes: c.nodeErrors()}
}

// silentErrors names the nodes that have not answered, and failed before.
func (c *call) silentErrors() (errs []*quorumlock.NodeError) {
	for i := range c.machine.Cells {
		n := c.lock.cells[i].Node
		if c.machine.Cells[i].State == core.Asked && c.lock.client.health.fails(n) {
			errs = append(errs, &quorumlock.NodeError{Node: n.String(), Err: errors.New("no answer yet, and none the last time")})
		}
	}
	return errs
}

// nodeErrors is what went wrong last at each cell.
func (c *call) nodeErrors() (errs []*quorumlock.NodeError) {
	for i := range c.machine.Cells {
		d := &c.machine.Cells[i]
		switch {
		case errors.Is(d.Err, core.ErrDuplicate), errors.Is(d.Err, core.ErrForeign):
			errs = append(errs, nodeError(c.lock.cells[i].Node, fmt.Errorf("%q: %w", c.lock.cells[i].Name, d.Err)))
		case errors.Is(d.Err, errRecalled):
		case d.Err != nil:
			errs = append(errs, nodeError(c.lock.cells[i].Node, d.Err))
		case d.Refused && d.Refusal.Ended && c.turn == nil:
			errs = append(errs, nodeError(c.lock.cells[i].Node, errors.New("the release of this client's last hold has not arrived yet")))
		}
	}
	return errs
}

func nodeError(n Node, err error) *quorumlock.NodeError {
	if e, ok := errors.AsType[*quorumlock.NodeError](err); ok {
		return e
	}
	return &quorumlock.NodeError{Node: n.String(), Err: err}
}

// lossReason says in a word why a hold is lost.
func (c *call) lossReason(why core.Reason) quorumlock.LossReason {
	switch {
	case why == core.Closed:
		return quorumlock.LostClosed
	case why == core.Gone:
		return quorumlock.LostKeysGone
	case why == core.OverMaxHold:
		return quorumlock.LostMaxHold
	case !c.lock.set.Renew:
		return quorumlock.LostNotExtended
	}
	return quorumlock.LostNotRenewed
}

// lostError says why a hold is lost.
func (c *call) lostError(why core.Reason) *quorumlock.LostError {
	reason := "it was not renewed in time"
	switch c.lossReason(why) {
	case quorumlock.LostClosed:
		reason = "the client was closed"
	case quorumlock.LostKeysGone:
		reason = "too many nodes no longer have its key"
	case quorumlock.LostMaxHold:
		reason = fmt.Sprintf("it was held for longer than WithMaxHold(%v)", c.lock.set.MaxHold)
	case quorumlock.LostNotExtended:
		reason = "it was not extended in time"
	}
	return &quorumlock.LostError{Name: c.lock.name, Owner: c.ownerOf(c.machine.Attempt()), Reason: reason, Nodes: c.nodeErrors()}
}
