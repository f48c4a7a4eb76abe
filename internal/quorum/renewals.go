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

// errLate is the error of a renewal that was queued until the next one was due.
var errLate = fmt.Errorf("not sent: %d other renewals were under way until the next one was due: %w", maxRenewals, context.DeadlineExceeded)

// maxRenewals limits the renewals under way at a node. More would delay the node's other clients.
const maxRenewals = 500

// renewals has the renewals of a client's holds. The zero value is ready to use.
type renewals struct {
	mu    sync.Mutex
	of    map[Node]*renewer
	turns []*renewer  // the values of of, in the order of their turns
	timer *time.Timer // for the next turn; nil if no turn comes
	due   time.Time   // when timer fires
}

// renewer sends the renewals of one node. It is guarded by renewals.mu.
type renewer struct {
	client *Client
	node   Node
	queue  []renewal
	wait   time.Duration // how long queue may wait for more renewals
	flight int           // number of renewals under way
	jammed bool          // a part of queue waits for replies: flight is at its limit
}

// renewal is one queued call that renews a hold.
type renewal struct {
	ctx  context.Context // of the caller that waits for it; Background without one
	call *call
	do   core.Call
	at   time.Time // when it was queued
}

// isOver reports whether the next renewal of the hold is due, and so is queued as well. Otherwise
// the renewals for a frozen node would pile up.
func (r *renewal) isOver(now time.Time) bool { return now.Sub(r.at) >= r.call.lock.set.TTL/3 }

// gather returns how long a renewal of the watchdog may wait for others in the same write. With
// many leases, a write costs far more than its bytes.
func gather(ttl time.Duration) time.Duration { return min(20*time.Millisecond, ttl/1000) }

// soonest is the shortest pause that is worth a timer: timers may be that late.
const soonest = time.Millisecond

// renew sends the renewals among the calls. Call it between Begin and End. Urgent ones, which a
// caller with ctx waits for, and those with a short TTL go at once. The others wait for more.
func (c *Client) renew(ctx context.Context, w *call, calls []core.Call, urgent bool) {
	var now []*renewer // to send at once
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

// next returns the node with the next turn, the pause before that turn, and whether all nodes share
// it. first is nil if nothing is queued. Nodes take turns, so that most calls meet the renewals of
// one node at most. If turns would follow too quickly, all nodes share one. The caller holds mu.
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

// takeTurns sets the timer for the next turn, if there is one. The caller holds renewals.mu, and is
// between Begin and End.
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

// nextTurn sends the queue of the node with this turn, or of all nodes.
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

// send sends the queue, except renewals of ended holds and late ones: these have errors at once.
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
		ctx := context.Background() // or of the first waiting caller
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

// landed records n replies, and reports whether a part of queue waits for them.
func (r *renewer) landed(n int) bool {
	rs := &r.client.renewals
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.flight -= n
	return r.jammed
}
