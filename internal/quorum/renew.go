package quorum

import (
	"context"
	"slices"
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
	places  []place
	timeout time.Duration
}

// place is a cell of the lock that a round renews.
type place struct {
	*round
	cell int
}

// maxPipeline keeps a batch from stalling the node's other clients.
const maxPipeline = 500

// renew starts a round for every tenure that is still held, in one pipeline a node.
func (c *Client) renew(ts []*tenure) []*round {
	start := c.now()
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
		b.places = append(b.places, place{r, i})
	}
	return true
}

// send renews, and has the node grant anew what it turns out to have lost. What comes of a round is waited
// for when the node has been asked for everything: it may depend on more of its answers.
func (b *batch) send() {
	var gone []place
	b.ask(b.places, place.renewCall, func(p place, r scripts.Reply) {
		if p.renewed(r) {
			gone = append(gone, p)
		}
	})
	// What too many nodes have lost is lost, and nothing is granted anew.
	gone = slices.DeleteFunc(gone, func(p place) bool { <-p.done; return !p.t.alive() })
	b.ask(gone, place.anewCall, place.regranted)
}

func (b *batch) ask(places []place, call func(place) scripts.Call, answer func(place, scripts.Reply)) {
	for some := range slices.Chunk(places, maxPipeline) {
		some = slices.DeleteFunc(some, func(p place) bool {
			ended := !p.t.alive() // while the node was asked for the others
			if ended {
				answer(p, scripts.Reply{Err: quorumlock.ErrLost})
			}
			return ended
		})
		if len(some) == 0 {
			continue
		}
		calls := make([]scripts.Call, len(some))
		for i, p := range some {
			calls[i] = call(p)
		}
		ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
		for i, r := range b.node.Send(ctx, calls...) {
			answer(some[i], r)
		}
		cancel()
	}
}

func (p place) renewCall() scripts.Call {
	return scripts.Renew(p.t.lock.cells[p.cell].Name, p.t.owner, p.t.lock.set.TTL)
}

// anewCall is under the restart guard, too: the node may have granted to somebody since it had the key, and
// lost that as well. Until that lease is over its vote is not free to give, not even to the holder.
func (p place) anewCall() scripts.Call {
	set := &p.t.lock.set
	return scripts.AcquireAnew(p.t.lock.cells[p.cell].Name, p.t.owner, set.TTL, p.t.token).Guarded(set.Quarantine())
}

// renewed takes a node's answer to Renew and reports whether the node has lost the key.
func (p place) renewed(reply scripts.Reply) (gone bool) {
	ok, err := reply.Done()
	gone = err == nil && !ok
	t := p.t
	t.mu.Lock()
	c := &t.cells[p.cell]
	if err != nil || !c.twin { // that it is one is what is wrong with it
		c.err = err
	}
	p.gone[p.cell] = gone
	vote := No
	silent := t.handed && c.state == refused // it was not heard to hand over
	if ok && err == nil && !c.twin && !silent {
		vote = Yes
	}
	seated := gone && silent
	t.mu.Unlock()
	if seated { // it did not hand over, and a holder may not stand in line
		t.lock.client.start(func() {
			t.lock.leave(context.Background(), part{t.lock.cells[p.cell].Node, []int{p.cell}}, t.waiter)
		})
	}
	p.count(p.cell, vote)
	return gone
}

// regranted takes a node's answer to being asked to grant anew what it had lost. It counts from the
// next renewal on: in this one somebody else may have held the lock there.
func (p place) regranted(reply scripts.Reply) {
	a, err := reply.Acquired()
	t := p.t
	t.mu.Lock()
	if err != nil {
		t.cells[p.cell].err = err
	}
	if t.handed && a.Granted && !a.Again {
		t.cells[p.cell].state = granted
	}
	undo := t.phase == over && (err != nil || a.Granted)
	t.mu.Unlock()
	if undo {
		t.giveBack(context.Background(), part{t.lock.cells[p.cell].Node, []int{p.cell}})
	}
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
		t.mu.Lock()
		next = t.lock.client.now().Add(max(t.ttl/50, minRetry))
		t.mu.Unlock()
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
	t.start, t.ttl = start, t.lock.set.TTL
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
