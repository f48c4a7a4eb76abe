package coresim

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/engine"
)

// retries are the pending releases of a process at a node.
type retries struct {
	engine.PendingReleases[item]
	process *process
	node    int
	timer   time.Duration // when it fires; 0 if it is not set
	due     []engine.PendingRelease[item]
}

func (r *retries) add(it item, twice, confirmed bool) {
	if r.process.closed {
		return
	}
	it.retried = true
	r.Add(it, twice, confirmed, r.process.now.Mono)
	r.schedule()
}

// schedule sets the timer for the next try.
func (r *retries) schedule() {
	p := r.process
	at, set := r.Schedule(p.now.Mono)
	if !set {
		return
	}
	r.timer = at
	p.at(at, something(func() {
		if r.timer == at {
			r.retry()
		}
	}))
}

// retryNow sends the unconfirmed ones at once, since the node has just answered.
func (r *retries) retryNow() {
	if r.Unconfirmed() > 0 {
		r.retry()
	}
}

func (r *retries) retry() {
	p := r.process
	if r.Busy() || p.closed {
		return
	}
	r.timer, r.due = 0, r.Due(p.now.Mono)
	if len(r.due) == 0 {
		r.schedule()
		return
	}
	b := &batch{items: make([]item, len(r.due))}
	for i := range r.due {
		b.items[i] = r.due[i].Release
	}
	p.lanes[r.node*2+1].send(b, engine.RetryTimeout, r)
}

// answered keeps releases that failed or need one more confirmation.
func (r *retries) answered(b *batch) {
	if r.process.closed {
		return
	}
	outcomes := make([]engine.Outcome, len(b.items))
	for i := range b.items {
		switch err := b.items[i].reply.Err; {
		case err == nil:
			outcomes[i] = engine.Confirmed
		case !isDown(err):
			outcomes[i] = engine.Refused
		}
	}
	r.Done(r.due, outcomes, r.process.now.Mono)
	r.schedule()
}
