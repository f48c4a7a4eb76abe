package quorum

import (
	"context"
	"fmt"
	"slices"
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
	mu    sync.Mutex
	of    []*renewer
	timer *time.Timer   // for the next turn of a node; nil if none is needed
	every time.Duration // between two turns
	turn  int           // whose it is
}

// renewer sends the renewals of one node. It is guarded by the mutex of the renewals.
type renewer struct {
	client *Client
	node   Node
	queue  []renewal
	flight int  // under way
	jammed bool // some wait until others have landed
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

// gather is for how long a renewal of the watchdog waits for others to be sent in the same write, at most. With many leases, writes
// cost far more than what is written.
const gather = 20 * time.Millisecond

// renew sends those of the calls that are renewals, for somebody who has begun: at once if somebody waits for them, and otherwise
// in a moment, together with those that are due by then.
func (c *Client) renew(w *call, calls []core.Call, urgent bool) {
	rs := &c.renewals
	rs.mu.Lock()
	now := time.Now()
	for i := range calls {
		if !calls[i].Do.Renews() {
			continue
		}
		n := w.lock.cells[calls[i].Cell].Node
		at := slices.IndexFunc(rs.of, func(r *renewer) bool { return r.node == n })
		if at < 0 {
			at = len(rs.of)
			rs.of = append(rs.of, &renewer{client: c, node: n})
		}
		rs.of[at].queue = append(rs.of[at].queue, renewal{w, calls[i], now})
	}
	if !urgent {
		c.takeTurns(min(gather, w.lock.set.TTL/1000) / time.Duration(len(rs.of)))
	}
	rs.mu.Unlock()
	if urgent {
		c.sendRenewals()
	}
}

// takeTurns has what is queued sent to one node after the other, so that a call meets the renewals of one node at most. It is called
// with the mutex of the renewals held.
func (c *Client) takeTurns(every time.Duration) {
	rs := &c.renewals
	switch {
	case rs.timer == nil:
		c.enter()
		rs.timer = time.AfterFunc(every, c.nextTurn)
	case every >= rs.every:
		return
	case rs.timer.Stop(): // otherwise it fires now
		rs.timer.Reset(every)
	}
	rs.every = every
}

// nextTurn sends what is queued for one node. It goes on until nothing is queued but what waits for others to land.
func (c *Client) nextTurn() {
	rs := &c.renewals
	rs.mu.Lock()
	r := rs.of[rs.turn%len(rs.of)]
	rs.turn++
	more := slices.ContainsFunc(rs.of, func(o *renewer) bool { return o != r && len(o.queue) > 0 && !o.jammed })
	if more {
		rs.timer.Reset(rs.every)
	} else {
		rs.timer = nil
	}
	rs.mu.Unlock()
	r.send()
	if !more {
		c.End()
	}
}

// sendRenewals sends what is queued, for somebody who has begun.
func (c *Client) sendRenewals() {
	rs := &c.renewals
	rs.mu.Lock()
	all := slices.Clone(rs.of)
	rs.mu.Unlock()
	for _, r := range all {
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
		r.jammed = n < len(r.queue)
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
			if r.landed(len(sent)) {
				r.send()
			}
		})
	}
}

// landed notes that so many were answered, and reports whether others wait for that.
func (r *renewer) landed(n int) bool {
	rs := &r.client.renewals
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.flight -= n
	return r.jammed
}
