package client

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The errors of a call, from the cells of its machine. Callers of call's methods hold its mu.

// failure returns the error of a failed attempt.
func (c *session) failure(why core.Reason) error {
	if c.taking.parked != nil {
		return c.attachFailure(why)
	}
	switch why {
	case core.Held:
		return c.heldError()
	case core.HeldAndNoQuorum:
		return errs.Join(c.heldError(), c.quorumError(c.machine.Granted()))
	case core.WrongUse:
		return c.notALock()
	case core.TooLate:
		return c.tooLate()
	case core.NoToken:
		return c.noToken()
	}
	e := c.quorumError(c.machine.Granted())
	if why == core.HeldOrNone {
		e.Nodes = append(e.Nodes, c.silentErrors()...)
	}
	return e
}

// notALock returns the error of the first node with something else under the key: many such nodes
// are a misuse, not an outage.
func (c *session) notALock() error {
	for i := range c.machine.Cells {
		if d := &c.machine.Cells[i]; d.WrongUse && d.Err != nil {
			return nodeError(c.lock.cells[i].Node, d.Err)
		}
	}
	return quorumlock.ErrNotALock
}

func (c *session) tooLate() error {
	if c.taking.parked != nil {
		return fmt.Errorf("%w: too little time is left for the detached hold of %q: detach it for longer or look at the nodes' latency", quorumlock.ErrTooLate, c.lock.name)
	}
	return fmt.Errorf("%w: nothing is left of the TTL of %v of %q: use a longer TTL or look at the nodes' latency", quorumlock.ErrTooLate, c.lock.set.TTL, c.lock.name)
}

// noToken returns the error of a TryLock whose token no quorum confirmed in time.
func (c *session) noToken() error {
	late := fmt.Errorf("%w: too few nodes confirmed the fencing token of %q in time: use a longer node timeout than %v or look at the nodes' latency",
		quorumlock.ErrTooLate, c.lock.name, c.lock.set.NodeTimeout)
	all := []error{late}
	for _, e := range c.nodeErrors() {
		all = append(all, e)
	}
	return errs.Join(all...)
}

func (c *session) needed() int { return c.lock.config.Tree.Need() }

// heldError returns the refusal, with the holder at most of the cells that refused.
func (c *session) heldError() *quorumlock.HeldError {
	e := &quorumlock.HeldError{Name: c.lock.name}
	type tally struct {
		cells int
		ttl   time.Duration
	}
	holders, most := make(map[quorumlock.Owner]tally), 0
	for i := range c.machine.Cells {
		d := &c.machine.Cells[i]
		if d.Refusal == nil {
			continue
		}
		if c.place != nil && d.Standing != core.Spared {
			e.Position = max(e.Position, d.Position+1)
		}
		if d.Refusal.Free || d.Refusal.Holder == "" {
			continue
		}
		h := holders[d.Refusal.Holder]
		h.cells, h.ttl = h.cells+1, max(h.ttl, d.Refusal.TTL)
		holders[d.Refusal.Holder] = h
		most = max(most, h.cells)
	}
	for i := range c.machine.Cells { // the first holder with most cells
		if d := &c.machine.Cells[i]; d.Refusal != nil && !d.Refusal.Free && most > 0 && holders[d.Refusal.Holder].cells == most {
			e.Holder, e.TTL = d.Refusal.Holder, holders[d.Refusal.Holder].ttl
			break
		}
	}
	e.Own = c.lock.client.isLive(e.Holder)
	return e
}

// heldHere returns the refusal of a caller that waits for other calls of its client.
func (l *Lock) heldHere() *quorumlock.HeldError {
	holder := l.client.holderOf(l)
	return &quorumlock.HeldError{Name: l.name, Holder: holder, Own: holder != ""}
}

// quorumError returns an error with the number of members that agreed, and the nodes' errors.
func (c *session) quorumError(won int) *quorumlock.QuorumError {
	return &quorumlock.QuorumError{Granted: won, Needed: c.needed(), Nodes: c.nodeErrors()}
}

// silentErrors returns errors of the silent nodes, except those with an error from the last call.
func (c *session) silentErrors() (failed []*quorumlock.NodeError) {
	silent := errors.New("no answer yet")
	if lag := c.machine.Lag(); lag > 0 {
		silent = fmt.Errorf("no answer read yet: this process is too busy, its timers were late, so the call waited %v longer", lag.Round(time.Millisecond))
	}
	for i := range c.machine.Cells {
		if d := &c.machine.Cells[i]; d.Standing == core.Asked && d.Err == nil {
			failed = append(failed, &quorumlock.NodeError{Node: c.lock.cells[i].Node.String(), Err: silent})
		}
	}
	return c.eachOnce(failed)
}

// nodeErrors returns the last error of each cell.
func (c *session) nodeErrors() (failed []*quorumlock.NodeError) {
	for i := range c.machine.Cells {
		d, cell := &c.machine.Cells[i], &c.lock.cells[i]
		switch {
		case errors.Is(d.Err, core.ErrDuplicate):
			failed = append(failed, nodeError(cell.Node, fmt.Errorf("%q: the lock was acquired here a moment ago: is this the same server as another node?", cell.Name)))
		case errors.Is(d.Err, core.ErrForeign):
			failed = append(failed, nodeError(cell.Node, fmt.Errorf("%q: the lock was acquired here under the same owner before: is a proxy sending commands twice, or was this process restored twice from one image?", cell.Name)))
		case errors.Is(d.Err, wire.ErrRecalled):
		case d.Err != nil:
			failed = append(failed, nodeError(cell.Node, d.Err))
		case d.Refusal != nil && d.Refusal.Ended && c.place == nil:
			failed = append(failed, nodeError(cell.Node, errors.New("the release of this client's last hold has not arrived yet")))
		}
	}
	return c.eachOnce(failed)
}

// eachOnce drops repeated errors of a node: a MultiLock has many cells at each.
func (c *session) eachOnce(failed []*quorumlock.NodeError) []*quorumlock.NodeError {
	if len(c.lock.cells) == len(c.lock.nodes) {
		return failed
	}
	said := make(map[[2]string]bool)
	return slices.DeleteFunc(failed, func(e *quorumlock.NodeError) bool {
		key := [2]string{e.Node, e.Err.Error()}
		again := said[key]
		said[key] = true
		return again
	})
}

// stillHeld returns an error with the oldest holds; nil if there are none.
func (c *Client) stillHeld() error {
	type held struct {
		name string
		time time.Duration
	}
	var all []held
	for _, w := range c.all() {
		w.mu.Lock()
		if w.machine.Phase() == core.Holding {
			all = append(all, held{w.lock.name, w.machine.Held(c.time()).Round(time.Millisecond)})
		}
		w.mu.Unlock()
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b held) int { return cmp.Compare(b.time, a.time) })
	text := fmt.Sprintf("quorumlock: %d locks are still held", len(all))
	if len(all) == 1 {
		text = "quorumlock: 1 lock is still held"
	}
	const named = 3
	for i, h := range all[:min(len(all), named)] {
		text += fmt.Sprintf("%s %.100q for %v", []string{":", ","}[min(i, 1)], h.name, h.time)
	}
	if more := len(all) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return errors.New(text)
}

func nodeError(n Node, err error) *quorumlock.NodeError { return engine.NodeError(n, err) }

// lossReason returns the reason of a loss for events.
func (c *session) lossReason(why core.Reason) quorumlock.LossReason {
	switch {
	case why == core.Closed:
		return quorumlock.LossClosed
	case why == core.Gone:
		return quorumlock.LossKeysGone
	case why == core.OverMaxHold:
		return quorumlock.LossMaxHold
	case !c.lock.set.Renew:
		return quorumlock.LossNotExtended
	}
	return quorumlock.LossNotRenewed
}

// lostError returns the error of a lost hold.
func (c *session) lostError(why core.Reason) *quorumlock.LostError {
	reason := "it was not renewed in time"
	switch c.lossReason(why) {
	case quorumlock.LossClosed:
		reason = "the client was closed"
	case quorumlock.LossKeysGone:
		reason = "too many nodes no longer have its key"
	case quorumlock.LossMaxHold:
		reason = fmt.Sprintf("it was held for longer than WithMaxHold(%v)", c.lock.set.MaxHold)
	case quorumlock.LossNotExtended:
		reason = "it was not extended in time"
	}
	if why == core.Confused {
		reason = "quorumlock has a bug, which its log names"
	}
	return &quorumlock.LostError{Name: c.lock.name, Owner: c.ownerOf(c.machine.Attempt()), Reason: reason, Nodes: c.nodeErrors()}
}
