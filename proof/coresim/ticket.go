package coresim

import (
	"math"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/fleet"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

func (p *process) newTicket() int64 { return p.clocks.NewTicket(p.ownTime()) }

func (p *process) ownTime() int64 {
	now, base := p.tier.world.Clock(p.number), p.tier.base[p.number]
	if hasBootClock(p.number) {
		return int64(base.Wall.Add(now.Boot - base.Boot))
	}
	return int64(base.Wall.Add(now.Mono - base.Mono))
}

func (p *process) readClock(node int, b *batch) {
	for i := range b.items {
		if at, ok := b.items[i].reply.Clock(); ok {
			now := p.ownTime()
			p.clocks.Read(node, at, b.asked, now)
			p.vague[node] = time.Duration(now-b.asked)*time.Microsecond > p.tier.plan.NodeTimeout
			return
		}
	}
}

func (c *call) setTicket() {
	attempt, _ := c.machine.Attempt()
	known, was := c.process.clocks.Known(c.process.ownTime(), c.process.tier.plan.Nodes), c.entry.Ticket
	c.entry.Ticket, c.entry.Unsure = engine.TicketOf(c.place, c.caller.Ticket, attempt, known)
	if c.entry.Ticket != was {
		c.vague = slices.Contains(c.process.vague, true) || c.follows()
	}
	if c.entry.Ticket < was { // its time as the first begins here, not at the last audit
		c.process.tier.watch.moved(c.lock.all())
	}
}

// follows reports whether the call has the ticket next to that of a caller of its process that was
// sent one before any clock was known. The next attempts of both have better ones.
func (c *call) follows() bool {
	return slices.ContainsFunc(c.process.live, func(ahead *call) bool {
		return ahead.entry.Unsure && ahead.entry.Ticket+1 == c.entry.Ticket
	})
}

func (c *call) settle(ticket int64) {
	if c.place != nil && c.place.Settle(ticket) {
		admit(c.worker.localQueue())
	}
}

func (c *call) judged(b *batch) {
	for i := range b.items {
		it := &b.items[i]
		if !it.entry.Unsure {
			continue
		}
		v := c.acceptance.Judge(&it.k, it.entry.Ticket, &it.reply, c.lock.Cells())
		if v.Settled {
			c.settle(it.entry.Ticket)
		}
		if v.Called {
			c.apply(core.Event{Kind: core.Turn, Cell: it.k.Cell})
		}
		for cell := 0; v.CalledAtAll && cell < c.lock.Cells(); cell++ {
			c.apply(core.Event{Kind: core.Turn, Cell: int32(cell)})
		}
	}
}

// timely checks that a sure ticket is the time of the call by the clocks of the nodes, to within
// seconds, even if the client's clock is wrong. A node's clock was read at most a NodeTimeout
// before the client's. Since then the clocks may have drifted apart. A process that was frozen may
// have a vague reading, until the next answer of that node. Tickets from that reading stay.
func (t *tier) timely(c *call) {
	apart := t.plan.Drift.Rate * float64(min(t.world.Now(), wire.FreshClock))
	seconds := 3*time.Second + t.plan.NodeTimeout + time.Duration(apart)
	if c.entry.Unsure || t.plan.Class == beyond || !t.nodesKeepTime() || t.sleeps() || t.rests || c.vague || slices.Contains(c.process.vague, true) {
		return
	}
	first, last := scriptmodel.Time(math.MaxInt64), scriptmodel.Time(math.MinInt64)
	for n := range t.plan.Nodes {
		_, now := t.world.Node(n)
		first, last = min(first, now), max(last, now)
	}
	ago := c.process.ownTime() - c.caller.Ticket
	if at := scriptmodel.Time(c.entry.Ticket + ago); at < first.Add(-seconds) || at > last.Add(seconds) {
		t.violate(ticketOrder, "%s has a ticket that is %v off", c.caller.Waiter, time.Duration(max(first-at, at-last))*time.Microsecond)
	}
}

// sleeps reports whether a client is suspended.
func (t *tier) sleeps() bool {
	return slices.ContainsFunc(t.plan.Faults, func(f fleet.Fault) bool { return f.Kind == fleet.Sleep })
}

// nodeTicket returns the ticket given by a node to a waiter that joins with this entry, in ms of
// the node's clock.
func nodeTicket(e *wire.Entry, now int64) float64 {
	if e.Unsure && math.Abs(float64(e.Ticket-now*1000)) > float64(wire.SameClock.Microseconds()) {
		return float64(now * 1000)
	}
	return float64(e.Ticket)
}
