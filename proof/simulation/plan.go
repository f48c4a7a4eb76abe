package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
)

// class limits the faults of a plan, and so decides which invariants apply.
type class int

const (
	calm    class = iota // nothing fails
	bounded              // as many nodes forget as the quorum allows for; clocks keep to the drift
	beyond               // any node may forget, and clocks run as they like
)

func (c class) String() string { return [...]string{"calm", "bounded", "beyond"}[c] }

// Plan is one schedule: actions of the processes, and faults of processes, nodes and network. Only
// the fate of single messages is left to the dice.
type Plan struct {
	Seed        uint64
	Class       class
	Nodes       int
	Quorum      int
	TTL         time.Duration
	NodeTimeout time.Duration
	Drift       quorumlock.Drift
	Idle        bool          // at the end minutes and a day without calls, and then one of every process
	Bundles     bool          // the nodes take bundles, and one process has more callers
	Readers     bool          // some of the calls are of readers
	Big         bool          // many callers, slots or ids
	Permits     int           // of the semaphore s; 0: unused
	Latch       int           // how many ids open the latch l; 0: unused
	IDs         int           // how many ids there are
	Waiter      bool          // the last process waits for the latch until it is open
	Guard       bool          // all clients have the restart guard: any node may lose its data
	Orders      bool          // each process has the nodes in an order of its own
	Latency     time.Duration // one way, on average
	Slow        float64       `shrink:"0"` // the share of messages that take much longer
	SlowBy      time.Duration // the longest delay of these
	Drop        float64       `shrink:"0"` // the share of scripts that vanish on their way
	LoseReply   float64       `shrink:"0"` // the share of replies that vanish
	Length      time.Duration // nothing new begins after that, and all faults are over
	Clocks      []ClockPlan
	Processes   []ProcessPlan
	Workers     []WorkerPlan `shrink:"drop"`
	Java        []JavaStep   `shrink:"drop"` // of a process with Redisson; empty if there is none
	Faults      []Fault      `shrink:"drop"`
}

// silence is how long a call may take. A node may be silent for a NodeTimeout before it answers the
// pipeline under way, once more before the pipeline of the call, and each of them again on a new
// connection.
func (p *Plan) silence() time.Duration { return 4 * p.NodeTimeout }

// guard is the option for it.
func (p *Plan) guard() quorumlock.Option {
	if !p.Guard {
		return nil
	}
	return quorumlock.WithRestartGuard(p.TTL)
}

// ClockPlan is the plan of a node's clock.
type ClockPlan struct {
	Offset time.Duration
	Rate   float64 `shrink:"1"`
}

// ProcessPlan is a client.
type ProcessPlan struct {
	Wall   time.Duration `shrink:"0"` // that its wall clock is ahead
	Prompt bool          // whether its go-redis heeds the deadline of a context
	Before bool          // it has the scripts of the clients before: see package before
}

// WorkerPlan is one goroutine of a process.
type WorkerPlan struct {
	Process int
	Steps   []Step `shrink:"drop"`
}

// Step is one acquisition and the use of its hold.
type Step struct {
	After time.Duration // before the call
	// "x", "y", "s" for the semaphore, "x+y", "x+s" or "x+y+s" for a MultiLock, "l" for the latch.
	Name    string
	Read    int `shrink:"0"` // the shared members
	Try     bool
	NoRenew bool          `shrink:"0"`
	Limit   time.Duration // of the call's context
	Wait    bool          // the limit is for waiting only, and not for the lease's context
	Cancel  time.Duration `shrink:"0"` // when the context is cancelled instead; 0: it is not
	// It is cancelled this long after its process heard a message that calls it; 0: it is not.
	Told   time.Duration `shrink:"0"`
	Hold   []Use         `shrink:"drop"`
	Detach time.Duration `shrink:"0"` // the hold is detached for so long, not unlocked; 0: not
	Takers []Taker       `shrink:"drop"`
	// The call on the latch; then only After, Name, ID, Limit and Fresh count.
	Latch ask
	ID    int  // of a Done
	Fresh bool // by a value that has not seen the latch before
}

// Use is something that is done while holding.
type Use struct {
	After time.Duration
	What  use
	Lag   time.Duration // of a write, from looking at the lease to the store: a pause of the holder
}

type use int

const (
	write use = iota
	extend
	enter
	race // extend, while going on
	downgrade
	upgrade // which is refused
)

func (u use) String() string {
	return [...]string{"write", "extend", "enter", "race", "downgrade", "upgrade"}[u]
}

// Fault is something that goes wrong for a while.
type Fault struct {
	At, For time.Duration
	Kind    kind
	Node    int
	Process int
	By      time.Duration
	Keys    string // lost ones: "lock", "token", "line", "slots", "latch", "ids" or "all"
}

type kind int

const (
	crash kind = iota
	crashLosing
	promote
	freeze
	evict
	flushScripts
	stepBack
	stepForward
	cutBoth
	cutThere
	cutBack
	stall
	pause
	die
	setWall
	forge
	several
)

var kinds = [...]string{"crash", "crash losing", "promote", "freeze", "evict", "flush scripts", "step back", "step forward", "cut", "cut there", "cut back", "stall", "pause", "die", "set wall clock", "forge", "several servers"}

func (k kind) String() string { return kinds[k] }

// newPlan makes the plan of a seed.
func newPlan(seed uint64) *Plan {
	g := newGenerator(seed)
	p := &Plan{Seed: seed, Class: pick(g, calm, bounded, bounded, bounded, beyond)}
	p.Guard = p.Class == bounded && generator{rand.New(rand.NewPCG(seed, 0x9a4d))}.chance(0.04)
	p.Idle = p.Class != beyond && !p.Guard && generator{rand.New(rand.NewPCG(seed, 0x1d1e))}.chance(0.1)
	p.Nodes = pick(g, 1, 3, 3, 3, 3, 3, 3, 4, 5, 5)
	p.Quorum = p.Nodes/2 + 1
	if g.chance(0.4) {
		p.Quorum = min(p.Quorum+1, p.Nodes)
	}
	p.TTL = time.Duration(pick(g, 200, 400, 700, 1000, 2000)) * time.Millisecond
	p.NodeTimeout = g.between(30*time.Millisecond, pick(g, p.TTL/3, p.TTL/3, p.TTL/3, p.TTL))
	p.Drift = quorumlock.DefaultDrift()
	if g.chance(0.5) {
		p.Drift.Rate = 0.2
	}
	if p.Guard {
		p.TTL = min(p.TTL, time.Second)
		p.NodeTimeout = min(p.NodeTimeout, p.TTL)
	}
	p.Latency = g.between(50*time.Microsecond, 3*time.Millisecond)
	p.Length = 3*p.TTL + 500*time.Millisecond
	if p.Guard {
		p.Length += p.quarantine()
	}
	if p.Class != calm {
		p.Slow = pick(g, 0, 0.02, 0.1)
		p.SlowBy = pick(g, p.NodeTimeout, p.TTL/2, p.TTL*3/2)
		p.Drop = pick(g, 0, 0, 0.02, 0.1)
		p.LoseReply = pick(g, 0, 0, 0.02, 0.1)
	}
	for range p.Nodes {
		p.Clocks = append(p.Clocks, g.clock(p))
	}
	for range 2 + g.IntN(2) {
		p.Processes = append(p.Processes, g.process(p))
	}
	names := pick(g, []string{"x"}, []string{"x"}, []string{"x"}, []string{"x", "y", "x+y"})
	for i := range 2 + g.IntN(3) {
		p.Workers = append(p.Workers, g.worker(p, i, names))
	}
	if p.Class != calm {
		for range g.IntN(6) {
			p.Faults = append(p.Faults, g.fault(p))
		}
	}
	if p.Guard {
		for range 1 + g.IntN(2) {
			at := g.between(0, p.Length-2*p.TTL)
			for _, node := range g.Perm(p.Nodes)[:1+g.IntN(p.Nodes)] {
				p.Faults = append(p.Faults, g.restart(p, node, at)...)
			}
		}
	}
	p.thaws()
	p.crowds()
	p.bundles()
	p.readers()
	p.slots()
	p.latches()
	p.java()
	p.twins()
	p.detaches()
	p.big()
	p.mixes()
	return p
}

// twins makes the addresses of some nodes lead to two servers each for a while. The servers take
// turns with the connections. A separate generator keeps the other seeds unchanged.
func (p *Plan) twins() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x2b5e))}
	if p.Class != bounded || p.Guard || p.Idle || len(p.Java) > 0 || !g.chance(0.05) {
		return
	}
	for i := range p.Processes {
		// The library does not know the addresses behind the connections of a caller's own client.
		p.Processes[i].Prompt = true
	}
	p.Faults = nil
	at := pick(g, 0, 0, g.between(0, p.Length/2))
	for _, node := range g.Perm(p.Nodes)[:1+g.IntN(p.Nodes)] {
		p.Faults = append(p.Faults, Fault{At: at, For: g.between(0, p.Length-at), Kind: several, Node: node, Process: g.IntN(len(p.Processes))})
	}
}

// thaws makes nodes of some seeds freeze for longer than the TTL. Meanwhile, callers come and give
// up, and other nodes have other faults. Its own generator keeps the other seeds unchanged.
func (p *Plan) thaws() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x7a3))}
	if p.Class == calm || p.Guard || p.Idle || !g.chance(0.05) {
		return
	}
	p.TTL = 5 * time.Second
	p.NodeTimeout = g.between(30*time.Millisecond, time.Second)
	p.Slow = 0 // the socket buffers of frozen nodes delay messages instead
	at, long := g.between(0, 500*time.Millisecond), p.TTL+g.between(0, p.TTL/2)
	p.Length = at + long + g.between(0, 500*time.Millisecond)
	p.Faults = nil
	for i, node := range g.Perm(p.Nodes)[:1+g.IntN(p.Nodes)] {
		f := Fault{At: at + g.between(0, 50*time.Millisecond), For: long - g.between(0, 50*time.Millisecond), Kind: freeze, Node: node, Process: g.IntN(len(p.Processes))}
		if i > 0 {
			f.Kind = pick(g, freeze, freeze, crash, cutBoth, cutBack, stall)
		}
		p.Faults = append(p.Faults, f)
	}
	for range g.IntN(3) {
		p.Faults = append(p.Faults, Fault{At: g.between(0, p.Length/2), For: g.between(0, p.Length/3), Kind: pick(g, pause, flushScripts, setWall),
			Node: g.IntN(p.Nodes), Process: g.IntN(len(p.Processes)), By: g.between(-time.Second, time.Second)})
	}
	names := pick(g, []string{"x"}, []string{"x", "y", "x+y"})
	p.Workers = nil
	for i := range 2 + g.IntN(4) {
		w := g.worker(p, i, names)
		for j := range w.Steps {
			s := &w.Steps[j]
			s.After, s.Limit = g.between(0, time.Second), g.between(time.Millisecond, 2*time.Second)
			for u := range s.Hold {
				s.Hold[u].After, s.Hold[u].Lag = g.between(0, 500*time.Millisecond), 0
			}
		}
		p.Workers = append(p.Workers, w)
	}
}

// crowds gives one process of some seeds more callers than the process sends to the nodes at a
// time. The callers come in any order and hold the lock for a moment; some give up. A separate
// generator keeps the other seeds unchanged.
func (p *Plan) crowds() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0xc4d))}
	if p.Guard || p.Idle || !g.chance(0.04) {
		return
	}
	process, name, all := g.IntN(len(p.Processes)), pick(g, "x", "x", "x", "x+y"), g.between(p.Latency, 20*p.Latency)
	for range 8 + g.IntN(5) {
		s := Step{Name: name, After: g.between(0, all), Limit: time.Hour}
		if p.Class != calm || g.chance(0.2) {
			s.Limit = g.between(p.TTL, 6*p.TTL)
		}
		if g.chance(0.1) {
			s.Cancel = g.between(0, 10*all)
		}
		s.Wait = g.chance(0.5)
		for range g.IntN(3) {
			s.Hold = append(s.Hold, Use{After: g.between(0, 4*p.Latency), What: write})
		}
		p.Workers = append(p.Workers, WorkerPlan{Process: process, Steps: []Step{s}})
	}
}

// bundles makes the nodes of some seeds take bundles. It gives one process more callers, so that
// calls share pipelines. Its own generator keeps the other seeds unchanged.
func (p *Plan) bundles() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0xb4d1))}
	if p.Bundles = g.chance(0.15); !p.Bundles {
		return
	}
	process := g.IntN(len(p.Processes))
	p.Processes[process].Prompt = true // others send each call alone
	for range 3 + g.IntN(3) {
		w := g.worker(p, process, []string{"x", "x", "y", "x+y"})
		p.Workers = append(p.Workers, w)
	}
}

// quarantine is the longest time for which a node is out under the restart guard.
func (p *Plan) quarantine() time.Duration {
	if !p.Guard {
		return 0
	}
	set := options.Settings{MaxTTL: p.TTL, Drift: p.Drift}
	return options.Quarantine(&set)
}

func (g generator) clock(p *Plan) ClockPlan {
	c := ClockPlan{Rate: 1, Offset: g.between(-time.Hour, time.Hour)}
	// If counters are lost, tokens depend on the clocks: no node may refuse a client's hint.
	if p.Guard || p.Class == beyond || g.chance(0.5) {
		c.Offset /= 180
	}
	r := p.Drift.Rate
	switch {
	case p.Class == beyond && g.chance(0.3):
		c.Rate = pick(g, 0.3, 1-r, 1+r, 2)
	case g.chance(0.6):
		c.Rate = pick(g, 1-r, 1+r, 1+r)
	}
	return c
}

func (g generator) process(p *Plan) ProcessPlan {
	pp := ProcessPlan{Prompt: g.chance(0.9)}
	// If more counters are lost than the quorum allows for, as under the guard, tokens depend on
	// clocks that agree.
	if p.Class != beyond && !p.Guard && g.chance(0.5) {
		pp.Wall = g.between(-time.Minute, time.Minute)
		if g.chance(0.1) {
			const year = 365 * 24 * time.Hour
			pp.Wall = pick(g, -year, -48*time.Hour, 48*time.Hour, year)
		}
	}
	return pp
}

func (g generator) worker(p *Plan, i int, names []string) WorkerPlan {
	w := WorkerPlan{Process: i % len(p.Processes)}
	steps := 1 + g.IntN(2)
	if p.Guard {
		steps += 3
	}
	for range steps {
		s := Step{
			After: g.between(0, p.TTL/2),
			Name:  pick(g, names...),
			Try:   g.chance(0.2),
			Limit: g.between(p.TTL, 6*p.TTL),
		}
		if p.Class == calm && g.chance(0.7) {
			s.Limit = time.Hour
		}
		s.NoRenew, s.Wait = g.chance(0.25), g.chance(0.6)
		if g.chance(0.15) {
			s.Cancel = g.between(0, p.TTL)
			if g.chance(0.5) {
				s.Cancel = g.between(0, 3*p.Latency)
			}
		}
		if g.chance(0.1) || p.Class == calm && g.chance(0.2) {
			s.Told = g.between(1, p.Latency)
		}
		for range g.IntN(4) {
			u := Use{After: g.between(0, p.TTL/8), What: pick(g, write, write, extend, enter, race)}
			if g.chance(0.1) || p.Guard {
				u.After = g.between(0, 2*p.TTL)
			}
			if g.chance(0.2) && p.Class != calm {
				u.Lag = g.between(0, 2*p.TTL)
			}
			s.Hold = append(s.Hold, u)
		}
		w.Steps = append(w.Steps, s)
	}
	return w
}

// forgetful is how many nodes may forget: the first so many of the plan.
func (p *Plan) forgetful() int {
	if p.Class == beyond {
		return p.Nodes
	}
	return 2*p.Quorum - p.Nodes - 1
}

func (g generator) fault(p *Plan) Fault {
	f := Fault{
		At:      g.between(0, p.Length*2/3),
		For:     g.between(0, pick(g, p.NodeTimeout, p.TTL, 2*p.TTL)),
		Node:    g.IntN(p.Nodes),
		Process: g.IntN(len(p.Processes)),
		By:      g.between(0, 3*p.TTL),
	}
	f.For = min(f.For, p.Length-f.At)
	n := p.forgetful()
	f.Kind = pick(g, crash, crash, freeze, freeze, flushScripts, stepBack, cutBoth, cutThere, cutBack, stall, stall, pause, pause, pause, die, setWall, forge)
	if n > 0 && g.chance(0.5) {
		f.Kind = pick(g, crashLosing, evict, stepForward)
		f.Node = g.IntN(n)
		f.Keys = pick(g, "lock", "lock", "token", "line", "all")
	}
	if f.Kind == setWall {
		f.By = g.between(-10*time.Second, 10*time.Second)
		if p.Class == beyond || p.Guard {
			f.Kind = pause
		}
	}
	return f
}

// restart returns a restart without data, or the promotion of a replica without its master's latest
// writes. Several nodes do so at about the same time: a holder has no chance to renew in between. A
// node may boot with a wrong clock, which a time server then corrects.
func (g generator) restart(p *Plan, node int, at time.Duration) []Fault {
	near := pick(g, p.TTL/20, p.TTL/20, p.TTL/2)
	f := Fault{
		At:   at + g.between(0, near),
		For:  g.between(0, near),
		Kind: pick(g, crashLosing, promote),
		Node: node,
		Keys: pick(g, "lock", "all", "all"),
	}
	if f.Kind == promote || f.Keys != "all" || g.chance(0.3) {
		return []Fault{f}
	}
	wrong := Fault{At: f.At + f.For + time.Microsecond, Kind: stepBack, Node: node, By: g.between(0, 10*time.Minute)}
	right := Fault{At: wrong.At + g.between(time.Microsecond, p.TTL), Kind: stepForward, Node: node, By: wrong.By}
	if g.chance(0.5) {
		wrong.Kind, right.Kind = stepForward, stepBack
	}
	return []Fault{f, wrong, right}
}

// String returns the plan as the head of a trace.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %v, quorum %d of %d, TTL %v, node timeout %v, drift %v + %v, guard %v, bundles %v, permits %d, latch %d of %d, latency %v, slow %v by %v, drop %v, lose replies %v, length %v\n",
		p.Seed, p.Class, p.Quorum, p.Nodes, p.TTL, p.NodeTimeout, p.Drift.Rate, p.Drift.Floor, p.Guard, p.Bundles, p.Permits, p.Latch, p.IDs, p.Latency, p.Slow, p.SlowBy, p.Drop, p.LoseReply, p.Length)
	for i, c := range p.Clocks {
		fmt.Fprintf(&b, "  n%d clock %+v\n", i+1, c)
	}
	for i, x := range p.Processes {
		fmt.Fprintf(&b, "  p%d %+v\n", i+1, x)
	}
	for i, x := range p.Workers {
		for _, s := range x.Steps {
			fmt.Fprintf(&b, "  w%d in p%d: %+v\n", i+1, x.Process+1, s)
		}
	}
	for _, s := range p.Java {
		fmt.Fprintf(&b, "  java: %+v\n", s)
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  at %v for %v: %v n%d p%d by %v keys %q\n", f.At, f.For, f.Kind, f.Node+1, f.Process+1, f.By, f.Keys)
	}
	return b.String()
}
