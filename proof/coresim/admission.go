package coresim

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
)

// Nodes, Need and IsQuorum make a lock an engine.Quorum.
func (l *lock) Nodes() []int { return l.each }
func (l *lock) Need() int    { return 0 }

func (l *lock) IsQuorum(some []bool) bool {
	votes := make([]core.Vote, l.Cells())
	for cell := range votes {
		votes[cell] = core.No
		if some[cell%l.nodes] {
			votes[cell] = core.Yes
		}
	}
	return l.lock.Tree.Tally(votes) == core.VoteWon
}

// takePlace makes a call once its first attempt has its place.
func (k *worker) takePlace() {
	a := &k.process.admission
	if k.process.tier.former.unadmitted || a.Enter(k.lock) {
		k.ask()
		return
	}
	k.call, k.unsent, k.unsentAt = nil, a.Wait(k.lock, k), k.process.now.Mono
	k.refuse()
}

// inProcess is how long a call has waited for its places.
func (k *worker) inProcess() time.Duration {
	if k.unsent == nil {
		return k.waited
	}
	return k.waited + k.process.now.Mono - k.unsentAt
}

// leavePlace takes a worker that waits for its place out of the queue.
func (k *worker) leavePlace() {
	if k.unsent != nil {
		k.process.admission.Leave(k.unsent)
		k.unsent = nil
	}
}

// refuse ends a TryLock that waits for its place, if no quorum of its nodes answers.
func (k *worker) refuse() {
	p, some, failed := k.process, make([]bool, k.lock.nodes), false
	for node := range some {
		h := &p.health[node]
		asked := h.Trip(-1) >= 0
		some[node] = !asked || h.Answers()
		failed = failed || !some[node]
	}
	if !k.step.Try || !failed || k.lock.IsQuorum(some) {
		return
	}
	p.tier.failed(k, core.NoQuorum, p.now.Mono-k.began)
	k.returns()
	k.next()
}

// admit lets workers ask while there is room.
func (p *process) admit() {
	for t := p.admission.Admit(); t != nil; t = p.admission.Admit() {
		k := t.Caller
		k.unsent = nil
		k.waited += p.now.Mono - k.unsentAt
		k.ask()
	}
}

// landed gives back the place at a node of a first attempt: it was answered, or was not sent.
func (p *process) landed(node int, b *batch) {
	if !b.first || p.tier.former.unadmitted {
		return
	}
	ok := true
	for i := range b.items {
		err := b.items[i].reply.Err
		ok = ok && (err == nil || !isDown(err))
	}
	took := p.now.Mono - b.sent
	switch l := p.admission.Limit(node); {
	case b.recalled:
		l.Return()
	case ok:
		l.Landed(true, took, p.now.Mono)
	default:
		p.after(l.Pause(), func() {
			l.Landed(false, took, p.now.Mono)
			p.admit()
		})
	}
	p.admit()
	if ok {
		return
	}
	for _, t := range p.admission.Without(func(node int) bool {
		h := &p.health[node]
		return h.Trip(-1) < 0 || h.Answers()
	}) {
		t.Caller.refuse()
	}
	p.admit()
}

// placesReturn checks that no place is left when all calls are over.
func (t *tier) placesReturn() {
	for _, p := range t.procs {
		if p.dead || p.closed || t.world.Paused(p.number) {
			continue
		}
		for node := range t.plan.Nodes {
			if flight, _ := p.admission.Limit(node).Flight(); flight != 0 || p.admission.Length() > 0 {
				t.violate(placesBack, "p%d has %d places at n%d, and %d callers wait", p.number+1, flight, node+1, p.admission.Length())
			}
		}
	}
}
