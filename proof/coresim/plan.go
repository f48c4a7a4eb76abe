package coresim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/fleet"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// class limits the faults of a plan, and so decides which invariants apply, as in the wire tier.
type class int

const (
	calm    class = iota // nothing fails
	bounded              // as many nodes forget as the quorum allows for; clocks keep to the drift
	beyond               // any node may forget, and clocks run as they like
)

func (c class) String() string { return [...]string{"calm", "bounded", "beyond"}[c] }

// epoch is the time of a correct clock at the beginning of a schedule.
const epoch scriptmodel.Time = 1_790_000_000_123_457

// Plan is one schedule: actions of the processes, and faults of processes, nodes and network.
type Plan struct {
	Seed        uint64
	Class       class
	Nodes       int
	Quorum      int
	Twins       bool // the last two nodes are one server
	TTL         time.Duration
	NodeTimeout time.Duration
	Drift       quorumlock.Drift
	MaxHold     time.Duration
	Readers     bool // some of the calls are of readers
	Crowd       bool // one process has more callers than it sends to the nodes at one time
	Detaches    bool // some holds are detached, and others go on with them
	Permits     int  // of the semaphore s; 0: there is none
	Latch       LatchPlan
	Big         bool // many callers, slots or ids
	Guard       bool // all clients have the restart guard: any node may restart without its data
	Network     fleet.Network
	Latency     time.Duration // the longest of most messages, one way
	Length      time.Duration // nothing new begins after that, and all faults are over
	Clocks      []fleet.Computer
	Processes   []fleet.Computer
	Workers     []WorkerPlan  `shrink:"drop"`
	Peers       []PeerPlan    `shrink:"drop"` // Redisson clients
	Contest     bool          // the workers and the peers compete for x all the time
	Faults      []fleet.Fault `shrink:"drop"`
	Idles       []Idle        `shrink:"drop"` // after the schedule
}

// WorkerPlan has the actions of one caller of a process.
type WorkerPlan struct {
	Process int
	Steps   []Step `shrink:"drop"`
}

// Step is one acquisition and the use of its hold.
type Step struct {
	After   time.Duration // before the call
	Names   int           // 0 is x, 1 is y, 2 is a MultiLock of both, 3 is s, 4 is x and s, 5 is all
	Read    int           `shrink:"0"` // the shared ones, as bits
	Other   int           // which lock of other names this is; 0: that of the names, which is watched
	Try     bool
	NoRenew bool          `shrink:"0"`
	Limit   time.Duration `shrink:"0"` // how long Lock may wait; 0 for ever
	Cancel  time.Duration `shrink:"0"` // when the call is cancelled instead; 0: it is not
	Told    time.Duration `shrink:"0"` // cancelled this long after a message calls it; 0: not
	Hold    []Use         `shrink:"drop"`
	Keep    time.Duration `shrink:"0"` // Unlock leaves the lock for so long; 0: it does not
	Detach  time.Duration `shrink:"0"` // the hold is detached for so long instead; 0: it is not
	Takers  []Taker       `shrink:"drop"`
}

// Use is something that is done while holding.
type Use struct {
	After     time.Duration
	Extend    bool
	Downgrade bool
}

// The faults that the network does not know.
const (
	die fleet.FaultKind = 100 + iota
	closes
	forge
	disconnect
	foreign
)

var kinds = map[fleet.FaultKind]string{
	fleet.Crash: "crash", fleet.CrashLoss: "crash losing", fleet.Failover: "failover", fleet.Freeze: "freeze", fleet.Forget: "forget",
	fleet.Evict: "evict", fleet.Step: "step", fleet.Cut: "cut", fleet.CutThere: "cut there", fleet.CutBack: "cut back", fleet.Stall: "stall",
	fleet.Pause: "pause", fleet.Sleep: "sleep", fleet.StepWall: "set wall clock", fleet.ForgetScripts: "forget scripts",
	die: "die", closes: "close", forge: "forge", disconnect: "disconnect", foreign: "foreign key",
}

func describe(f *fleet.Fault) string {
	return fmt.Sprintf("%s of n%d, p%d for %v by %v, key %q", kinds[f.Kind], f.Node+1, f.Client+1, f.For, f.By, f.Key)
}

type generator struct{ *rand.Rand }

func (g generator) chance(p float64) bool { return g.Float64() < p }

func (g generator) between(a, b time.Duration) time.Duration {
	if b <= a {
		return a
	}
	return a + time.Duration(g.Int64N(int64(b-a)))
}

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

// newPlan makes the plan of a seed.
func newPlan(seed uint64) *Plan {
	g := generator{rand.New(rand.NewPCG(seed, 0xc07e))}
	p := &Plan{Seed: seed, Class: pick(g, calm, bounded, bounded, bounded, beyond)}
	p.Guard = p.Class == bounded && g.chance(0.05)
	p.Nodes = pick(g, 1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5, 6, 7)
	p.Quorum = p.Nodes/2 + 1
	if g.chance(0.3) {
		p.Quorum += g.IntN(p.Nodes - p.Quorum + 1)
	}
	p.Twins = g.chance(0.03) && p.Nodes > 2 && p.Quorum < p.Nodes && p.Class == calm
	p.TTL = time.Duration(pick(g, 200, 400, 700, 1000, 2000, 5000)) * time.Millisecond
	p.NodeTimeout = g.between(30*time.Millisecond, pick(g, p.TTL/3, p.TTL/3, p.TTL/3, p.TTL))
	p.Drift = quorumlock.DefaultDrift()
	if g.chance(0.5) {
		p.Drift.Rate = 0.2
	}
	if p.Guard {
		p.TTL = min(p.TTL, time.Second)
		p.NodeTimeout = min(p.NodeTimeout, p.TTL)
	}
	if g.chance(0.1) {
		p.MaxHold = g.between(p.TTL/2, 2*p.TTL)
	}
	p.Latency = g.between(50*time.Microsecond, 3*time.Millisecond)
	p.Network = fleet.Network{MinDelay: p.Latency / 4, MaxDelay: p.Latency}
	p.Length = min(3*p.TTL, 5*time.Second) + 500*time.Millisecond
	if p.Guard {
		p.Length += 2 * p.quarantine()
	}
	if p.Class != calm {
		p.Network.Slow = pick(g, 0, 0.02, 0.1)
		p.Network.MaxSlow = pick(g, p.NodeTimeout, p.TTL/2, p.TTL*3/2)
		p.Network.Lose = pick(g, 0, 0, 0.01, 0.05)
		p.Network.LoseReply = pick(g, 0, 0, 0.01, 0.05)
	}
	for range p.Nodes {
		p.Clocks = append(p.Clocks, g.clock(p))
	}
	for range 2 + g.IntN(2) {
		p.Processes = append(p.Processes, g.process(p))
	}
	names := pick(g, []int{0}, []int{0}, []int{0}, []int{0}, []int{0, 1, 2})
	limited := p.Class != calm || g.chance(0.3)
	for i := range 2 + g.IntN(4) {
		p.Workers = append(p.Workers, g.worker(p, i, names, limited))
	}
	if p.Class != calm {
		for range g.IntN(6) {
			p.Faults = append(p.Faults, g.fault(p))
		}
	}
	if h := (generator{rand.New(rand.NewPCG(seed, 0xf0e))}); p.Class != calm && h.chance(0.03) {
		// At some nodes, the lock's name has a key that is no lock.
		for _, node := range h.Perm(p.Nodes)[:1+h.IntN(p.Nodes)] {
			at := h.between(0, p.Length/2)
			p.Faults = append(p.Faults, fleet.Fault{Kind: foreign, At: at, For: h.between(0, p.Length-at), Node: node, Client: -1, Key: "x"})
		}
	}
	sleeps := false // both clocks must not be wrong at the same time
	for i := range p.Faults {
		f := &p.Faults[i]
		if f.Kind == fleet.Sleep || f.Kind == fleet.StepWall {
			if sleeps {
				f.Kind = fleet.Pause
			}
			sleeps = true
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
	p.readers()
	p.detaches()
	p.peers()
	p.slots()
	p.latches()
	p.big()
	p.idles()
	return p
}

// isPlain reports whether a plan has mutexes alone, and few callers of each.
func (p *Plan) isPlain() bool {
	return !p.Readers && !p.Crowd && !p.Detaches && p.Permits+p.Latch.N+len(p.Peers)+len(p.Idles) == 0
}

// thaws makes nodes of some seeds freeze for longer than the TTL. Meanwhile, callers come and give
// up, and other nodes have other faults. Its own generator keeps the other seeds unchanged.
func (p *Plan) thaws() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x7a3))}
	if p.Class == calm || p.Guard || !g.chance(0.04) {
		return
	}
	p.TTL = pick(g, 5*time.Second, 10*time.Second)
	p.NodeTimeout = g.between(30*time.Millisecond, time.Second)
	p.MaxHold = 0
	p.Network.Slow = 0 // the socket buffers of frozen nodes delay messages instead
	at, long := g.between(0, 500*time.Millisecond), p.TTL+g.between(0, p.TTL)
	p.Length = at + long + g.between(0, 500*time.Millisecond)
	p.Faults = nil
	for i, node := range g.Perm(p.Nodes)[:1+g.IntN(p.Nodes)] {
		f := fleet.Fault{Kind: fleet.Freeze, At: at + g.between(0, 50*time.Millisecond), Node: node, Client: -1}
		f.For = long - g.between(0, 50*time.Millisecond)
		if i > 0 {
			f.Kind = pick(g, fleet.Freeze, fleet.Freeze, fleet.Crash, fleet.Cut, fleet.CutBack, fleet.Stall)
		}
		p.Faults = append(p.Faults, f)
	}
	for range g.IntN(3) {
		p.Faults = append(p.Faults, fleet.Fault{Kind: pick(g, fleet.Pause, disconnect, fleet.ForgetScripts), At: g.between(0, p.Length/2), For: g.between(0, p.Length/3),
			Node: g.IntN(p.Nodes), Client: g.IntN(len(p.Processes))})
	}
	names := pick(g, []int{0}, []int{0, 1, 2})
	p.Workers = nil
	for i := range 2 + g.IntN(4) {
		w := g.worker(p, i, names, true)
		for j := range w.Steps {
			s := &w.Steps[j]
			s.After, s.Limit = g.between(0, time.Second), g.between(0, 2*time.Second)
			for u := range s.Hold {
				s.Hold[u].After = g.between(0, 500*time.Millisecond)
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
	if p.Crowd = !p.Guard && g.chance(0.02); !p.Crowd {
		return
	}
	process, name, all := g.IntN(len(p.Processes)), pick(g, 0, 0, 0, 2), g.between(p.Latency, 20*p.Latency)
	for range 8 + g.IntN(5) {
		s := Step{Names: name, After: g.between(0, all)}
		if p.Class != calm || g.chance(0.2) {
			s.Limit = g.between(p.TTL, 6*p.TTL)
		}
		if g.chance(0.1) {
			s.Cancel = g.between(0, 10*all)
		}
		for range g.IntN(3) {
			s.Hold = append(s.Hold, Use{After: g.between(0, 4*p.Latency)})
		}
		p.Workers = append(p.Workers, WorkerPlan{Process: process, Steps: []Step{s}})
	}
}

// silence is how long a call may take. A node may be silent for a NodeTimeout before it answers the
// flight under way, once more before the flight of the call, and each of them again on a new
// connection.
func (p *Plan) silence() time.Duration { return 4 * p.NodeTimeout }

// quarantine is for how long a node is out under the restart guard, at most.
func (p *Plan) quarantine() time.Duration {
	if !p.Guard {
		return 0
	}
	set := p.settings(true)
	return options.Quarantine(&set)
}

func (p *Plan) settings(renew bool) options.Settings {
	set := options.Settings{TTL: p.TTL, NodeTimeout: p.NodeTimeout, Drift: p.Drift, MaxHold: p.MaxHold, Renew: renew}
	if p.Guard {
		set.MaxTTL = p.TTL
	}
	return set
}

func (g generator) clock(p *Plan) fleet.Computer {
	// If more counters are lost than the quorum allows for, tokens depend on the clocks: no node may
	// refuse a client's hint. Clocks that are further apart are in plans with idle times.
	c := fleet.Computer{Rate: 1, Wall: epoch.Add(g.between(-20*time.Second, 20*time.Second))}
	r := p.Drift.Rate / 2
	switch {
	case p.Class == beyond && g.chance(0.3):
		c.Rate = pick(g, 0.3, 1-r, 1+r, 2)
	case g.chance(0.6):
		c.Rate = pick(g, 1-r, 1+r, 1+r)
	}
	return c
}

func (g generator) process(p *Plan) fleet.Computer {
	c := fleet.Computer{Rate: 1, Wall: epoch}
	if g.chance(0.3) && p.Class != beyond && !p.Guard {
		r := p.Drift.Rate / 2
		c.Rate = pick(g, 1-r, 1+r*0.8)
	}
	// If more counters are lost than the quorum allows for, as under the guard, tokens depend on
	// clocks that agree.
	if p.Class != beyond && !p.Guard && g.chance(0.5) {
		c.Wall = c.Wall.Add(g.between(-30*time.Second, 30*time.Second))
		if g.chance(0.1) {
			const year = 365 * 24 * time.Hour
			c.Wall = c.Wall.Add(pick(g, -year, -3*24*time.Hour, 3*24*time.Hour, year))
		}
	}
	return c
}

func (g generator) worker(p *Plan, i int, names []int, limited bool) WorkerPlan {
	w := WorkerPlan{Process: i % len(p.Processes)}
	if g.chance(0.3) {
		w.Process = g.IntN(len(p.Processes))
	}
	crowd := g.chance(0.3) // all come at once
	for range 1 + g.IntN(3) {
		s := Step{After: g.between(0, p.TTL/2), Names: pick(g, names...), Try: g.chance(0.2), NoRenew: g.chance(0.2)}
		if crowd {
			s.After = g.between(0, 4*p.Latency)
		}
		if limited && g.chance(0.7) {
			s.Limit = g.between(p.TTL, 6*p.TTL)
		}
		if limited && g.chance(0.2) {
			s.Cancel = g.between(0, pick(g, p.TTL, 3*p.Latency))
		}
		if limited && g.chance(0.1) {
			s.Told = g.between(1, 2*p.Latency)
		}
		for range g.IntN(4) {
			u := Use{After: g.between(0, p.TTL/8), Extend: g.chance(0.4)}
			if g.chance(0.1) || p.Guard {
				u.After = g.between(0, 2*p.TTL)
			}
			s.Hold = append(s.Hold, u)
		}
		if limited && g.chance(0.05) {
			s.Keep = g.between(1, p.TTL)
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

func (g generator) fault(p *Plan) fleet.Fault {
	f := fleet.Fault{
		At: g.between(0, p.Length*2/3), For: g.between(0, pick(g, p.NodeTimeout, p.TTL, 2*p.TTL)),
		Node: g.IntN(p.Nodes), Client: g.IntN(len(p.Processes)), By: g.between(0, 3*p.TTL),
	}
	f.For = min(f.For, p.Length-f.At)
	f.Kind = pick(g, fleet.Crash, fleet.Crash, fleet.Freeze, fleet.Freeze, fleet.ForgetScripts, fleet.Step, fleet.Cut, fleet.Cut, fleet.CutThere, fleet.CutBack,
		fleet.Stall, fleet.Stall, fleet.Pause, fleet.Pause, fleet.Sleep, die, closes, fleet.StepWall, forge, disconnect, disconnect)
	if g.chance(0.2) {
		f.Client = -1
	}
	if n := p.forgetful(); n > 0 && g.chance(0.4) {
		f.Kind = pick(g, fleet.CrashLoss, fleet.Forget, fleet.Evict, fleet.Evict, fleet.Step)
		f.Node = g.IntN(n)
		name := pick(g, "x", "x", "y")
		f.Key = pick(g, name, name, wire.TokenKey(name), wire.QueueKey(name), wire.EntriesKey(name))
	} else if f.Kind == fleet.Step {
		f.By = -f.By
	}
	if p.Twins && f.Node == p.Nodes-1 {
		f.Node-- // it is not asked
	}
	switch f.Kind {
	case fleet.StepWall:
		f.By = g.between(-10*time.Second, 10*time.Second)
		if p.Class == beyond || p.Guard {
			f.Kind = fleet.Pause
		}
	case fleet.Cut, fleet.CutThere, fleet.CutBack, fleet.Stall:
		return f
	}
	f.Client = max(f.Client, 0)
	return f
}

// restart returns a restart without data, or the promotion of a replica without its master's latest
// writes. Several nodes do so at about the same time: a holder has no chance to renew in between. A
// node may boot with a wrong clock, which a time server then corrects.
func (g generator) restart(p *Plan, node int, at time.Duration) []fleet.Fault {
	near := pick(g, p.TTL/20, p.TTL/20, p.TTL/2)
	f := fleet.Fault{At: at + g.between(0, near), For: g.between(0, near), Kind: pick(g, fleet.CrashLoss, fleet.Failover), Node: node}
	if f.Kind == fleet.CrashLoss {
		booted, wrong := f.At+f.For+time.Microsecond, g.between(-10*time.Minute, 10*time.Minute)
		if g.chance(0.3) {
			return []fleet.Fault{f}
		}
		return []fleet.Fault{f, {At: booted, Kind: fleet.Step, Node: node, By: wrong},
			{At: booted + g.between(1, p.TTL), Kind: fleet.Step, Node: node, By: -wrong}}
	}
	return []fleet.Fault{f, {At: f.At + f.For, Kind: fleet.Forget, Node: node}}
}

// String returns the plan as the head of a trace.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %v, quorum %d of %d, twins %v, TTL %v, node timeout %v, drift %v + %v, max hold %v, guard %v, permits %d, network %+v, length %v\n",
		p.Seed, p.Class, p.Quorum, p.Nodes, p.Twins, p.TTL, p.NodeTimeout, p.Drift.Rate, p.Drift.Floor, p.MaxHold, p.Guard, p.Permits, p.Network, p.Length)
	for i, c := range p.Clocks {
		fmt.Fprintf(&b, "  n%d clock %+v\n", i+1, c)
	}
	for i, x := range p.Processes {
		fmt.Fprintf(&b, "  p%d clock %+v\n", i+1, x)
	}
	for i, x := range p.Workers {
		for _, s := range x.Steps {
			fmt.Fprintf(&b, "  w%d in p%d: %+v\n", i+1, x.Process+1, s)
		}
	}
	if p.Latch.N > 0 {
		fmt.Fprintf(&b, "  latch %+v\n", p.Latch)
	}
	for i := range p.Peers {
		fmt.Fprintf(&b, "  peer%d: %+v\n", i+1, p.Peers[i])
	}
	for i := range p.Faults {
		fmt.Fprintf(&b, "  at %v: %s\n", p.Faults[i].At, describe(&p.Faults[i]))
	}
	for _, x := range p.Idles {
		fmt.Fprintf(&b, "  idle: %+v\n", x)
	}
	return b.String()
}
