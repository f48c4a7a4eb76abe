package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// errLate is the error of a renewal that was queued for too long.
var errLate = fmt.Errorf("not sent: %d other renewals were under way until the next one was due: %w", maxRenewals, context.DeadlineExceeded)

// maxRenewals is how many renewals are under way at a node at one time. More would keep the node's other clients waiting.
const maxRenewals = 500

// renewals are those of a client's holds. The zero value is ready to use.
type renewals struct {
	mu sync.Mutex
	of map[Node]*renewer
}

// renewer sends the renewals of one node. It is guarded by the mutex of the renewals.
type renewer struct {
	client *Client
	node   Node
	queue  []renewal
	flight int // under way
}

// renewal is one call that renews a hold.
type renewal struct {
	call *call
	do   core.Call
	at   time.Time // when it was queued
}

// isOver reports whether a renewal has been queued for so long that the next one of its hold is queued as well. Otherwise the
// renewals for a frozen node would pile up.
func (r *renewal) isOver(now time.Time) bool { return now.Sub(r.at) >= r.call.lock.set.TTL/3 }

// renew sends those of the calls that are renewals, for somebody who has begun.
func (c *Client) renew(w *call, calls []core.Call) {
	for _, n := range w.lock.nodes {
		rs := &c.renewals
		rs.mu.Lock()
		r := rs.of[n]
		if r == nil {
			if rs.of == nil {
				rs.of = make(map[Node]*renewer)
			}
			r = &renewer{client: c, node: n}
			rs.of[n] = r
		}
		for i := range calls {
			if calls[i].Do.Renews() && w.lock.cells[calls[i].Cell].Node == n {
				r.queue = append(r.queue, renewal{w, calls[i], time.Now()})
			}
		}
		rs.mu.Unlock()
		r.send()
	}
}

// send sends what is queued, of holds that are not over, and answers what has been queued for too long.
func (r *renewer) send() {
	for {
		rs := &r.client.renewals
		rs.mu.Lock()
		now := time.Now()
		over := 0
		for over < len(r.queue) && r.queue[over].isOver(now) {
			over++
		}
		n := over + max(min(len(r.queue)-over, maxRenewals-r.flight), 0)
		if n <= 0 {
			rs.mu.Unlock()
			return
		}
		some := append([]renewal(nil), r.queue[:n]...)
		r.queue = append(r.queue[:0], r.queue[n:]...)
		r.flight += n
		rs.mu.Unlock()

		sent := some[:0]
		var calls []wire.Call
		var limit time.Duration
		for _, w := range some {
			var err error
			switch {
			case !w.call.alive(): // it was unlocked while it was queued
				err = quorumlock.ErrLost
			case w.isOver(now):
				err = nodeError(r.node, errLate)
			}
			if err != nil {
				w.call.step(core.Event{Kind: core.Replied, Call: w.do, Reply: core.Reply{Err: err, Unsent: true}})
				r.landed(1)
				continue
			}
			limit = max(limit, w.call.lock.set.NodeTimeout)
			sent = append(sent, w)
			calls = append(calls, (&mail{call: w.call}).script(&w.do, nil))
		}
		if len(sent) == 0 {
			continue
		}
		at := time.Now()
		r.client.send(r.node, Background, at.Add(limit), calls, func(replies []wire.Reply) {
			defer r.client.End()
			r.client.answered(r.node, replies, time.Since(at), &sent[0].call.lock.set)
			for i, w := range sent {
				w.call.replied(&w.do, replies[i])
			}
			r.landed(len(sent))
			r.send()
		})
	}
}

func (r *renewer) landed(n int) {
	rs := &r.client.renewals
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.flight -= n
}
