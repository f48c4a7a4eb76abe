package coresim

import (
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
)

// localQueue returns the local queue of a worker's lock, the same one with and without renewal.
func (k *worker) localQueue() *engine.LocalQueue[*worker] {
	s := k.step
	q := &k.process.queues[s.kind()]
	if s.Other > 0 {
		q = k.process.queueOf(s.Other)
	}
	q.Shared = s.Read == s.Names+1
	if len(k.lock.names) == 1 {
		q.Slots = k.lock.permits(0)
	}
	return q
}

func (p *process) queueOf(other int) *engine.LocalQueue[*worker] {
	q := p.others[other]
	if q == nil {
		if p.others == nil {
			p.others = make(map[int]*engine.LocalQueue[*worker])
		}
		q = new(engine.LocalQueue[*worker])
		p.others[other] = q
	}
	return q
}

// enqueue makes the worker wait until the local queue admits it. A TryLock does not wait.
func (k *worker) enqueue() {
	if k.step.Try {
		k.try()
		return
	}
	q := k.localQueue()
	k.place = &engine.Place[*worker]{Caller: k, Ticket: k.ticket}
	q.Push(k.place)
	admit(q)
}

// dequeue takes a worker out of its local queue, admitted or not.
func (k *worker) dequeue() {
	if k.place != nil {
		k.place.Leave()
		k.place = nil
		admit(k.localQueue())
	}
}

func admit(q *engine.LocalQueue[*worker]) {
	for t := q.Admit(); t != nil; t = q.Admit() {
		t.Caller.admitted()
	}
}

// admitted makes a call, or a pause first: see core.Pace.
func (k *worker) admitted() {
	p, pace := k.process, k.process.paces[k.step.kind()]
	if pace == (core.Pace{}) || k.step.Limit == 0 || k.step.Other > 0 {
		k.try()
		return
	}
	var nodes []*engine.Health
	for i := range p.health {
		nodes = append(nodes, &p.health[i])
	}
	left := k.began + k.step.Limit - p.now.Mono
	trip, best := engine.Nearest(nodes)
	if pace.Admits(p.now.Mono, left, trip, best) {
		k.try()
		return
	}
	k.dequeue()
	if pause, ok := pace.Pause(p.now.Mono, left, trip); ok {
		k.after(pause, func() {
			k.ticket = p.newTicket()
			k.enqueue()
		})
	}
}
