package coresim

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/fleet"
)

// lane is one connection of a process to a node, as in package node. Batches that arrive during a
// flight go with the next one. If the connection breaks, written calls have an unknown outcome, and
// the others move on to the next connection.
type lane struct {
	process *process
	node    int
	number  int
	queue   []*batch
	flight  []*batch
	spare   []*batch // memory for the next flight
	flights int
	out     int     // calls of the flight that are under way
	again   []*item // the calls with a script that the node did not know
}

// batch is a set of calls sent to a node together. It is answered once.
type batch struct {
	items    []item
	lane     *lane
	flight   int // of which it is the first
	deadline time.Duration
	limit    time.Duration
	sent     time.Duration
	asked    int64 // the own time of the process then
	left     int
	answered bool
	by       asker
}

// asker gets the outcome of a batch.
type asker interface{ answered(b *batch) }

// A batch is the alarm of its deadline.
func (b *batch) ring(time.Duration) { b.lane.expire(b) }

// flightOf is the alarm of the flight of which a batch is the first.
type flightOf batch

func (f *flightOf) ring(time.Duration) { f.lane.timeout(f.flight) }

// item is one call of a batch.
type item struct {
	batch   *batch
	flight  int
	call    *call
	k       core.Call
	script  wire.Call
	entry   wire.Entry // of the script
	retried bool       // a pending release
	got     bool
	reply   wire.Reply
}

// newBatch returns a batch with room for n calls.
func (t *tier) newBatch(n int) *batch {
	c := t.room.chunk(n)
	b := &c.batches[c.used]
	c.used++
	if n <= len(c.items) {
		b.items = c.items[c.taken : c.taken : c.taken+n]
		c.taken += n
	}
	return b
}

// room is memory that schedules reuse in turn: memory in recent use is faster than new memory.
type room struct {
	chunks []*chunk
	last   int // of the chunks that are used
	sent   []sent
}

// chunk has room for some batches.
type chunk struct {
	batches     [32]batch
	items       [32]item
	used, taken int
}

var rooms = sync.Pool{New: func() any { return &room{chunks: []*chunk{new(chunk)}} }}

// chunk returns one that has room for a batch of n items.
func (m *room) chunk(n int) *chunk {
	if c := m.chunks[m.last]; c.used < len(c.batches) && (c.taken+n <= len(c.items) || n > len(c.items)) {
		return c
	}
	m.last++
	if m.last == len(m.chunks) {
		m.chunks = append(m.chunks, new(chunk))
	}
	return m.chunks[m.last]
}

// clear is called at the end of a schedule.
func (m *room) clear() {
	for _, c := range m.chunks[:m.last+1] {
		clear(c.batches[:c.used])
		clear(c.items[:c.taken])
		c.used, c.taken = 0, 0
	}
	m.last = 0
	clear(m.sent)
	m.sent = m.sent[:0]
	rooms.Put(m)
}

type unsent struct{ error }

// NotSent marks the error of a call that was never sent, for package wire.
func (unsent) NotSent() {}

var (
	errUnsent  = unsent{errors.New("not sent")}
	errTimeout = errors.New("no reply in time")
)

func (l *lane) send(b *batch, limit time.Duration, by asker) {
	p := l.process
	b.lane, b.deadline, b.limit, b.sent, b.asked, b.left, b.by = l, p.now.Mono+limit, limit, p.now.Mono, p.ownTime(), len(b.items), by
	for i := range b.items {
		b.items[i].batch = b
	}
	l.queue = append(l.queue, b)
	p.at(b.deadline, b)
	l.pump()
}

// recall takes a batch out of the queue, and reports whether it did. It never takes the first
// batch: that one finds out whether the node answers.
func (l *lane) recall(b *batch) bool {
	i := slices.Index(l.queue, b)
	if i <= 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	b.answered = true
	return true
}

// pump writes the queued batches, if no flight is under way.
func (l *lane) pump() {
	p := l.process
	if len(l.flight) > 0 || len(l.queue) == 0 || !p.to.Connects(p.tier.server(l.node), l.fleetLane()) {
		return
	}
	l.flights++
	limit, waiting := time.Duration(0), l.queue[:0]
	for _, b := range l.queue {
		if b.deadline > p.now.Mono {
			l.flight = append(l.flight, b)
			limit = max(limit, b.limit)
		} else {
			waiting = append(waiting, b)
		}
	}
	clear(l.queue[len(waiting):])
	l.queue = waiting
	if len(l.flight) == 0 {
		return
	}
	l.flight[0].flight = l.flights
	p.at(p.now.Mono+limit, (*flightOf)(l.flight[0]))
	for _, b := range l.flight {
		for i := range b.items {
			l.write(&b.items[i], false)
		}
	}
}

func (l *lane) write(it *item, source bool) {
	p := l.process
	it.flight = l.flights
	l.out++
	number := p.tier.send(l, it)
	if source {
		p.to.SendSource(p.tier.server(l.node), l.fleetLane(), number, &it.script)
	} else {
		p.to.Send(p.tier.server(l.node), l.fleetLane(), number, &it.script)
	}
}

// fleetLane is the lane of the network. Two addresses of one server share it.
func (l *lane) fleetLane() int { return l.number }

// timeout gives up a connection that does not answer.
func (l *lane) timeout(flight int) {
	if l.flights != flight || len(l.flight) == 0 {
		return
	}
	p := l.process
	p.to.Reconnect(p.tier.server(l.node), l.fleetLane())
	l.land(errTimeout)
}

// replied takes a reply of the network.
func (l *lane) replied(number int, reply wire.Reply) {
	it := l.process.tier.sent[number].item
	if own := l.process.tier.sent[number].lane; own != l {
		own.replied(number, reply)
		return
	}
	if it.flight != l.flights || len(l.flight) == 0 {
		return
	}
	l.out--
	switch {
	case errors.Is(reply.Err, fleet.ErrRefused):
		l.give(it, wire.Reply{Err: errUnsent})
	case errors.Is(reply.Err, fleet.ErrNoScript):
		l.again = append(l.again, it)
	default:
		l.give(it, reply)
	}
	if len(l.flight) == 0 || l.out > 0 {
		return
	}
	again := l.again
	l.again = nil
	// The call has not run, but those written after it have.
	for _, it := range again {
		if !it.batch.answered {
			l.write(it, true)
		}
	}
	if l.out == 0 {
		l.land(errTimeout)
	}
}

// land ends a flight. Calls without a reply have failed.
func (l *lane) land(err error) {
	over := l.flight
	l.flight, l.spare, l.again, l.out = l.spare, nil, nil, 0
	l.flights++
	for _, b := range over {
		l.fail(b, err)
	}
	clear(over)
	l.spare = over[:0]
	l.pump()
}

// fail answers the calls of a batch that have no reply.
func (l *lane) fail(b *batch, err error) {
	for i := range b.items {
		if !b.items[i].got {
			l.give(&b.items[i], wire.Reply{Err: err})
		}
	}
}

func (l *lane) give(it *item, r wire.Reply) {
	b := it.batch
	if b.answered || it.got {
		return
	}
	it.reply, it.got = r, true
	if b.left--; b.left > 0 {
		return
	}
	b.answered = true
	l.process.answered(l.node, b)
	b.by.answered(b)
}

// expire answers a batch at its deadline.
func (l *lane) expire(b *batch) {
	if b.answered {
		return
	}
	for i, other := range l.queue {
		if other == b {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			l.fail(b, errUnsent)
			return
		}
	}
	l.fail(b, errTimeout)
}

// answered records the round trip, and then sends the node's pending releases. As in package
// quorum, the reply to such a release does not count for the node's health.
func (p *process) answered(node int, b *batch) {
	_, retried := b.by.(*retries)
	for i := range b.items {
		if err := b.items[i].reply.Err; err != nil && isDown(err) {
			p.tier.trouble(p.number, node)
			if !retried {
				p.health[node].Failed(p.now.Mono)
			}
			return
		}
	}
	if retried {
		return
	}
	p.readClock(node, b)
	p.health[node].Answered(p.now.Mono-b.sent, p.now.Mono)
	p.retries[node].retryNow()
}

// isDown reports whether a call failed because the node does not serve, not by an error of a
// script.
func isDown(err error) bool {
	_, sent := errors.AsType[unsent](err)
	return sent || errors.Is(err, errTimeout) || errors.Is(err, fleet.ErrBroken)
}
