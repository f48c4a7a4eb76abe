package fleet

import (
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// Config is the plan of a world.
type Config struct {
	Seed    uint64
	Nodes   []Computer
	Clients []Computer
	Network Network
	Faults  []Fault
	Calm    time.Duration // from then on no message is slow or lost; 0 if there is no such time
}

// Computer is the machine under a node or a client.
type Computer struct {
	Wall  scriptmodel.Time // its wall clock at the beginning
	Rate  float64          `shrink:"1"` // of the clocks; 0 means 1
	Lag   time.Duration    // of a node: added to the delay of each message to it or from it
	Each  time.Duration    // of a node: how long it takes to run a call
	Loses int              // of a node: so many calls have one lost reply; 0: none is lost
}

// Network has the delays and losses of messages.
type Network struct {
	MinDelay, MaxDelay time.Duration // of most messages, one way
	Slow               float64       `shrink:"0"` // the share of messages that take longer
	MaxSlow            time.Duration // the longest delay of these
	// Shares of lost calls and replies: the connection goes dark in their direction.
	Lose      float64 `shrink:"0"`
	LoseReply float64 `shrink:"0"`
}

// World is a fleet of clients and nodes, and their network. It is not safe for concurrent use.
type World struct {
	// Runs and Ran, if not nil, are called before and after each call that a node runs. number is
	// the one that the client passed to Send.
	Runs func(node, number int)
	Ran  func(client, node, number int, c *wire.Call, reply wire.Reply)
	// Began, if not nil, is called when a fault has begun, and when it has ended.
	Began func(f *Fault, ended bool)

	random  *rand.Rand
	network Network
	now     time.Duration
	nodes   []*node
	clients []*client
	links   []link // of client c to node n: (c*len(nodes) + n) * Lanes + lane
	calm    time.Duration

	queue  []*event // a heap: the next one is the first
	last   uint64   // number of an event
	unused *event   // a list
	steps  int
	to     Effects
}

type client struct {
	Client
	clock  clock
	wall   scriptmodel.Time // shown at the beginning, with all steps since
	paused int              // faults that make it stand still
	held   []*event         // events that came during a pause
}

// New returns a world at the beginning of its schedule. Each client needs a computer.
func New(c Config, clients []Client) *World {
	w := &World{random: rand.New(rand.NewPCG(c.Seed, 0xf1ee7)), network: c.Network, links: make([]link, len(c.Nodes)*len(clients)*Lanes), calm: c.Calm}
	w.to.world = w
	for _, on := range c.Nodes {
		w.nodes = append(w.nodes, newNode(on))
	}
	for i, on := range c.Clients {
		w.clients = append(w.clients, &client{Client: clients[i], clock: clockOf(on), wall: on.Wall})
		e := w.event(stepClient, 0)
		e.client, e.of.Kind = i, Started
		w.push(e)
	}
	for i := range w.links {
		w.links[i].connection = new(connection)
	}
	for i := range c.Faults {
		f := &c.Faults[i]
		begin, end := w.event(beginFault, f.At), w.event(endFault, f.At+f.For)
		begin.fault, end.fault = f, f
		w.push(begin)
		w.push(end)
	}
	return w
}

func clockOf(c Computer) clock {
	if c.Rate == 0 {
		return clock{rate: 1}
	}
	return clock{rate: c.Rate}
}

// Now returns the true time since the beginning.
func (w *World) Now() time.Duration { return w.now }

// Steps returns the number of events so far.
func (w *World) Steps() int { return w.steps }

// Node returns the model of a node, and the time by its clock.
func (w *World) Node(i int) (*scriptmodel.Node, scriptmodel.Time) {
	return w.nodes[i].model, w.nodes[i].time(w.now)
}

// Answers reports whether a node runs scripts: it is neither down nor frozen.
func (w *World) Answers(i int) bool { return w.nodes[i].down == 0 && w.nodes[i].frozen == 0 }

// Clock returns the reading of a client's clocks.
func (w *World) Clock(i int) Clock {
	c := w.clients[i]
	mono := c.clock.at(w.now)
	boot := mono + c.clock.slept
	return Clock{mono, boot, c.wall.Add(boot)}
}

// NodeWhen returns the true time of a reading of a node's clock, if it is not stepped before.
func (w *World) NodeWhen(i int, shown scriptmodel.Time) time.Duration {
	n := w.nodes[i]
	return n.clock.when(time.Duration(shown-n.wall) * time.Microsecond)
}

// Paused reports whether a client stands still.
func (w *World) Paused(i int) bool { return w.clients[i].paused > 0 }

// Call runs do as an action of a client, now.
func (w *World) Call(client int, do func(now Clock, to *Effects)) {
	w.to.client = client
	do(w.Clock(client), &w.to)
}

// At runs do at a time.
func (w *World) At(at time.Duration, do func()) {
	e := w.event(doIt, at)
	e.do = do
	w.push(e)
}

// Publish has a node publish a message, as a client that may only publish can do.
func (w *World) Publish(node int, channel, text string) {
	if w.nodes[node].down == 0 {
		w.publish(node, scriptmodel.Message{Channel: channel, Text: text})
	}
}

// Disconnect ends the connections between a client and a node. Pending calls fail with ErrBroken.
func (w *World) Disconnect(client, node int) { w.breakLinks(client, node, ErrBroken) }

// Run plays all events up to a time.
func (w *World) Run(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until {
		e := w.pop()
		w.now = e.at
		w.steps++
		w.happen(e)
	}
	w.now = until
}

func (w *World) happen(e *event) {
	switch e.kind {
	case stepClient, wakeClient:
		c := w.clients[e.client]
		if c.paused > 0 {
			c.held = append(c.held, e)
			return
		}
		if e.kind == wakeClient {
			e.of.Kind = Woke
		}
		w.step(e.client, e.of)
	case replyArrives:
		if w.replyArrives(e) {
			return
		}
	case callArrives:
		if w.callArrives(e) {
			return
		}
	case subscribeArrives:
		w.subscribeArrives(e)
	case beginFault:
		w.begin(*e.fault)
		if w.Began != nil {
			w.Began(e.fault, false)
		}
	case endFault:
		w.end(*e.fault)
		if w.Began != nil {
			w.Began(e.fault, true)
		}
	case doIt:
		e.do()
	}
	w.free(e)
}

func (w *World) step(i int, e Event) {
	w.to.client = i
	w.clients[i].Step(w.Clock(i), e, &w.to)
}
