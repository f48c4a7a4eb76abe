package coresim

import "github.com/quorumlock/quorumlock/internal/core"

// renewal is a queued call that renews a hold.
type renewal struct {
	call *call
	k    core.Call
}

// renewing takes the answers to a process's renewals.
type renewing process

// renew sends the renewals among the calls, or queues them.
func (c *call) renew(calls []core.Call) {
	p, now := c.process, []int(nil)
	left := c.machine.Remaining(p.now)
	for i := range calls {
		node := p.tier.nodeOf(int(calls[i].Cell))
		if calls[i].Do.Renews() && p.renewals.Add(node, renewal{c, calls[i]}, c.lock.lock.TTL, left, len(c.waits) > 0, p.now.Mono) {
			now = append(now, node)
		}
	}
	if len(now) == 0 {
		p.takeTurns()
	}
	for _, node := range now {
		p.sendRenewals(node)
	}
}

// takeTurns sets the timer for the next turn.
func (p *process) takeTurns() {
	at, set := p.renewals.Schedule(p.now.Mono)
	if !set {
		return
	}
	p.turn = at
	p.at(at, something(func() {
		if p.turn != at {
			return
		}
		p.turn = 0
		for _, node := range p.renewals.Turn() {
			p.sendRenewals(node)
		}
		p.takeTurns()
	}))
}

func (p *process) sendRenewals(node int) {
	for {
		send, late := p.renewals.Take(node, p.now.Mono)
		if len(send)+len(late) == 0 {
			return
		}
		for i := range late {
			late[i].unsent()
		}
		b, ended := p.tier.newBatch(len(send)), 0
		for i := range send {
			w := &send[i]
			if !w.call.alive() { // it was unlocked while it was queued
				ended++
				w.unsent()
				continue
			}
			b.items = append(b.items, item{call: w.call, k: w.k, script: w.call.script(&w.k, nil, 0)})
		}
		if ended > 0 {
			p.renewals.Landed(node, ended, 0, p.now.Mono)
		}
		if len(b.items) > 0 {
			p.lanes[node*2+1].send(b, p.tier.plan.NodeTimeout, (*renewing)(p))
		}
	}
}

// unsent answers a renewal that is not sent.
func (w *renewal) unsent() {
	w.call.step(core.Event{Kind: core.Replied, Call: w.k, Reply: core.Reply{Err: errUnsent, Unsent: true}})
}

func (r *renewing) answered(b *batch) {
	p, node := (*process)(r), b.lane.node
	for i := range b.items {
		it := &b.items[i]
		it.call.replied(it)
		it.call.keepPending(it)
		it.call.flush()
	}
	if p.renewals.Landed(node, len(b.items), p.now.Mono-b.sent, p.now.Mono) {
		p.sendRenewals(node)
	}
}
