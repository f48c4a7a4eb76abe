package coresim

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/fleet"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// nodeClocks is a process's knowledge of its nodes' clocks, as in quorum.Client.
type nodeClocks struct {
	ahead       map[int]time.Duration // by node
	correction  time.Duration
	clockReadAt int64
}

func (p *process) newTicket() int64 {
	p.ticket = max(p.ticket+1, p.ownTime())
	return p.ticket
}

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
			if p.ownTime()-p.clock.clockReadAt > wire.FreshClock.Microseconds() {
				clear(p.clock.ahead)
			}
			p.clock.clockReadAt = p.ownTime()
			p.clock.ahead[node] = wire.Ahead(p.clock.correction, at.Sub(time.UnixMicro(p.ownTime())), time.Duration(p.ownTime()-b.asked)*time.Microsecond)
			p.clock.correction = wire.Correction(p.clock.correction, slices.Collect(maps.Values(p.clock.ahead)))
			return
		}
	}
}

// setTicket has the rules of its namesake in package quorum.
func (c *call) setTicket() {
	p, q := c.process, c.queue()
	attempt, _ := c.machine.Attempt()
	known := len(p.clock.ahead)
	if p.ownTime()-p.clock.clockReadAt > wire.FreshClock.Microseconds() {
		known = 0
	}
	var last, before int64
	if q != nil {
		last = c.worker.sent
		if i := slices.Index(*q, c.worker); i > 0 {
			before = (*q)[i-1].sent
		}
	}
	few := attempt == 1 && before == 0 && 2*known < p.tier.plan.Nodes
	c.entry.Ticket, c.entry.Unsure = c.caller.Ticket, last == 0 && (known == 0 || few)
	switch {
	case c.entry.Unsure:
		return
	case known == 0:
		c.entry.Ticket = last
		return
	}
	c.entry.Ticket = max(c.entry.Ticket+p.clock.correction.Microseconds(), before+1)
	if last != 0 {
		c.entry.Ticket = min(c.entry.Ticket, last)
	}
}

// queue is the local queue in which the worker of the call waits, nil if there is none.
func (c *call) queue() *localQueue {
	if c.worker.call != c {
		return nil
	}
	return c.worker.localQueueOf()
}

// settle has the rules of its namesake in package quorum.
func (c *call) settle(ticket int64) {
	q := c.queue()
	switch {
	case q == nil:
	case c.worker.sent == 0:
		c.worker.sent = ticket
		q.admit()
	default:
		c.worker.sent = min(c.worker.sent, ticket)
	}
}

// judged has the rules of its namesake in package quorum.
func (c *call) judged(b *batch) {
	for i := range b.items {
		it := &b.items[i]
		at, ok := it.reply.Clock()
		switch {
		case it.k.Do == core.Yield && it.entry.Unsure && it.reply.Err == nil:
			c.apply(core.Event{Kind: core.Turn, Cell: it.k.Cell})
		case !ok || !it.entry.Unsure || it.k.Attempt > 1:
		case at.Sub(time.UnixMicro(it.entry.Ticket)).Abs() <= wire.SameClock:
			if c.accepted++; c.accepted == c.lock.Cells() {
				c.settle(it.entry.Ticket)
			}
			c.evenOut()
		default:
			c.replaced++
			c.apply(core.Event{Kind: core.Turn, Cell: it.k.Cell})
			c.evenOut()
		}
	}
}

// evenOut has the rules of its namesake in package quorum.
func (c *call) evenOut() {
	if c.replaced == 0 || c.accepted == 0 || c.replaced+c.accepted < c.lock.Cells() {
		return
	}
	for cell := range c.lock.Cells() {
		c.apply(core.Event{Kind: core.Turn, Cell: int32(cell)})
	}
}

// timely checks that a sure ticket is the time of the call by the clocks of the nodes, to within
// seconds, even if the client's clock is wrong. A node's clock was read at most a NodeTimeout
// before the client's. Since then the clocks may have drifted apart.
func (t *tier) timely(c *call) {
	apart := t.plan.Drift.Rate * float64(min(t.world.Now(), wire.FreshClock))
	seconds := 3*time.Second + t.plan.NodeTimeout + time.Duration(apart)
	if c.entry.Unsure || t.plan.Class == beyond || !t.nodesKeepTime() || t.sleeps() {
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
