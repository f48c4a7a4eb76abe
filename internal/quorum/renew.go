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
	gone   []bool        // cells that did not have the key in this round; under the tenure's mu
	done   chan struct{} // closed when the round has taken its effect
}

// batch is the calls of all rounds begun at one time that go to one node.
type batch struct {
	client  *Client
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

// fill adds the round's calls to the batches, and reports whether it did. Nothing is renewed after the deadline, nor
// after Unlock has begun.
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
			b = &batch{client: t.lock.client, node: cell.Node}
			batches[cell.Node] = b
		}
		b.timeout = max(b.timeout, t.lock.set.NodeTimeout)
		b.places = append(b.places, place{r, i})
	}
	return true
}

// send renews, and asks the node to grant again what it turns out to have lost. It waits for the outcome of a round
// only when all renewals have been sent: the outcome may depend on more answers of this node.
func (b *batch) send() {
	var gone []place
	b.ask(b.places, place.renewCall, func(p place, r scripts.Reply) {
		if p.renewed(r) {
			gone = append(gone, p)
		}
	})
	// If too many nodes have lost the key, the hold is lost, and nothing is granted again.
	gone = slices.DeleteFunc(gone, func(p place) bool { <-p.done; return !p.t.alive() })
	b.ask(gone, place.restoreCall, place.restored)
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
		sent := time.Now()
		replies := b.node.Send(ctx, calls...)
		b.client.answered(b.node, replies, time.Since(sent), some[0].t.lock.set.Logger)
		for i, r := range replies {
			answer(some[i], r)
		}
		cancel()
	}
}

func (p place) renewCall() scripts.Call {
	return scripts.Renew(p.t.lock.cells[p.cell].Name, p.t.at(p.cell), p.t.lock.set.TTL)
}

// restoreCall obeys the restart guard, too: since the node had the key, it may have granted to somebody else and lost
// that as well. Until that lease expires the node must not vote for anyone, even the holder.
func (p place) restoreCall() scripts.Call {
	set := &p.t.lock.set
	return scripts.Restore(p.t.lock.cells[p.cell].Name, p.t.at(p.cell), set.TTL, p.t.token).Guarded(set.Quarantine())
}

// renewed takes a node's answer to Renew and reports whether the node has lost the key. A node that says yes counts
// even if its grant was never heard: it has the owner of this very cell.
func (p place) renewed(reply scripts.Reply) (gone bool) {
	ok, err := reply.Done()
	gone = err == nil && !ok
	t := p.t
	t.mu.Lock()
	c := &t.cells[p.cell]
	if err != nil || !c.twin { // a twin keeps the error that says it is one
		c.err = err
	}
	p.gone[p.cell] = gone && !c.twin
	vote := No
	if ok && err == nil {
		vote = Yes
	}
	queued := gone && t.handed && c.state == refused
	if vote == Yes {
		c.state = granted
	}
	t.mu.Unlock()
	if queued { // it did not hand over, and a holder may not be queued
		t.lock.client.start(func() {
			t.lock.leave(context.Background(), part{t.lock.cells[p.cell].Node, []int{p.cell}}, t.waiter)
		})
	}
	p.count(p.cell, vote)
	return gone
}

// restored takes a node's answer to restoreCall. The vote counts from the next renewal on: during this one somebody
// else may have held the lock there.
func (p place) restored(reply scripts.Reply) {
	a, err := reply.Acquired()
	t := p.t
	t.mu.Lock()
	if err != nil {
		t.cells[p.cell].err = err
	}
	if err == nil && !a.Granted && scripts.Base(a.Holder) == t.owner {
		t.cells[p.cell].twin = true
	}
	undo := t.phase == over && (err != nil || a.Granted)
	t.mu.Unlock()
	if undo {
		t.giveBack(context.Background(), part{t.lock.cells[p.cell].Node, []int{p.cell}})
	}
}

// count casts a vote. The vote that decides moves the deadline, or schedules the next try soon.
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
		first := !t.late && t.phase == held
		t.late = true
		t.mu.Unlock()
		if first {
			t.lock.set.Logger.Warn("quorumlock: renewal late, trying again until the lease ends",
				"lock", t.lock.name, "owner", t.owner, "until", t.ValidUntil(), "error", t.quorumError(r.ballot))
		}
	}
	t.lock.client.again(t, next)
	close(r.done)
}

// minRetry keeps a failed renewal from being tried again in a busy loop.
const minRetry = 2 * time.Millisecond

// extendFrom moves the deadline, unless it has passed meanwhile: a lost lease stays lost.
func (t *tenure) extendFrom(start time.Time) {
	t.checkDeadline()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase != held || !start.After(t.start) {
		return
	}
	t.start, t.ttl, t.late = start, t.lock.set.TTL, false
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
		return t.lost()
	}
	return nil
}
