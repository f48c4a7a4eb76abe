package coresim

import (
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/fleet"
)

// process is a client of the fleet: the shell of its machines, without a goroutine. Where package
// quorum has timers, connections and subscriptions, it has events.
type process struct {
	tier      *tier
	number    int
	id        string // the client in its owners
	channel   string
	workers   []*worker
	live      []*call // calls that wait or hold
	former    engine.Ended
	clocks    engine.Clocks[int]
	vague     []bool                                   // by node: its clock was last read within more than a NodeTimeout
	queues    [kindsOfLocks]engine.LocalQueue[*worker] // of each lock
	others    map[int]*engine.LocalQueue[*worker]      // by Step.Other
	paces     [kindsOfLocks]core.Pace                  // after a caller that has given up
	admission engine.Admission[int, *worker]           // has the attempts that wait unsent
	lanes     []lane                                   // of node n: n*fleet.Lanes + lane
	retries   []retries                                // by node
	sights    []wire.Sight                             // by node
	renewals  engine.Renewals[int, renewal]
	turn      time.Duration            // when the timer of renewals fires; 0 if it is not set
	health    []engine.Health          // by node
	hints     [len(names)]engine.Hints // by name
	listens   []bool                   // by node
	compares  bool                     // the clocks are compared
	seenAt    core.Time                // when they were compared last
	timers    []timer                  // a heap
	last      uint64                   // number of a timer
	asked     time.Duration
	now       core.Time
	to        *fleet.Effects
	redisson  *redisson // nil in a plan without Redisson's clients
	dead      bool      // it has died
	closed    bool
}

type timer struct {
	at     time.Duration
	number uint64
	alarm
}

// alarm is the action of a timer.
type alarm interface{ ring(at time.Duration) }

// something is an alarm that runs a function.
type something func()

func (do something) ring(time.Duration) { do() }

func (t *tier) newProcess(i int) *process {
	p := &process{tier: t, number: i, id: "p" + strconv.Itoa(i+1), live: make([]*call, 0, 4), vague: make([]bool, t.plan.Nodes)}
	if len(t.plan.Peers) > 0 {
		p.id += "~" // as in the owners of package client, but not in Redisson's
		p.redisson = &redisson{met: make(map[*lock]time.Duration)}
	}
	p.channel = wire.WakeChannel(p.id)
	p.lanes = make([]lane, t.plan.Nodes*fleet.Lanes)
	for j := range p.lanes {
		p.lanes[j] = lane{process: p, node: j / fleet.Lanes, number: j % fleet.Lanes}
	}
	p.retries = make([]retries, t.plan.Nodes)
	p.sights = make([]wire.Sight, t.plan.Nodes)
	p.health = make([]engine.Health, t.plan.Nodes)
	for j := range p.retries {
		p.retries[j] = retries{process: p, node: j}
	}
	p.listens = make([]bool, t.plan.Nodes)
	return p
}

// monotonic is the monotonic clock in the form of wire.Sight.
func (p *process) monotonic() time.Time { return time.Time{}.Add(p.now.Mono) }

// Step is fleet.Client's.
func (p *process) Step(now fleet.Clock, e fleet.Event, to *fleet.Effects) {
	if p.dead {
		return
	}
	p.now, p.to = p.tier.timeOf(p.number, now), to
	if p.ofPeers(&e) {
		p.run()
		return
	}
	switch e.Kind {
	case fleet.Started:
		for _, k := range p.workers {
			k.next()
		}
	case fleet.Woke:
		if p.now.Mono >= p.asked {
			p.asked = 0
		}
	case fleet.Replied:
		p.lanes[e.Node*fleet.Lanes+e.Lane].replied(e.Call, e.Reply)
	case fleet.Connected:
		for i := range p.lanes {
			if l := &p.lanes[i]; l.fleetLane() == e.Lane && p.tier.server(l.node) == e.Node {
				l.pump()
			}
		}
	case fleet.Told:
		p.heard(e.Node, e.Text)
	case fleet.Subscribed:
		p.missed(e.Node)
	case fleet.Unsubscribed:
		p.missed(e.Node)
		p.after(20*time.Millisecond, func() { p.to.Subscribe(e.Node, p.channel) })
	}
	p.run()
}

// run fires the due timers, and asks for an event at the next one.
func (p *process) run() {
	for len(p.timers) > 0 && p.timers[0].at <= p.now.Mono {
		if p.tier.fired++; p.tier.fired > maxSteps {
			p.tier.violate(noStorm, "%d timers are too many", p.tier.fired)
			p.dead = true
			return
		}
		t := p.pop()
		t.ring(t.at)
	}
	if len(p.timers) == 0 {
		return
	}
	if at := p.timers[0].at; p.asked == 0 || at < p.asked || p.asked <= p.now.Mono {
		p.asked = at
		p.to.Wake(at - offset)
	}
}

func (p *process) after(d time.Duration, do func()) { p.at(p.now.Mono+d, something(do)) }

func (p *process) at(at time.Duration, do alarm) {
	p.last++
	p.timers = append(p.timers, timer{})
	i, t := len(p.timers)-1, timer{at, p.last, do}
	for i > 0 && t.before(&p.timers[(i-1)/2]) {
		p.timers[i] = p.timers[(i-1)/2]
		i = (i - 1) / 2
	}
	p.timers[i] = t
}

func (t *timer) before(u *timer) bool { return t.at < u.at || t.at == u.at && t.number < u.number }

func (p *process) pop() timer {
	first, n := p.timers[0], len(p.timers)-1
	last := p.timers[n]
	p.timers[n] = timer{}
	p.timers = p.timers[:n]
	i := 0
	for 2*i+1 < n {
		child := 2*i + 1
		if child+1 < n && p.timers[child+1].before(&p.timers[child]) {
			child++
		}
		if last.before(&p.timers[child]) {
			break
		}
		p.timers[i] = p.timers[child]
		i = child
	}
	if n > 0 {
		p.timers[i] = last
	}
	return first
}

// hint returns the hint of a token.
func (p *process) hint(name int) uint64 {
	return p.hints[name].Next(int64(p.tier.world.Clock(p.number).Wall), p.now.Mono)
}

func (p *process) saw(name int, token uint64) { p.hints[name].Saw(token, p.now.Mono) }

func (p *process) forget(c *call) {
	for i, other := range p.live {
		if other == c {
			p.former.Add(uint64(c.number))
			p.live = append(p.live[:i], p.live[i+1:]...)
			if c.holds {
				p.paces[c.worker.step.kind()] = core.Pace{}
			}
			return
		}
	}
}

func (p *process) lives(c *call) bool {
	for _, other := range p.live {
		if other == c {
			return true
		}
	}
	return false
}

// ended reports whether an owner is one of this client's that neither holds nor is trying to.
func (p *process) ended(o quorumlock.Owner) bool {
	c := p.tier.callOf(string(o))
	if c == nil || c.process != p || p.lives(c) {
		return false
	}
	number := uint64(c.number)
	return p.former.Has(number) && !p.former.Keeps(number, p.now.Mono)
}

// compare has every hold look at its deadline when the clocks have gone apart.
func (p *process) compare() {
	p.after(engine.ClockCheck, func() {
		stepped := engine.Suspended(p.seenAt, p.now)
		p.seenAt = p.now
		held := false
		for _, c := range append([]*call(nil), p.live...) {
			held = held || c.holds
			if stepped {
				c.step(core.Event{Kind: core.Tick})
			}
		}
		if p.compares = held; held {
			p.compare()
		}
	})
}

// missed is called when messages of a node may have been missed.
func (p *process) missed(node int) {
	for _, c := range append([]*call(nil), p.live...) {
		c.notify(func(cell int) bool { return p.tier.serverOf(cell) == node })
	}
}

// heard takes a message of a node, or of a forger.
func (p *process) heard(node int, message string) {
	if p.closed {
		return
	}
	m, ok := engine.ParseMessage(message)
	c := p.waiter(string(m.Waiter))
	if !ok || c == nil { // it has its lock already, or has gone
		return
	}
	for cell := range c.lock.Cells() { // two addresses may lead to the node
		if p.tier.serverOf(cell) != node || c.lock.NameOf(cell) != m.Lock {
			continue
		}
		e, ok := m.Event(cell, c.caller.Secret)
		if !ok {
			continue
		}
		switch e.Kind {
		case core.Handoff:
			p.saw(c.lock.nameNumber(cell), e.Token)
			c.handedBeside(cell)
		case core.Turn:
			c.worker.called()
		}
		c.apply(e)
	}
	c.flush()
}

// waiter returns the call that waits or holds under this name.
func (p *process) waiter(name string) *call {
	c := p.tier.callOf(name)
	if c == nil || c.process != p || !p.lives(c) {
		return nil
	}
	return c
}

// close is client.Client's Close.
func (p *process) close() {
	if p.dead || p.closed {
		return
	}
	p.closed = true
	for _, k := range p.workers {
		k.leavePlace()
	}
	p.forgetPeers(true)
	for _, c := range append([]*call(nil), p.live...) {
		c.step(core.Event{Kind: core.Close})
	}
}
