package coresim

import (
	"slices"
	"time"
)

// The pauses of retry.go in package quorum.
const (
	firstTry     = 50 * time.Millisecond
	maxRetry     = 500 * time.Millisecond
	retryTimeout = time.Second
	confirmAfter = 500 * time.Millisecond
)

// retries are the pending releases of a process at a node, as in retry.go of package quorum.
type retries struct {
	process     *process
	node        int
	unconfirmed []item
	confirmed   []item // once, in the order of their next turns
	pause       time.Duration
	next        time.Duration // when the timer fires; 0 if it is not set
	busy        bool
}

func (r *retries) add(it item, confirmed bool) {
	p := r.process
	if p.closed {
		return
	}
	it.retried, it.got, it.again = true, false, 0
	if confirmed {
		it.again = p.now.Mono + confirmAfter
		r.confirmed = append(r.confirmed, it)
	} else {
		r.unconfirmed = append(r.unconfirmed, it)
	}
	if !r.busy {
		r.schedule()
	}
}

// schedule sets the timer for the next try.
func (r *retries) schedule() {
	p, at := r.process, time.Duration(0)
	if len(r.confirmed) > 0 {
		at = r.confirmed[0].again
	}
	if soon := p.now.Mono + r.pause; len(r.unconfirmed) > 0 && (at == 0 || soon < at) {
		at = soon
	}
	if r.next != 0 && at >= r.next {
		return
	}
	r.next = at
	p.at(at, something(func() {
		if r.next == at {
			r.retry()
		}
	}))
}

// retryNow sends the unconfirmed ones at once, since the node has just answered.
func (r *retries) retryNow() {
	if !r.busy && len(r.unconfirmed) > 0 {
		r.retry()
	}
}

func (r *retries) retry() {
	p := r.process
	if r.busy || p.closed {
		return
	}
	r.busy, r.next = true, 0
	again := 0
	for again < len(r.confirmed) && r.confirmed[again].again <= p.now.Mono {
		again++
	}
	all := len(r.unconfirmed)
	if r.pause > firstTry { // the node may still be away: one call probes it
		all = min(all, 1)
	}
	b := &batch{items: slices.Concat(r.unconfirmed[:all], r.confirmed[:again])}
	r.unconfirmed, r.confirmed = r.unconfirmed[all:], r.confirmed[again:]
	p.lanes[r.node*2+1].send(b, retryTimeout, r)
}

// answered keeps releases that failed or need one more confirmation.
func (r *retries) answered(b *batch) {
	if r.process.closed {
		return
	}
	var failed []item
	for _, it := range b.items {
		switch it.got = false; {
		case it.reply.Err != nil && isDown(it.reply.Err):
			it.again = 0
			failed = append(failed, it)
		case it.reply.Err == nil && it.twice && it.again == 0:
			it.again = r.process.now.Mono + confirmAfter
			r.confirmed = append(r.confirmed, it)
		}
	}
	r.busy, r.unconfirmed = false, append(r.unconfirmed, failed...)
	if r.pause = min(2*r.pause, maxRetry); len(failed) == 0 {
		r.pause = firstTry
	}
	if len(r.unconfirmed)+len(r.confirmed) > 0 {
		r.schedule()
	}
}
