package quorum

import (
	"maps"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// newTicket returns the client's own time, never the same twice. The caller holds mu.
func (c *Client) newTicket() int64 {
	c.ticket = max(c.ticket+1, c.ownTime(c.time()))
	return c.ticket
}

// ownTime returns a time in µs, by a clock that never steps. It is right if the wall clock was
// right when the client was made.
func (c *Client) ownTime(t core.Time) int64 {
	if c.boot == nil {
		t.Boot = t.Mono
	}
	return c.base.UnixMicro() + t.Boot.Microseconds()
}

// readClock records the clock of a node from the replies to a request.
func (c *Client) readClock(n Node, replies []wire.Reply, asked, now core.Time) {
	own := c.ownTime(now)
	ago := time.Duration(own-c.ownTime(asked)) * time.Microsecond
	for _, r := range replies {
		if at, ok := r.Clock(); ok {
			c.mu.Lock()
			if c.isStale(own) {
				clear(c.ahead)
			}
			c.clockReadAt = own
			ahead := wire.Ahead(c.correction, at.Sub(time.UnixMicro(own)), ago)
			c.ahead[n] = ahead
			if (ahead - c.correction).Abs() > wire.SameClock { // else the median is nearer
				c.correction = wire.Correction(c.correction, slices.Collect(maps.Values(c.ahead)))
			}
			c.mu.Unlock()
			return
		}
	}
}

// isStale reports whether the nodes' clocks are too old to rely on. The caller holds mu.
func (c *Client) isStale(own int64) bool { return own-c.clockReadAt > wire.FreshClock.Microseconds() }

// setTicket sets the ticket of the next attempt: the time of the call by the clocks of the nodes.
// After a first attempt without a quorum, the client knows all clocks that it can know. In a first
// attempt the ticket is unsure while the client knows less than half of them. Where a clock is
// known, it is sure if and only if that of the call before it in the local queue is: a node could
// replace the unsure one of the two, and so reverse their order. The ticket of a Lock never rises,
// and lies between those of the calls before and after it. The caller holds mu.
func (c *call) setTicket(attempt int32) {
	client, t := c.lock.client, c.turn
	client.mu.Lock()
	defer client.mu.Unlock()
	known := len(client.ahead)
	if client.isStale(client.ownTime(client.time())) {
		known = 0
	}
	var last, before, after int64
	few := 2*known < len(c.lock.nodes)
	if t != nil {
		last = t.sent
		before, after = t.sentBeside()
		if prev := t.place.Prev(); prev != nil && !c.lock.shared {
			few = prev.Value.(*turn).sent == 0
		}
	}
	c.ticket, c.unsure = c.caller.Ticket, last == 0 && (known == 0 || few && attempt == 1)
	switch {
	case c.unsure:
		return
	case known == 0: // the nodes have last
		c.ticket = last
		return
	}
	c.ticket = max(c.ticket+client.correction.Microseconds(), before+1)
	if after != 0 {
		c.ticket = min(c.ticket, after-1)
	}
	if last != 0 {
		c.ticket = min(c.ticket, last)
	}
}

// sentBeside returns the last tickets of the nearest calls before and after this one in the local
// queue, or 0 if the nodes have none. Readers have no order. The caller holds Client.mu.
func (t *turn) sentBeside() (before, after int64) {
	if t.queue.lock.shared {
		return 0, 0
	}
	for e := t.place.Prev(); e != nil && before == 0; e = e.Prev() {
		before = e.Value.(*turn).sent
	}
	for e := t.place.Next(); e != nil && after == 0 && e.Value.(*turn).admitted; e = e.Next() {
		after = e.Value.(*turn).sent
	}
	return before, after
}

// settle records that all nodes have this ticket, or have been sent it. From now on, the nodes
// queue later calls behind it, so the next caller in the local queue is admitted.
func (c *call) settle(ticket int64) {
	if c.turn == nil {
		return
	}
	c.lock.client.mu.Lock()
	defer c.lock.client.mu.Unlock()
	if c.turn.sent == 0 {
		c.turn.sent = ticket
		c.turn.queue.admit()
	}
	c.turn.sent = min(c.turn.sent, ticket)
}

// judged checks the nodes' use of the unsure ticket of a first attempt. If all nodes accepted it,
// the call is settled. A node that used its own clock instead counts as one that has called the
// waiter: the next attempt follows soon, with the same ticket at all nodes. The caller holds mu.
func (c *call) judged(now core.Time, b *request, replies []wire.Reply) {
	for i := range replies {
		at, ok := replies[i].Clock()
		switch {
		// The reply to a Yield has no clock.
		case b.calls[i].Do == core.Yield && b.entry.Unsure && replies[i].Err == nil:
			c.applyAt(now, core.Event{Kind: core.Turn, Cell: b.calls[i].Cell})
		case !ok || !b.entry.Unsure || b.calls[i].Attempt > 1:
		case at.Sub(time.UnixMicro(b.entry.Ticket)).Abs() <= wire.SameClock:
			if c.accepted++; c.accepted == len(c.lock.cells) {
				c.settle(b.entry.Ticket)
			}
			c.evenOut(now)
		default:
			c.replaced++
			c.applyAt(now, core.Event{Kind: core.Turn, Cell: b.calls[i].Cell})
			c.evenOut(now)
		}
	}
}

// evenOut ends the wait of a first attempt that all nodes have refused, some of them with tickets
// of their own: the waiter may be first at these alone, where it keeps out others. The caller holds
// mu.
func (c *call) evenOut(now core.Time) {
	if c.replaced == 0 || c.accepted == 0 || c.replaced+c.accepted < len(c.lock.cells) {
		return
	}
	for cell := range c.lock.cells {
		c.applyAt(now, core.Event{Kind: core.Turn, Cell: int32(cell)})
	}
}
