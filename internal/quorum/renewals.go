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
	of    map[Node]*renewer
	turns []*renewer  // the same, in the order of their turns: the next one is the first
	timer *time.Timer // for the next turn; nil if none is needed
	due   time.Time   // when it fires
}

// renewer sends the renewals of one node. It is guarded by the mutex of the renewals.
type renewer struct {
	client *Client
	node   Node
	queue  []renewal
	wait   time.Duration // how long what is queued may wait for others
	flight int           // under way
	jammed bool          // some wait until others have landed
}

// renewal is one call that renews a hold.
type renewal struct {
	ctx  context.Context // of a caller that waits for it
	call *call
	do   core.Call
	at   time.Time // when it was queued
}

// isOver reports whether a renewal has been queued for so long that the next one of its hold is queued as well. Otherwise the
// renewals for a frozen node would pile up.
func (r *renewal) isOver(now time.Time) bool { return now.Sub(r.at) >= r.call.lock.set.TTL/3 }

// gather is how long a renewal of the watchdog may wait for others to be sent in the same write. With many leases, writes cost far
// more than what is written.
func gather(ttl time.Duration) time.Duration { return min(20*time.Millisecond, ttl/1000) }

// soonest is the shortest pause that is worth a timer: timers may be that late.
const soonest = time.Millisecond

// renew sends the renewals among the calls, between Begin and End. Renewals with a waiting caller, whose ctx it is, or with a short
// TTL go at once. Others wait a moment for more renewals.
func (c *Client) renew(ctx context.Context, w *call, calls []core.Call, urgent bool) {
	var now []*renewer // that send at once
	rs := &c.renewals
	rs.mu.Lock()
	at, wait := time.Now(), gather(w.lock.set.TTL)
	urgent = urgent || wait < soonest
	for i := range calls {
		if !calls[i].Do.Renews() {
			continue
		}
		n := w.lock.cells[calls[i].Cell].Node
		r := rs.of[n]
		if r == nil {
			if rs.of == nil {
				rs.of = make(map[Node]*renewer)
			}
			r = &renewer{client: c, node: n}
			rs.of[n] = r
			rs.turns = append(rs.turns, r)
		}
		if len(r.queue) == 0 || wait < r.wait {
			r.wait = wait
		}
		r.queue = append(r.queue, renewal{ctx, w, calls[i], at})
		if urgent {
			now = append(now, r)
		}
	}
	if !urgent {
		c.takeTurns()
	}
	rs.mu.Unlock()
	for _, r := range now {
		r.send()
	}
}

// next returns the first whose turn it is, after which pause, and whether all share that turn. It is nil if nobody waits for one. The
// nodes take turns, so that most calls meet the renewals of one node at most. If turns would follow each other too quickly, all
// share one. It is called with mu held.
func (rs *renewals) next() (first *renewer, pause time.Duration, all bool) {
	for _, r := range rs.turns {
		if !r.waits() {
			continue
		}
		if first == nil {
			first, pause = r, r.wait
		}
		pause = min(pause, r.wait)
	}
	if turn := pause / max(time.Duration(len(rs.turns)), 1); turn >= soonest {
		return first, turn, false
	}
	return first, pause, true
}

func (r *renewer) waits() bool { return len(r.queue) > 0 && !r.jammed }

// takeTurns sets the timer for the next turn, if one is needed. It is called with the mutex of the renewals held, for somebody who
// has begun.
func (c *Client) takeTurns() {
	rs := &c.renewals
	first, pause, _ := rs.next()
	due := time.Now().Add(pause)
	switch {
	case first == nil, rs.timer != nil && !due.Before(rs.due):
		return
	case rs.timer == nil:
		c.enter()
		rs.timer = time.AfterFunc(pause, c.nextTurn)
	case rs.timer.Stop(): // otherwise it fires now
		rs.timer.Reset(pause)
	}
	rs.due = due
}

// nextTurn sends what is queued for the node whose turn it is, or for all.
func (c *Client) nextTurn() {
	defer c.End()
	rs := &c.renewals
	rs.mu.Lock()
	rs.timer = nil
	var some []*renewer
	if first, _, all := rs.next(); all {
		some = slices.Clone(rs.turns)
	} else if first != nil {
		some = []*renewer{first}
		i := slices.Index(rs.turns, first)
		rs.turns = append(slices.Delete(rs.turns, i, i+1), first)
	}
	rs.mu.Unlock()
	for _, r := range some {
		r.send()
	}
	rs.mu.Lock()
	c.takeTurns()
	rs.mu.Unlock()
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
		some := r.queue[:n:n]
		r.queue = r.queue[n:]
		r.flight += n
		rs.mu.Unlock()

		sent := some[:0]
		var calls []wire.Call
		var limit time.Duration
		ctx := context.Background() // or that of the first caller that waits
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
			if ctx == context.Background() {
				ctx = w.ctx
			}
			sent = append(sent, w)
			calls = append(calls, (&encoder{call: w.call}).script(&w.do, nil))
		}
		if len(sent) == 0 {
			continue
		}
		at := time.Now()
		r.client.send(ctx, r.node, Background, at.Add(limit), calls, func(replies []wire.Reply) {
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
