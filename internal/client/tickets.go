package client

import (
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// newTicket returns the ticket of a call. The caller holds mu.
func (c *Client) newTicket() int64 { return c.nodeClocks.NewTicket(c.ownTime(c.time())) }

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
	for _, r := range replies {
		if at, ok := r.Clock(); ok {
			c.mu.Lock()
			c.nodeClocks.Read(n, at, c.ownTime(asked), c.ownTime(now))
			c.mu.Unlock()
			return
		}
	}
}

// setTicket sets the ticket of the next attempt. The caller holds mu.
func (c *session) setTicket(attempt int32) {
	client := c.lock.client
	client.mu.Lock()
	defer client.mu.Unlock()
	known := client.nodeClocks.Known(client.ownTime(c.at), len(c.lock.nodes))
	var place *engine.Place[chan struct{}]
	if c.place != nil {
		place = &c.place.Place
	}
	c.tries.ticket, c.tries.unsure = engine.TicketOf(place, c.caller.Ticket, attempt, known)
}

// settle records that all nodes have this ticket, or have been sent it. The next caller in the
// local queue may be admitted then.
func (c *session) settle(ticket int64) {
	if c.place == nil {
		return
	}
	c.lock.client.mu.Lock()
	defer c.lock.client.mu.Unlock()
	if c.place.Settle(ticket) {
		c.place.queue.admit()
	}
}

// judged checks the nodes' use of an unsure ticket. The caller holds mu.
func (c *session) judged(now core.Time, b *request, replies []wire.Reply) {
	if !b.unsure {
		return
	}
	for i := range replies {
		v := c.tries.verdicts.Judge(&b.calls[i], b.ticket, &replies[i], len(c.lock.cells))
		if v.Settled {
			c.settle(b.ticket)
		}
		if v.Called {
			c.applyAt(now, core.Event{Kind: core.Turn, Cell: b.calls[i].Cell})
		}
		for cell := 0; v.CalledAtAll && cell < len(c.lock.cells); cell++ {
			c.applyAt(now, core.Event{Kind: core.Turn, Cell: int32(cell)})
		}
	}
}
