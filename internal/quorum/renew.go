package quorum

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// round is one renewal of one tenure at all its nodes. Several may be under way when Extend crosses
// the watchdog.
type round struct {
	t      *tenure
	start  time.Time // before the first send: what the new validity counts from
	ballot *ballot
	gone   []bool        // cells that did not have the key when this round came by; under the tenure's mu
	done   chan struct{} // closed when the round has taken its effect
}

// batch is what all the rounds begun at one time have for one node.
type batch struct {
	node    Node
	calls   []scripts.Call
	answers []func(scripts.Reply)
	timeout time.Duration
}

// maxPipeline keeps a batch from stalling the node's other clients.
const maxPipeline = 500

// renew starts a round for every tenure that is still held, in one pipeline a node.
func (c *Client) renew(ts []*tenure) []*round {
	start := time.Now()
	rounds := make([]*round, 0, len(ts))
	batches := make(map[Node]*batch)
	for _, t := range ts {
		r := &round{t: t, start: start, ballot: newBallot(t.lock.tree, len(t.cells)), gone: make([]bool, len(t.cells)), done: make(chan struct{})}
		if r.fill(batches) {
			rounds = append(rounds, r)
		}
	}
	for _, b := range batches {
		c.start(b.send)
	}
	return rounds
}

// fill adds the round's calls to the batches, unless the tenure has come to its end: nothing is renewed
// after the deadline, nor after Unlock has begun.
func (r *round) fill(batches map[Node]*batch) bool {
	t := r.t
	t.checkDeadline()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase != held {
		return false
	}
	for i, cell := range t.lock.cells {
		b := batches[cell.Node]
		if b == nil {
			b = &batch{node: cell.Node}
			batches[cell.Node] = b
		}
		b.timeout = max(b.timeout, t.lock.set.NodeTimeout)
		if t.cells[i].missing {
			// Under the restart guard, too: the node may have granted to somebody since it lost the key, and
			// lost that as well. Until that lease is over its vote is not free to give, not even to the holder.
			again := scripts.AcquireAnew(cell.Name, t.owner, t.lock.set.TTL, t.token)
			b.calls = append(b.calls, again.Guarded(t.lock.set.Quarantine()))
			b.answers = append(b.answers, func(reply scripts.Reply) { r.regranted(i, reply) })
		} else {
			b.calls = append(b.calls, scripts.Renew(cell.Name, t.owner, t.lock.set.TTL))
			b.answers = append(b.answers, func(reply scripts.Reply) { r.renewed(i, reply) })
		}
	}
	return true
}

func (b *batch) send() {
	for len(b.calls) > 0 {
		n := min(len(b.calls), maxPipeline)
		ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
		for i, reply := range b.node.Send(ctx, b.calls[:n]...) {
			b.answers[i](reply)
		}
		cancel()
		b.calls, b.answers = b.calls[n:], b.answers[n:]
	}
}

// renewed takes a node's answer to Renew.
func (r *round) renewed(cell int, reply scripts.Reply) {
	ok, err := reply.Done()
	t := r.t
	t.mu.Lock()
	c := &t.cells[cell]
	if err != nil || !c.twin { // that it is one is what is wrong with it
		c.err = err
	}
	if err == nil && !ok {
		c.missing = true
		r.gone[cell] = true
	}
	counts := ok && err == nil && !c.twin
	t.mu.Unlock()
	if counts {
		r.count(cell, Yes)
	} else {
		r.count(cell, No)
	}
}

// regranted takes a node's answer to being asked to grant anew what it had lost. It counts from the
// next renewal on: in this one somebody else may have held the lock there.
func (r *round) regranted(cell int, reply scripts.Reply) {
	a, err := reply.Acquired()
	t := r.t
	t.mu.Lock()
	t.cells[cell].err = err
	r.gone[cell] = err == nil
	if a.Granted {
		t.cells[cell].missing = false
	}
	undo := t.phase == over && (err != nil || a.Granted)
	t.mu.Unlock()
	if undo {
		t.giveBack(context.Background(), part{t.lock.cells[cell].Node, []int{cell}})
	}
	r.count(cell, No)
}

// count casts a vote. The one that decides moves the deadline, or has the round tried again soon.
func (r *round) count(cell int, v Vote) {
	t := r.t
	t.mu.Lock()
	broken := t.lock.tree.Broken(r.gone)
	t.mu.Unlock()
	if broken {
		t.lose("too many nodes no longer have its key")
	}
	if !r.ballot.cast(cell, v) {
		return
	}
	next := t.due(r.start)
	if r.ballot.result() == Won {
		t.extendFrom(r.start)
	} else {
		next = time.Now().Add(max(t.lock.set.TTL/50, minRetry))
		t.lock.set.Logger.Warn("quorumlock: lease not renewed, trying again",
			"lock", t.lock.name, "owner", t.owner, "until", t.ValidUntil(), "error", t.quorumError(r.ballot))
	}
	t.lock.client.again(t, next)
	close(r.done)
}

// minRetry keeps a failed renewal from being tried again in a busy loop.
const minRetry = 2 * time.Millisecond

// extendFrom moves the deadline, unless it has passed meanwhile: a lease that was told lost stays lost.
func (t *tenure) extendFrom(start time.Time) {
	t.checkDeadline()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase != held || !start.After(t.start) {
		return
	}
	t.start = start
	t.timer.Reset(t.remaining())
}

// Extend is quorumlock.Tenure's.
func (t *tenure) Extend(ctx context.Context) error {
	if t.lock.client.begin() != nil {
		return quorumlock.ErrLost // Close has told the lease so
	}
	defer t.lock.client.end()
	return t.extend(ctx)
}

// extend renews at once, whatever the watchdog is doing.
func (t *tenure) extend(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, r := range t.lock.client.renew([]*tenure{t}) {
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if t.alive() && r.ballot.result() == Lost {
			return t.quorumError(r.ballot)
		}
	}
	if !t.alive() {
		return quorumlock.ErrLost
	}
	return nil
}
