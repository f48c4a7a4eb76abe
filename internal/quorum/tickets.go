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

// told records the clock of a node from the replies to a request.
func (c *Client) told(n Node, replies []wire.Reply, asked, now core.Time) {
	own := c.ownTime(now)
	ago := time.Duration(own-c.ownTime(asked)) * time.Microsecond
	for _, r := range replies {
		if at, ok := r.Clock(); ok {
			c.mu.Lock()
			if c.isStale(own) {
				clear(c.ahead)
			}
			c.toldAt = own
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
func (c *Client) isStale(own int64) bool { return own-c.toldAt > wire.FreshClock.Microseconds() }

// setTicket sets the ticket of the next attempt: the time of the call by the clocks of the nodes.
// The ticket of a first attempt is unsure until the client knows half of the clocks. After a first
// attempt without a quorum, the client knows all clocks that it can know. The ticket of a Lock
// never rises, and is above that of the call before it in the local queue. The caller holds mu.
func (c *call) setTicket() {
	client, t := c.lock.client, c.turn
	attempt, _ := c.machine.Attempt()
	client.mu.Lock()
	defer client.mu.Unlock()
	known := len(client.ahead)
	if client.isStale(client.ownTime(client.time())) {
		known = 0
	}
	var last int64
	sure := false
	if t != nil && t.sent != 0 {
		last, sure = t.sent, true
	}
	c.ticket, c.unsure = c.caller.Ticket, !sure && (known == 0 || attempt == 1 && 2*known < len(c.lock.nodes))
	switch {
	case c.unsure:
		return
	case known == 0: // the nodes have last
		c.ticket = last
		return
	}
	c.ticket += client.correction.Microseconds()
	if t != nil {
		if before := t.place.Prev(); before != nil {
			c.ticket = max(c.ticket, before.Value.(*turn).sent+1)
		}
	}
	if sure {
		c.ticket = min(c.ticket, last)
	}
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
			c.takeAt(now, core.Event{Kind: core.Turn, Cell: b.calls[i].Cell})
		case !ok || !b.entry.Unsure || b.calls[i].Attempt > 1:
		case at.Sub(time.UnixMicro(b.entry.Ticket)).Abs() <= wire.SameClock:
			if c.taken++; c.taken == len(c.lock.cells) {
				c.settle(b.entry.Ticket)
			}
		default:
			c.takeAt(now, core.Event{Kind: core.Turn, Cell: b.calls[i].Cell})
		}
	}
}
