package fleet

import (
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// link is the way from a client to a node and back.
type link struct {
	*connection               // the present one
	heard       time.Duration // when the last message of pub/sub arrives
	channels    []string      // subscribed to
	cutThere    int           // faults that cut it
	cutBack     int
	stalled     int      // faults that hold up calls
	asked       bool     // the client waits for a chance to send
	held        []*event // calls delayed by a stall
}

// connection carries calls and replies, each in order. So after a lost one nothing more arrives.
type connection struct {
	there     time.Duration // when the last call arrives
	back      time.Duration // when the last reply arrives
	lostThere bool          // a call was lost when it was sent
	darkThere bool          // a call was lost when it arrived
	lostBack  bool          // a reply was lost when it was sent
	darkBack  bool          // a reply was lost when it arrived
	waiting   []int         // the calls that have no outcome
	closed    bool          // the client has another one
	used      bool          // something was sent
	read      time.Duration // when a thawed node reads it: earlier requests run then
}

func (w *World) link(client, node, lane int) *link {
	return &w.links[(client*len(w.nodes)+node)*Lanes+lane]
}

// renew begins another connection.
func (l *link) renew() {
	l.closed = true
	l.connection = new(connection)
}

// connects reports whether a client can send. If not, the client is notified of the first chance.
func (w *World) connects(client, node, lane int) bool {
	l, n := w.link(client, node, lane), w.nodes[node]
	can := l.used || n.frozen == 0 || n.down > 0
	l.asked = !can
	return can
}

// connect notifies the clients that they can send to a node.
func (w *World) connect(node int) {
	for client := range w.clients {
		for lane := range Lanes {
			if l := w.link(client, node, lane); l.asked {
				l.asked = false
				w.tell(client, w.now+w.delayOf(node), Event{Kind: Connected, Node: node, Lane: lane})
			}
		}
	}
}

// delay is how long a message takes.
func (w *World) delay() time.Duration {
	n := &w.network
	if n.Slow > 0 && w.rough() && w.random.Float64() < n.Slow {
		return n.MaxDelay + time.Duration(w.random.Int64N(int64(n.MaxSlow)+1))
	}
	return n.MinDelay + time.Duration(w.random.Int64N(int64(n.MaxDelay-n.MinDelay)+1))
}

// delayOf is how long a message to or from a node takes.
func (w *World) delayOf(node int) time.Duration { return w.delay() + w.nodes[node].lag }

func (w *World) rough() bool { return w.calm == 0 || w.now < w.calm }

func (w *World) chance(p float64) bool { return p > 0 && w.rough() && w.random.Float64() < p }

func (w *World) send(client, node, lane, number int, c *wire.Call, source bool) {
	l := w.link(client, node, lane)
	l.used = true
	l.waiting = append(l.waiting, number)
	l.lostThere = l.lostThere || l.cutThere > 0 || w.chance(w.network.Lose)
	if l.lostThere {
		return
	}
	l.there = max(l.there, w.now+w.delayOf(node))
	e := w.event(callArrives, l.there)
	e.client, e.node, e.of.Lane, e.on, e.call, e.of.Call, e.source = client, node, lane, l.connection, c, number, source
	w.push(e)
}

// callArrives reports whether the event is kept, to happen again.
func (w *World) callArrives(e *event) (kept bool) {
	l, n := w.link(e.client, e.node, e.of.Lane), w.nodes[e.node]
	switch {
	case l.stalled > 0:
		l.held = append(l.held, e)
		return true
	case e.on.darkThere || l.cutThere > 0:
		e.on.darkThere = true
		return false
	case n.down > 0:
		e.on.darkThere = true
		if !e.on.closed {
			w.breakLink(e.client, e.node, e.of.Lane, ErrRefused)
		}
		return false
	case n.frozen > 0:
		n.held = append(n.held, e)
		return true
	case w.now < e.on.read:
		w.last++
		e.at, e.number = e.on.read, w.last
		w.push(e)
		return true
	case n.each > 0 && !e.turn:
		begins := max(n.free, w.now)
		if n.free = begins + n.each; begins > w.now {
			w.last++
			e.at, e.number, e.turn = begins, w.last, true
			w.push(e)
			return true
		}
	}
	reply := wire.Reply{Err: ErrNoScript}
	if n.knowsScript(e.call.Script, e.source) {
		reply = w.run(e)
	}
	n.ran++
	e.on.lostBack = e.on.lostBack || l.cutBack > 0 || n.loses > 0 && n.ran%n.loses == 0 || w.chance(w.network.LoseReply)
	if e.on.closed || e.on.lostBack {
		return false
	}
	l.back = max(l.back, w.now+w.delayOf(e.node))
	e.kind, e.at, e.of.Kind, e.of.Node, e.of.Reply = replyArrives, l.back, Replied, e.node, reply
	w.last++
	e.number = w.last
	w.push(e)
	return true
}

func (w *World) run(e *event) wire.Reply {
	n := w.nodes[e.node]
	if w.Runs != nil {
		w.Runs(e.node, e.of.Call)
	}
	reply, told := n.model.Do(n.time(w.now), e.call)
	if w.Ran != nil {
		w.Ran(e.client, e.node, e.of.Call, e.call, reply)
	}
	for _, m := range told {
		w.publish(e.node, m)
	}
	return reply
}

// replyArrives reports whether the event is kept, to happen again.
func (w *World) replyArrives(e *event) (kept bool) {
	c := w.clients[e.client]
	e.on.darkBack = e.on.darkBack || w.link(e.client, e.node, e.of.Lane).cutBack > 0
	switch {
	case e.on.closed || e.on.darkBack:
		return false
	case c.paused > 0:
		c.held = append(c.held, e)
		return true
	}
	i := slices.Index(e.on.waiting, e.of.Call)
	e.on.waiting = slices.Delete(e.on.waiting, i, i+1)
	w.step(e.client, e.of)
	return false
}

// breakLinks ends all connections between a client and a node.
func (w *World) breakLinks(client, node int, why error) {
	for lane := range Lanes {
		w.breakLink(client, node, lane, why)
	}
}

// breakLink ends a connection and, for the first lane, the subscriptions. The client gets the
// events.
func (w *World) breakLink(client, node, lane int, why error) {
	l := w.link(client, node, lane)
	waiting := l.waiting
	l.renew()
	at := w.now + w.delayOf(node)
	for _, number := range waiting {
		w.tell(client, at, Event{Kind: Replied, Node: node, Lane: lane, Call: number, Reply: wire.Reply{Err: why}})
	}
	if len(l.channels) > 0 {
		w.unsubscribe(client, node)
	}
}

// tell sends an event to a client.
func (w *World) tell(client int, at time.Duration, of Event) {
	e := w.event(stepClient, at)
	e.client, e.of = client, of
	w.push(e)
}
