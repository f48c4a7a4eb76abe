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

// lane is one connection of a process to a node, as in package transport. Batches that arrive
// during a flight go with the next one. If the connection breaks, written calls have an unknown
// outcome, and the others move on to the next connection.
type lane struct {
	process *process
	node    int
	number  int
	begun   []*batch // not sent: all but first attempts
	fresh   []*batch // not sent: first attempts, each without another batch of its waiter
	flight  []*batch
	spare   []*batch // memory for the next flight
	flights int
	out     int     // calls of the flight that are under way
	again   []*item // the calls with a script that the node did not know

	sent  time.Duration // time of the flight, by ownTime
	heard time.Duration // time of the last reply, by ownTime
	lag   time.Duration // the sum of the alarm's delays
	next  time.Duration // of the alarm; 0 if it is not set
}

// batch is a set of calls sent to a node together. It is answered once.
type batch struct {
	items    []item
	lane     *lane
	limit    time.Duration // of the node's silence
	sent     time.Duration
	queued   time.Duration // the same by the lane's ownTime
	asked    int64         // the own time of the process then
	first    bool          // a first attempt, which has a place: see takePlace
	recalled bool
	left     int
	answered bool
	by       asker
}

// asker gets the outcome of a batch.
type asker interface{ answered(b *batch) }

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
	b.lane, b.limit, b.sent, b.queued, b.asked, b.left, b.by = l, limit, p.now.Mono, l.ownTime(), p.ownTime(), len(b.items), by
	for i := range b.items {
		b.items[i].batch = b
	}
	if b.first {
		l.fresh = append(l.fresh, b)
	} else {
		l.begun = append(l.begun, b)
	}
	l.watch(limit / watches)
	l.pump()
}

// begin is called before another batch of the waiter of a first attempt is sent. If that batch ends
// the attempt, begin takes the attempt out of the queue, and returns true. It never takes the first
// of all queued batches: that one finds out whether the node answers. Otherwise, the attempt goes
// before other first attempts from now on.
func (l *lane) begin(b *batch, ends bool) (recalled bool) {
	i := slices.Index(l.fresh, b)
	if i < 0 {
		return false
	}
	tests := len(l.begun) == 0 && i == 0
	l.fresh = slices.Delete(l.fresh, i, i+1)
	if ends && !tests {
		b.answered, b.recalled = true, true
		return true
	}
	l.begun = append(l.begun, b)
	return false
}

// pump writes the queued batches, if no flight is under way.
func (l *lane) pump() {
	p := l.process
	if len(l.flight) > 0 || len(l.begun)+len(l.fresh) == 0 || !p.to.Connects(p.tier.server(l.node), l.fleetLane()) {
		return
	}
	l.flights++
	l.sent = l.ownTime()
	for _, queue := range []*[]*batch{&l.begun, &l.fresh} {
		l.flight = append(l.flight, *queue...)
		clear(*queue)
		*queue = (*queue)[:0]
	}
	for _, b := range l.flight {
		l.watch(b.limit / watches)
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
	p.sights[l.node].Vouch(&it.script, p.monotonic())
	if source {
		p.to.SendSource(p.tier.server(l.node), l.fleetLane(), number, &it.script)
	} else {
		p.to.Send(p.tier.server(l.node), l.fleetLane(), number, &it.script)
	}
}

// fleetLane is the lane of the network. Two addresses of one server share it.
func (l *lane) fleetLane() int { return l.number }

// watches is how many times the alarm rings in the shortest limit, as in package transport. Each
// time it measures its delay.
const watches = 8

// ownTime is a clock that leaves out the delays of the lane's alarm: a process that stood still
// finds its replies afterwards.
func (l *lane) ownTime() time.Duration { return l.process.now.Mono - l.lag }

// watch makes the alarm ring after d at the latest.
func (l *lane) watch(d time.Duration) {
	if at := l.process.now.Mono + d; l.next == 0 || at < l.next {
		l.next = at
		l.process.at(at, l)
	}
}

// ring fails the batches whose limit the node has been silent for, and gives up a connection that
// is silent.
func (l *lane) ring(at time.Duration) {
	if l.next != at {
		return
	}
	p := l.process
	l.lag += p.now.Mono - at
	l.next = 0
	now, next := l.ownTime(), forever
	// isOver reports whether the node has been silent for a limit.
	isOver := func(since, limit time.Duration) bool {
		if !p.tier.former.fromQueueing {
			since = max(since, l.heard)
		}
		left := since + limit - now
		if left > 0 {
			next = min(next, left, limit/watches)
		}
		return left <= 0
	}
	var unsent, late []*batch
	for _, queue := range []*[]*batch{&l.begun, &l.fresh} {
		*queue = slices.DeleteFunc(*queue, func(b *batch) bool {
			over := isOver(b.queued, b.limit)
			if over {
				unsent = append(unsent, b)
			}
			return over
		})
	}
	limit, flight := time.Duration(0), l.flights
	for _, b := range l.flight {
		since := l.sent
		if p.tier.former.fromQueueing {
			since = b.queued
		}
		if !b.answered && isOver(since, b.limit) {
			late = append(late, b)
		}
		limit = max(limit, b.limit)
	}
	hung := len(l.flight) > 0 && isOver(l.sent, limit)
	if next < forever {
		l.watch(max(next, time.Millisecond))
	}
	for _, b := range unsent {
		l.fail(b, errUnsent)
	}
	for _, b := range late {
		l.fail(b, errTimeout)
	}
	if hung && l.flights == flight {
		p.to.Reconnect(p.tier.server(l.node), l.fleetLane())
		l.land(errTimeout)
	}
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
	if reply.Err == nil || !errors.Is(reply.Err, fleet.ErrRefused) && !errors.Is(reply.Err, fleet.ErrBroken) {
		l.heard = l.ownTime()
	}
	switch {
	case errors.Is(reply.Err, fleet.ErrRefused):
		l.give(it, wire.Reply{Err: errUnsent})
	case errors.Is(reply.Err, fleet.ErrNoScript):
		l.again = append(l.again, it)
	default:
		l.process.sights[l.node].Saw(&reply, l.process.monotonic())
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
	return isUnsent(err) || errors.Is(err, errTimeout) || errors.Is(err, fleet.ErrBroken)
}

func isUnsent(err error) bool {
	_, is := errors.AsType[unsent](err)
	return is
}
