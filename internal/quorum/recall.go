package quorum

import (
	"errors"
	"slices"

	"github.com/quorumlock/quorumlock/internal/core"
)

// list is called before a batch is sent. It makes a first attempt recallable.
func (c *call) list(b *batch) {
	if first := &b.calls[0]; first.Do != core.Acquire || first.Attempt > 1 {
		return
	}
	c.mu.Lock()
	b.listed, b.next, c.asked = true, c.asked, b
	c.mu.Unlock()
}

// unlist makes a batch no longer recallable. It is called with mu held.
func (c *call) unlist(b *batch) {
	if !b.listed {
		return
	}
	at := &c.asked
	for *at != b {
		at = &(*at).next
	}
	*at, b.listed, b.next = b.next, false, nil
}

// errRecalled is the error of a recalled attempt at a healthy node; errSilent is that at a node whose last call failed, or that has
// not answered any.
var (
	errRecalled = errors.New("not sent: the attempt was given back before the node's turn came")
	errSilent   = errors.New("not sent: the attempt was given back before the node's turn came, and the node has not answered lately")
)

// recall runs before b is sent. If the only earlier batch at the node is the first attempt, still
// unsent, and b releases all of that attempt, recall drops both and returns true. Then nothing was
// acquired at the node, and the waiter is not in its queue. So slow or distant nodes cost short
// holds and handoffs little.
//
// The machine sees a release that found nothing. If the last call to the node failed, or there was
// none, the machine sees an unsent release: the next waiter cannot count on that node.
func (c *call) recall(b *batch) bool {
	c.mu.Lock()
	a := c.asked
	for a != nil && a.node != b.node {
		a = a.next
	}
	if a == nil {
		c.mu.Unlock()
		return false
	}
	c.unlist(a)
	if !b.endsAll(a) || !a.node.Recall(Foreground, &a.receipt) {
		c.mu.Unlock()
		return false
	}
	client := c.lock.client
	defer client.End() // of a
	attempt, release := core.Reply{Err: errRecalled, Unsent: true}, core.Reply{}
	if !client.health.answers(b.node) {
		attempt.Err = errSilent
		release = attempt
	}
	now := client.time()
	for i := range a.calls {
		c.takeAt(now, core.Event{Kind: core.Replied, Call: a.calls[i], Reply: attempt})
	}
	for i := range b.calls {
		c.takeAt(now, core.Event{Kind: core.Replied, Call: b.calls[i], Reply: release})
	}
	c.mu.Unlock()
	a.free()
	b.free()
	return true
}

// endsAll reports whether b releases, or leaves the queue for, everything that a has asked for.
func (b *batch) endsAll(a *batch) bool {
	same := func(x, y core.Call) bool {
		return x.Cell == y.Cell && (x.Do == core.Release || x.Do == core.ReleaseAndLeave || x.Do == core.Leave)
	}
	return slices.EqualFunc(b.calls, a.calls, same)
}
