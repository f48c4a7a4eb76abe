package coresim

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/proof/fleet"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// names are those of two mutexes and of a semaphore.
var names = [...]string{"x", "y", "s"}

// Events of a schedule that is still not over are too many.
const maxSteps = 400_000

// tier is one run of one plan.
type tier struct {
	plan          *Plan
	world         *fleet.World
	procs         []*process
	locks         [2 * kindsOfLocks]*lock // by kind, and whether they are renewed
	others        map[int]*lock           // by Step.Other
	rests         bool                    // the schedule is over: clocks of nodes may be set back
	calls         []*call
	sent          []sent
	watch         watch
	troubles      []trouble // of process p and node n: p*nodes + n
	traces        bool
	trace         strings.Builder
	violations    []Violation
	probe         *worker
	keptLate      bool          // a late Keep ran while the last caller waited
	fired         int           // timers
	recalls       int           // see Outcome
	base          []fleet.Clock // of each process
	room          *room
	texts         int // detached holds
	takers        int // of those
	attachedHolds int
	latch         history
	peers         []*peer
	former        former
}

// former has rules of earlier editions of the client, with which overload is a collapse: see
// TestFormerRulesCollapse.
type former struct {
	fromQueueing bool // the limit of a batch begins when it is queued, and no reply renews it
	unadmitted   bool // first attempts need no place
}

// sent is a call on its way.
type sent struct {
	lane *lane
	item *item
}

// trouble has the faults between a process and a node.
type trouble struct {
	now  int           // faults
	last time.Duration // when something was wrong last
}

// Violation is an invariant that did not hold.
type Violation struct {
	At        time.Duration
	Invariant string
	Text      string
}

func (v Violation) String() string { return fmt.Sprintf("%s: at %v, %s", v.Invariant, v.At, v.Text) }

// Outcome is the outcome of a run.
type Outcome struct {
	Violations []Violation
	Grants     int
	Handed     int // how many of the grants were handoffs
	Scripts    int
	// Unsent attempts that were dropped together with their releases, counted per node.
	Recalls  int
	Theirs   int           // grants to Redisson's clients
	Attached int           // detached holds that were attached
	Attempts int           // by the calls that were granted the lock
	Waited   time.Duration // by them
	Trace    string
	Hash     uint64 // of the trace, if there is one
}

// newTier returns a tier that is ready to play a plan.
func newTier(p *Plan, traces bool) *tier {
	own := *p
	t := &tier{plan: &own, traces: traces, room: rooms.Get().(*room)}
	c := fleet.Config{Seed: p.Seed, Nodes: p.Clocks, Clients: append(p.Processes[:len(p.Processes):len(p.Processes)], fleet.Computer{Wall: epoch}), Network: p.Network, Calm: p.Length}
	for i := range p.Faults {
		f := &p.Faults[i]
		if f.Kind < die {
			c.Faults = append(c.Faults, *f)
		}
	}
	clients := make([]fleet.Client, 0, len(c.Clients))
	for i := range c.Clients {
		proc := t.newProcess(i)
		t.procs = append(t.procs, proc)
		clients = append(clients, proc)
	}
	for i := range p.Peers {
		peer := t.newPeer(i)
		t.peers, clients, c.Clients = append(t.peers, peer), append(clients, peer), append(c.Clients, fleet.Computer{Wall: epoch})
	}
	for i := range p.Workers {
		t.work(i, p.Workers[i].Process, p.Workers[i].Steps)
	}
	t.troubles = make([]trouble, len(t.procs)*p.Nodes)
	t.sent = t.room.sent
	t.watch.begin(t)
	t.world = fleet.New(c, clients)
	for i := range p.Nodes {
		if n, now := t.world.Node(i); p.Guard { // up for long
			n.Put(now, "quorumlock_age", scriptmodel.Value{Text: fmt.Sprintf("%s:%s 3600000", n.Info.Run, n.Info.History)})
		}
	}
	for i := range t.procs {
		t.base = append(t.base, t.world.Clock(i))
	}
	t.world.Runs, t.world.Ran, t.world.Began = t.watch.before, t.watch.after, t.suffer
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Kind >= die {
			t.world.At(f.At, func() { t.suffer(f, false); t.own(f) })
			if f.Kind == foreign {
				t.world.At(f.At+f.For, func() { t.suffer(f, true); t.vacate(f) })
			}
		}
	}
	t.startLatch()
	return t
}

// run runs a plan to its end.
func run(p *Plan, traces bool) Outcome {
	t := newTier(p, traces)
	t.play()
	t.room.sent = t.sent
	t.room.clear()
	out := Outcome{Violations: t.violations, Grants: t.watch.grants, Handed: t.watch.successors, Attempts: t.watch.attempts, Waited: t.watch.waited, Scripts: t.watch.scripts, Recalls: t.recalls, Theirs: t.theirs(), Attached: t.attachedHolds, Trace: t.trace.String()}
	if traces {
		h := fnv.New64a()
		_, _ = h.Write([]byte(out.Trace))
		out.Hash = h.Sum64()
	}
	return out
}

func (t *tier) work(number, process int, steps []Step) *worker {
	k := &worker{process: t.procs[process], number: number, steps: steps}
	t.procs[process].workers = append(t.procs[process].workers, k)
	return k
}

// play lets everything happen, and looks at it now and then.
func (t *tier) play() {
	const interval = 100 * time.Millisecond
	for !t.over() {
		t.advance(interval)
	}
	t.fair()
	t.probes()
	t.rest()
	t.openLatch()
	t.advance(t.slack() + time.Second)
	if len(t.violations) == 0 {
		t.advance(t.quiet())
		t.empty()
		t.withoutPeers()
		t.placesReturn()
	}
}

func (t *tier) over() bool {
	if len(t.violations) > 0 {
		return true
	}
	if t.world.Now() < t.plan.Length+t.plan.Network.MaxSlow {
		return false
	}
	for _, p := range t.peers {
		if !p.ended {
			return t.late("peer", p.number)
		}
	}
	for _, p := range t.procs {
		for _, k := range p.workers {
			if k.ended || p.dead || p.closed {
				continue
			}
			return t.late("w", k.number)
		}
	}
	return true
}

// late reports whether an actor goes on long after the end of the plan, which is a violation.
func (t *tier) late(who string, number int) bool {
	if t.world.Now() <= t.plan.Length+t.plan.Network.MaxSlow+time.Minute+20*t.plan.TTL {
		return false
	}
	t.violate(inTime, "%s%d does not end", who, number+1)
	return true
}

func (t *tier) advance(d time.Duration) {
	t.world.Run(t.world.Now() + d)
	t.audit()
	if t.world.Steps() > maxSteps {
		t.violate(noStorm, "%d events are too many", t.world.Steps())
	}
}

// offset keeps the times of the machines from 0, which means none.
const offset = time.Second

// timeOf is a client's time as its machines count it.
func (t *tier) timeOf(process int, now fleet.Clock) core.Time {
	boot := now.Boot
	if !hasBootClock(process) {
		boot = time.Duration(now.Wall-t.base[process].Wall) * time.Microsecond
	}
	return core.Time{Mono: now.Mono + offset, Boot: boot + offset}
}

// hasBootClock reports whether a process has a clock that counts suspends and never steps, as on
// Linux.
func hasBootClock(process int) bool { return process%2 == 0 }

func (t *tier) now(process int) core.Time { return t.timeOf(process, t.world.Clock(process)) }

func (t *tier) nodeOf(cell int) int   { return cell % t.plan.Nodes }
func (t *tier) serverOf(cell int) int { return t.server(t.nodeOf(cell)) }

// server is the server at an address.
func (t *tier) server(node int) int {
	if t.plan.Twins && node == t.plan.Nodes-1 {
		return node - 1
	}
	return node
}

func (t *tier) lockOf(s *Step) *lock {
	if s.Other > 0 {
		return t.otherLock(s)
	}
	i := 2 * s.kind()
	if s.NoRenew {
		i++
	}
	if t.locks[i] == nil {
		t.locks[i] = t.newLock(namesOf[s.Names], s.Read, !s.NoRenew)
	}
	return t.locks[i]
}

// otherLock returns a lock with names of its own. Nobody looks at its keys.
func (t *tier) otherLock(s *Step) *lock {
	l := t.others[s.Other]
	if l == nil {
		if t.others == nil {
			t.others = make(map[int]*lock)
		}
		l = t.newLock(namesOf[s.Names], s.Read, !s.NoRenew)
		l.other = "." + itoa(s.Other)
		t.others[s.Other] = l
	}
	return l
}

// namesOf are the names of a step's lock.
var namesOf = [...][]int{{0}, {1}, {0, 1}, {semaphore}, {0, semaphore}, {0, 1, semaphore}}

// kindsOfLocks is the number of kinds: the names, and which of them are shared.
const kindsOfLocks = 4 * len(namesOf)

func (s *Step) kind() int { return 4*s.Names + s.Read }

func itoa(n int) string { return strconv.Itoa(n) }

// callOf returns the call that an owner or a waiter belongs to.
func (t *tier) callOf(who string) *call {
	i := strings.IndexByte(who, ':')
	if i < 0 {
		return nil
	}
	n, digits := 0, 0
	for _, c := range []byte(who[i+1:]) {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
		if digits++; digits > 9 {
			return nil
		}
	}
	if digits == 0 || n >= len(t.calls) || t.calls[n].process.id != who[:i] {
		return nil
	}
	return t.calls[n]
}

func (t *tier) send(l *lane, it *item) (number int) {
	t.sent = append(t.sent, sent{l, it})
	return len(t.sent) - 1
}

// trouble notes that something was wrong between a process and a node.
func (t *tier) trouble(process, node int) {
	t.troubles[process*t.plan.Nodes+node].last = t.world.Now()
}

// suffer records a fault and its effect on clients.
func (t *tier) suffer(f *fleet.Fault, ended bool) {
	t.watch.changes++
	if t.traces {
		t.note("fault, ended %v: %s", ended, describe(f))
	}
	if f.Kind == fleet.Sleep && ended {
		t.procs[f.Client].asked = 0 // its clock shows less than it would
	}
	by := 1
	if ended {
		by = -1
	}
	for p := range t.procs {
		for n := range t.plan.Nodes {
			tr := &t.troubles[p*t.plan.Nodes+n]
			switch f.Kind {
			case fleet.Crash, fleet.CrashLoss, fleet.Failover, fleet.Freeze, fleet.Forget, fleet.Evict, fleet.Step, fleet.ForgetScripts, forge, foreign:
				if f.Node != t.server(n) {
					continue
				}
			case fleet.Pause, fleet.Sleep, fleet.StepWall, die, closes:
				if f.Client != p || isHarmless(f) {
					continue
				}
			default:
				if f.Node >= 0 && f.Node != t.server(n) || f.Client >= 0 && f.Client != p {
					continue
				}
			}
			if f.Kind < die || f.Kind == foreign {
				tr.now += by
			}
			tr.last = t.world.Now()
		}
	}
}

// own has a fault happen that the network does not know.
func (t *tier) own(f *fleet.Fault) {
	if f.Kind == foreign {
		t.occupy(f)
		return
	}
	p := t.procs[f.Client]
	switch f.Kind {
	case die:
		p.dead = true
	case closes:
		t.outside(p, p.close)
	case disconnect:
		t.world.Disconnect(f.Client, f.Node)
	case forge:
		t.forges(f.Node, p)
	}
}

// occupy puts a key that is no lock under a lock's name at a node, unless there is a key already.
func (t *tier) occupy(f *fleet.Fault) {
	n, now := t.world.Node(f.Node)
	if _, taken := n.Peek(now, f.Key); !taken {
		n.Put(now, f.Key, scriptmodel.Value{Text: "mine"})
	}
}

// vacate deletes that key.
func (t *tier) vacate(f *fleet.Fault) {
	n, now := t.world.Node(f.Node)
	if v, _ := n.Peek(now, f.Key); v.Text == "mine" {
		n.Forget(now, f.Key)
	}
}

// occupied reports whether the plan ever puts a non-lock key under a lock's name at some node.
func (t *tier) occupied() bool {
	for i := range t.plan.Faults {
		if t.plan.Faults[i].Kind == foreign {
			return true
		}
	}
	return false
}

// outside runs an action of a process that no event of the fleet causes.
func (t *tier) outside(p *process, do func()) {
	if p.dead || t.world.Paused(p.number) {
		return
	}
	t.world.Call(p.number, func(now fleet.Clock, to *fleet.Effects) {
		p.now, p.to = t.timeOf(p.number, now), to
		do()
		p.run()
	})
}

// forges publishes messages that a node has not sent. The forger may only publish.
func (t *tier) forges(node int, p *process) {
	for _, c := range p.live {
		attempt, _ := c.machine.Attempt()
		for cell := range c.lock.Cells() {
			if t.serverOf(cell) != node {
				continue
			}
			who, name := string(c.caller.Waiter), c.lock.NameOf(cell)
			t.world.Publish(node, p.channel, fmt.Sprintf("handoff %s %d %d %d %s %s", who, attempt, cell, 1<<50, strings.Repeat("0", 40), name))
			t.world.Publish(node, p.channel, "turn "+who+" "+name)
			t.world.Publish(node, p.channel, "next "+who+" "+name)
		}
	}
	t.world.Publish(node, p.channel, "handoff")
	t.world.Publish(node, p.channel, "turn p1:999 x")
}

func (t *tier) note(format string, args ...any) {
	if t.traces {
		fmt.Fprintf(&t.trace, "%14v  ", t.world.Now())
		fmt.Fprintf(&t.trace, format+"\n", args...)
	}
}

// recalled notes that a call that is over has dropped its unsent attempt at a node.
func (t *tier) recalled(c *call, node int) {
	t.recalls++
	if t.traces {
		t.note("p%d recalls the attempt of %s from n%d", c.process.number+1, c.caller.Waiter, node+1)
	}
}

func (t *tier) violate(invariant, format string, args ...any) {
	v := Violation{t.world.Now(), invariant, fmt.Sprintf(format, args...)}
	t.note("VIOLATION of %s: %s", v.Invariant, v.Text)
	t.violations = append(t.violations, v)
}
