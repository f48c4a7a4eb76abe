package coresim

import (
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/fleet"
)

// process is a client of the fleet: the shell of its machines, without a goroutine. Where package
// quorum has timers, connections and subscriptions, it has events.
type process struct {
	tier    *tier
	number  int
	id      string // the client in its owners
	channel string
	workers []*worker
	live    []*call // calls that wait or hold
	ticket  int64
	clock   nodeClocks
	queues  [12]localQueue // of each lock
	lanes   []lane         // of node n: n*fleet.Lanes + lane
	retries []retries      // by node
	// The average round trip to each node; 0 if all failed, negative if there was none.
	trips []time.Duration
	// By node: the last call failed. Pending releases do not count.
	fails   []bool
	seen    [2]seen   // by name
	listens []bool    // by node
	clocks  bool      // the clocks are compared
	seenAt  core.Time // when they were compared last
	timers  []timer   // a heap
	last    uint64    // number of a timer
	asked   time.Duration
	now     core.Time
	to      *fleet.Effects
	dead    bool // it has died
	closed  bool
}

// seen is the highest token that a process has seen of a lock.
type seen struct {
	token  uint64
	at     time.Duration
	hinted uint64 // the last hint
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
	p := &process{tier: t, number: i, id: "p" + strconv.Itoa(i+1), live: make([]*call, 0, 4)}
	p.channel, p.clock.ahead = wire.WakeChannel(p.id), make(map[int]time.Duration)
	p.lanes = make([]lane, t.plan.Nodes*fleet.Lanes)
	for j := range p.lanes {
		p.lanes[j] = lane{process: p, node: j / fleet.Lanes, number: j % fleet.Lanes}
	}
	p.retries = make([]retries, t.plan.Nodes)
	p.trips, p.fails = make([]time.Duration, t.plan.Nodes), make([]bool, t.plan.Nodes)
	for j := range p.trips {
		p.trips[j] = -1
		p.retries[j] = retries{process: p, node: j, pause: firstTry}
	}
	p.listens = make([]bool, t.plan.Nodes)
	return p
}

// Step is fleet.Client's.
func (p *process) Step(now fleet.Clock, e fleet.Event, to *fleet.Effects) {
	if p.dead {
		return
	}
	p.now, p.to = p.tier.timeOf(p.number, now), to
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

// hint returns the hint of a token, as quorum.Lock does.
func (p *process) hint(name int) uint64 {
	clock := uint64(max(p.tier.world.Clock(p.number).Wall, 0))
	s := &p.seen[name]
	if s.token > 0 {
		clock = max(clock, s.token+1+uint64(max((p.now.Mono-s.at).Microseconds(), 0)))
	}
	if clock <= s.hinted && s.hinted-clock < 1000 {
		clock = s.hinted + 1
	}
	s.hinted = clock
	return clock
}

func (p *process) saw(name int, token uint64) {
	if s := &p.seen[name]; token > s.token {
		s.token, s.at = token, p.now.Mono
	}
}

func (p *process) forget(c *call) {
	for i, other := range p.live {
		if other == c {
			p.live = append(p.live[:i], p.live[i+1:]...)
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
	return c != nil && c.process == p && !p.lives(c) && p.now.Mono >= c.kept
}

// clockCheck is how often the clocks are compared while something is held.
const clockCheck = time.Second

// compare has every hold look at its deadline when the clocks have gone apart.
func (p *process) compare() {
	p.after(clockCheck, func() {
		stepped := p.now.Boot-p.seenAt.Boot-(p.now.Mono-p.seenAt.Mono) > clockCheck/10
		p.seenAt = p.now
		held := false
		for _, c := range append([]*call(nil), p.live...) {
			held = held || c.holds
			if stepped {
				c.step(core.Event{Kind: core.Tick})
			}
		}
		if p.clocks = held; held {
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
	what, rest, _ := strings.Cut(message, " ")
	if what == "handoff" {
		h, ok := wire.ParseHandoff(rest)
		if !ok {
			return
		}
		c := p.waiter(string(h.Waiter))
		if c == nil || h.Cell < 0 || h.Cell >= c.lock.Cells() || p.tier.serverOf(h.Cell) != node || c.lock.NameOf(h.Cell) != h.Lock || !h.ProvenBy(c.caller.Secret) {
			return
		}
		p.saw(c.lock.nameNumber(h.Cell), h.Token)
		c.step(core.Event{Kind: core.Handoff, Cell: int32(h.Cell), Attempt: int32(h.Attempt), Token: h.Token})
		return
	}
	id, name, _ := strings.Cut(rest, " ")
	c := p.waiter(id)
	switch {
	case c == nil: // it has its lock already, or has gone
	case what == "turn":
		c.worker.called()
		c.notify(func(cell int) bool { return p.tier.serverOf(cell) == node && c.lock.NameOf(cell) == name })
	case what == "next":
		c.step(core.Event{Kind: core.Next})
	}
}

// waiter returns the call that waits or holds under this name.
func (p *process) waiter(name string) *call {
	c := p.tier.callOf(name)
	if c == nil || c.process != p || !p.lives(c) {
		return nil
	}
	return c
}

// close is quorum.Client's Close.
func (p *process) close() {
	if p.dead || p.closed {
		return
	}
	p.closed = true
	for _, c := range append([]*call(nil), p.live...) {
		c.step(core.Event{Kind: core.Close})
	}
}
