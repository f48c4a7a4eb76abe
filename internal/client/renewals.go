package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// errLate is the error of a renewal that waited for too long.
var errLate = fmt.Errorf("not sent within half of the TTL: the node was busy with other renewals, %d at a time: %w", engine.MaxRenewals, context.DeadlineExceeded)

// renewals has the renewals of a client's holds. The zero value is ready to use.
type renewals struct {
	mu sync.Mutex
	engine.Renewals[Node, renewal]
	timer *time.Timer // for the next turn; nil if no turn comes
}

// renewal is one queued call that renews a hold.
type renewal struct {
	ctx     context.Context // of the caller that waits for it; Background without one
	session *session
	do      core.Call
}

// hold counts the renewals that a hold of l takes, or took if by is -1.
func (rs *renewals) hold(l *Lock, by int64) {
	if !l.set.Renew {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i := range l.cells {
		rs.Expect(l.cells[i].Node, by*int64(renewalsPerTTL*time.Second*engine.PerSecond/l.set.TTL))
	}
}

// renewalsPerTTL is how often the core renews a hold in each TTL.
const renewalsPerTTL = 3

// renew queues the renewals among the calls; left is the validity that their hold has left. They
// are sent at once if they are urgent (a caller with ctx waits for them), or if the TTL or left is
// short. Call renew between Begin and End.
func (c *Client) renew(ctx context.Context, w *session, calls []core.Call, left time.Duration, urgent bool) {
	var now []Node // to send to at once
	rs := &c.renewals
	rs.mu.Lock()
	for i := range calls {
		if !calls[i].Do.Renews() {
			continue
		}
		n := w.lock.cells[calls[i].Cell].Node
		if rs.Add(n, renewal{ctx, w, calls[i]}, w.lock.set.TTL, left, urgent, c.mono()) {
			now = append(now, n)
		}
	}
	if len(now) == 0 {
		c.takeTurns()
	}
	rs.mu.Unlock()
	for _, n := range now {
		c.sendRenewals(n)
	}
}

// takeTurns sets the timer for the next turn, if there is one. The caller holds renewals.mu, and is
// between Begin and End.
func (c *Client) takeTurns() {
	rs, now := &c.renewals, c.mono()
	at, set := rs.Schedule(now)
	switch {
	case !set:
	case rs.timer == nil:
		c.enter()
		rs.timer = time.AfterFunc(at-now, c.nextTurn)
	case rs.timer.Stop(): // otherwise it fires now
		rs.timer.Reset(at - now)
	}
}

// nextTurn sends the renewals of the nodes of this turn.
func (c *Client) nextTurn() {
	defer c.End()
	rs := &c.renewals
	rs.mu.Lock()
	rs.timer = nil
	nodes := rs.Turn()
	rs.mu.Unlock()
	for _, n := range nodes {
		c.sendRenewals(n)
	}
	rs.mu.Lock()
	c.takeTurns()
	rs.mu.Unlock()
}

// sendRenewals sends the queued renewals of a node. Late ones, and those of ended holds, fail at
// once.
func (c *Client) sendRenewals(n Node) {
	rs := &c.renewals
	for {
		rs.mu.Lock()
		now := c.mono()
		behind := rs.Behind(n, now)
		send, late := rs.Take(n, now)
		rs.mu.Unlock()
		c.holdAttempts(n, behind)
		if len(send)+len(late) == 0 {
			return
		}
		for i := range late {
			late[i].unsent(nodeError(n, errLate))
		}
		alive := send[:0]
		calls := make([]wire.Call, 0, len(send))
		var limit time.Duration
		ctx := context.Background() // or of the first waiting caller
		for i, at := range c.times(len(send)) {
			w := send[i]
			if !w.session.aliveAt(at) { // it was unlocked while it was queued
				w.unsent(quorumlock.ErrLost)
				continue
			}
			limit = max(limit, w.session.lock.set.NodeTimeout)
			if ctx == context.Background() {
				ctx = w.ctx
			}
			alive = append(alive, w)
			m := newEncoder(w.session)
			calls = append(calls, m.script(&w.do))
			m.free()
		}
		if ended := len(send) - len(alive); ended > 0 {
			c.renewalsLanded(n, ended, 0)
		}
		if len(alive) == 0 {
			continue
		}
		sent := c.mono()
		c.send(ctx, n, Background, limit, calls, func(replies []wire.Reply) {
			defer c.End()
			c.answered(n, replies, sent, c.mono(), false, &alive[0].session.lock.set)
			for i, at := range c.times(len(alive)) {
				alive[i].session.replied(at, &alive[i].do, replies[i])
			}
			took := c.mono() - sent
			if replies[0].Err != nil {
				took = 0
			}
			if c.renewalsLanded(n, len(alive), took) {
				c.sendRenewals(n)
			}
		})
	}
}

// unsent answers a renewal that is not sent.
func (w *renewal) unsent(err error) {
	w.session.step(core.Event{Kind: core.Replied, Call: w.do, Reply: core.Reply{Err: err, Unsent: true}})
}

// renewalsLanded records replies of a node, and reports whether to call sendRenewals next.
func (c *Client) renewalsLanded(n Node, replies int, took time.Duration) (again bool) {
	c.renewals.mu.Lock()
	defer c.renewals.mu.Unlock()
	return c.renewals.Landed(n, replies, took, c.mono())
}
