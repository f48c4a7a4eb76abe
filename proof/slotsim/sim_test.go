package slotsim

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/quorum/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

const (
	epoch scriptmodel.Time = 1_790_000_000_123_457
	name                   = "x"
)

// sim is one schedule.
type sim struct {
	*rand.Rand
	now     time.Duration
	events  events
	order   int
	nodes   []*scriptmodel.Node
	down    []time.Duration // until when a node does not answer
	quorum  int
	permits int
	ttl     time.Duration
	limit   time.Duration // NodeTimeout
	lossy   float64
	calm    *calm // nil, except in contest
	calls   map[quorumlock.Owner]*call
	health  []*engine.Health // of each node, by all callers
	scripts int              // run by the nodes
	queues  [][]func() bool  // of each node: the calls that it has yet to run, if scripts take time
	holds   map[*call]bool
	tokens  map[string]uint64 // of each mutex and slot, the highest
	grants  int
	handed  int
	working int            // workers that are not done
	waiting map[*call]bool // calls of Lock
	// When something last happened, or failed, that callers may have had to wait for.
	busy  time.Duration
	bad   string
	trace *strings.Builder
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { old := *e; x := old[len(old)-1]; *e = old[:len(old)-1]; return x }

func (s *sim) after(d time.Duration, do func()) {
	s.order++
	heap.Push(&s.events, event{s.now + d, s.order, do})
}

func (s *sim) between(a, b time.Duration) time.Duration {
	return a + time.Duration(s.Int64N(int64(b-a)))
}

func (s *sim) chance(p float64) bool { return s.calm == nil && s.Float64() < p }

func (s *sim) violate(invariant, format string, args ...any) {
	if s.bad == "" {
		s.bad = invariant + ": " + fmt.Sprintf(format, args...)
	}
}

func (s *sim) note(format string, args ...any) {
	if s.trace != nil {
		fmt.Fprintf(s.trace, "%12v  "+format+"\n", append([]any{s.now}, args...)...)
	}
}

func (s *sim) time() core.Time            { return core.Time{Mono: s.now, Boot: s.now} }
func (s *sim) nodeTime() scriptmodel.Time { return epoch.Add(s.now) }
func pick[T any](s *sim, from ...T) T     { return from[s.IntN(len(from))] }
func (s *sim) delay(node int) time.Duration {
	if s.calm != nil {
		d := s.between(s.calm.near, s.calm.far+1)
		if node >= len(s.nodes)-s.calm.slow {
			d += s.calm.lag
		}
		return d
	}
	return s.between(50*time.Microsecond, pick(s, 200*time.Microsecond, time.Millisecond, 3*time.Millisecond))
}
func ended(quorumlock.Owner) bool       { return false }
func run(seed uint64, traces bool) *sim { s := newSim(seed, traces); s.run(); return s }
func (c *call) Cells() int              { return len(c.members) * len(c.nodes) }
func (c *call) NameOf(cell int) string  { return c.of(cell).name }
func (c *call) Shares(cell int) bool    { return c.of(cell).shared }
func (c *call) of(cell int) member      { return c.members[cell/len(c.nodes)] }
func (c *call) live() bool {
	return c.machine.Phase() == core.Holding && c.machine.Remaining(c.time()) > 0
}
func (s *sim) forgetful() int { return 2*s.quorum - len(s.nodes) - 1 }

func newSim(seed uint64, traces bool) *sim {
	s := &sim{Rand: rand.New(rand.NewPCG(seed, 0x510)), holds: map[*call]bool{}, waiting: map[*call]bool{}, tokens: map[string]uint64{}, calls: map[quorumlock.Owner]*call{}}
	if traces {
		s.trace = new(strings.Builder)
	}
	n := pick(s, 1, 2, 3, 3, 3, 4, 5, 5)
	s.quorum = n/2 + 1
	if s.chance(0.4) {
		s.quorum += s.IntN(n - s.quorum + 1)
	}
	for range n {
		s.nodes, s.health = append(s.nodes, scriptmodel.New(epoch-1e9)), append(s.health, &engine.Health{})
	}
	s.down = make([]time.Duration, n)
	s.permits = pick(s, 1, 2, 2, 3, 3, 5, 8, 20)
	s.limit = 50 * time.Millisecond
	s.ttl = pick(s, 300*time.Millisecond, time.Second, 3*time.Second)
	s.lossy = pick(s, 0, 0, 0.01, 0.05)
	return s
}

// run plays the schedule.
func (s *sim) run() {
	several, churns := s.chance(0.4), s.chance(0.3)
	workers := 2 + s.IntN(max(8, s.permits+4))
	for i := range workers {
		s.working++
		permits := s.permits
		if s.chance(0.1) {
			permits = 1 + s.IntN(s.permits)
		}
		slot, writer, reader, other := member{name: name, permits: permits}, member{name: "y"}, member{name: "y", shared: true}, member{name: "z"}
		w := &worker{sim: s, number: i, members: []member{slot}, left: 2 + s.IntN(5)}
		if several {
			w.members = pick(s, []member{slot}, []member{slot, other}, []member{reader, other}, []member{slot, reader}, []member{reader, other, slot},
				[]member{other, writer}, []member{reader}, []member{writer}, []member{other})
		}
		if churns && s.chance(0.5) {
			w.gives = pick(s, ms, 10*ms, 50*ms)
		}
		s.after(s.between(0, pick(s, time.Millisecond, s.ttl)), w.next)
	}
	for range s.IntN(5) {
		s.after(s.between(0, 2*s.ttl), s.fault)
	}
	last := 60*s.ttl + 60*time.Second
	for len(s.events) > 0 && s.bad == "" {
		s.play()
		if s.now > last {
			s.violate("everybody acquires", "%d workers wait after %v", s.working, s.now)
		}
		s.idle()
	}
	s.left()
}

// play plays the next event.
func (s *sim) play() {
	e := heap.Pop(&s.events).(event)
	s.now = e.at
	e.do()
}

// maxIdle is how long a slot may be free while a caller waits for it and nothing fails. A called
// waiter may be the last one to learn of it: it finds out at its next refresh.
const maxIdle = 2 * time.Second

// idle checks that the first patient caller, the first in all its queues, gets its lock if it is
// free.
func (s *sim) idle() {
	if s.now-s.busy < maxIdle || s.lossy > 0 {
		return
	}
	var first *call
	for c := range s.waiting {
		if first == nil || c.caller.Ticket < first.caller.Ticket {
			first = c
		}
	}
	if first != nil && !slices.ContainsFunc(first.members, s.isTaken) {
		s.violate("what is free is granted", "%s has waited since %v for %v, which is free", first.caller.Waiter, s.busy, first.members)
	}
}

// isTaken reports whether no other call can have a member.
func (s *sim) isTaken(m member) bool {
	count := 0
	for c := range s.holds {
		for _, o := range c.members {
			if c.live() && o.name == m.name && !(m.shared && o.shared) {
				count++
			}
		}
	}
	return count >= max(m.permits, 1)
}

// left checks that no slot stays taken once all TTLs are over.
func (s *sim) left() {
	s.now += 10*s.ttl + time.Minute
	for i, n := range s.nodes {
		for _, k := range n.Keys(s.nodeTime()) {
			if !slices.Contains([]string{wire.TokenKey(name), wire.TokenKey("y"), wire.TokenKey("z")}, k) && s.bad == "" {
				s.violate("nothing stays", "n%d has %s", i+1, k)
			}
		}
	}
}

func (s *sim) fault() {
	i := s.IntN(len(s.nodes))
	s.busy = max(s.busy, s.now+s.ttl)
	if f := s.forgetful(); f > 0 && s.chance(0.5) {
		i = s.IntN(f)
		lock := pick(s, name, name, "y", "z")
		key := pick(s, "", lock, wire.SlotsKey(lock), wire.TokenKey(lock), wire.QueueKey(lock), wire.EntriesKey(lock))
		s.note("n%d forgets %q", i+1, key)
		if key == "" {
			s.nodes[i].Flush()
		} else {
			s.nodes[i].Forget(s.nodeTime(), key)
		}
		return
	}
	s.down[i] = s.now + s.between(0, 2*s.ttl)
	s.busy = max(s.busy, s.down[i]+s.ttl)
	s.note("n%d is down until %v", i+1, s.down[i])
}

// member is a lock that a worker takes, alone or with others: a mutex, or a share of it, or a slot.
type member struct {
	name    string
	shared  bool
	permits int // 0 if it is no semaphore
}

// conflicts reports whether two members exclude each other. The slots count if they are semaphores.
func (m member) conflicts(other member, slot, otherSlot int) bool {
	return m.name == other.name && !(m.shared && other.shared) && (m.permits == 0 || slot == otherSlot)
}

// worker is a caller.
type worker struct {
	*sim
	number  int
	members []member // one semaphore at most
	left    int
	gives   time.Duration // it gives up after this long at most; 0 if it is patient
	pace    core.Pace     // every worker is a process of its own
	grants  int
}

// permits returns how many slots its semaphore has; 0 if it takes none.
func (w *worker) permits() (permits int) {
	for _, m := range w.members {
		permits = max(permits, m.permits)
	}
	return permits
}

func (w *worker) next() {
	if w.left == 0 {
		w.working--
		return
	}
	w.left--
	w.newCall().start()
}

// call is the shell of one machine.
type call struct {
	*worker
	number  int
	caller  wire.Caller
	terms   wire.Terms
	machine *core.Machine
	armed   time.Duration
	last    []time.Duration // when the last call to a node arrives there
	slot    int
	// The cells whose first attempt was released before the node came to it.
	unsent []bool
	tries  bool
	over   bool
	dead   bool // its process is
	holds  bool
}

func (w *worker) newCall() *call {
	c := &call{worker: w, number: len(w.calls), last: make([]time.Duration, len(w.nodes))}
	set := options.Settings{TTL: w.ttl, NodeTimeout: w.limit, Drift: quorumlock.DefaultDrift(), Renew: !w.chance(0.1)}
	c.terms = wire.TermsOf(&set)
	c.terms.Several = len(w.members) > 1
	n := len(w.nodes)
	config := &core.Config{
		Tree: core.Majority(w.quorum, n), TTL: w.ttl, HandTTL: c.terms.HandTTL, NodeTimeout: w.limit, Drift: set.Drift,
		Renew: set.Renew, Tries: w.chance(0.2),
	}
	trees := make([]core.Tree, len(w.members))
	for i, m := range w.members {
		trees[i] = config.Tree
		if m.permits > 0 {
			config.Slots = append(config.Slots, core.Slots{First: i * n, Cells: n, Permits: m.permits})
		}
	}
	if len(trees) > 1 {
		config.Tree = core.Every(trees)
	}
	c.caller = wire.Caller{Waiter: quorumlock.Owner(fmt.Sprintf("p%d:%d", w.number, c.number)), Ticket: int64(epoch.Add(w.now)) + int64(c.number)}
	if c.tries = config.Tries; !c.tries {
		c.caller.Secret = fmt.Sprint("s", c.number)
	}
	c.machine = core.New(config, func(cell int) time.Duration { return w.health[cell%n].Trip(0) }, w.Uint64())
	w.calls[c.caller.Waiter] = c
	return c
}

func (c *call) start() {
	wait := time.Duration(0)
	if c.gives > 0 {
		wait = c.between(0, c.gives)
		if trip, best := engine.Nearest(c.health); !c.pace.Admits(c.now, wait, trip, best) {
			c.after(wait, c.next)
			return
		}
	}
	if !c.tries {
		c.waiting[c] = true
	}
	c.busy = max(c.busy, c.now)
	c.step(core.Event{Kind: core.Start})
	if wait > 0 {
		c.after(wait, func() { c.step(core.Event{Kind: core.Cancel}) })
	}
	if c.chance(0.15) {
		c.after(c.between(0, c.ttl), func() { c.step(core.Event{Kind: core.Cancel}) })
	}
}

func (c *call) step(e core.Event) {
	if c.dead {
		return
	}
	fx := c.machine.Step(c.time(), e)
	calls := append([]core.Call(nil), fx.Calls...)
	outcome, lost := fx.Outcome, fx.Lost
	for i := range calls {
		c.send(calls[i])
	}
	if wake := c.machine.Wake(); wake != 0 && (c.armed == 0 || wake < c.armed) {
		c.armed = wake
		c.after(max(wake-c.now, 0), func() {
			if c.armed == wake {
				c.armed = 0
				c.step(core.Event{Kind: core.Tick})
			}
		})
	}
	if outcome != core.Undecided || lost != core.NoReason {
		c.busy = max(c.busy, c.now)
		delete(c.waiting, c)
	}
	if outcome != core.Undecided && c.calm != nil {
		c.pace = core.Pace{}
		if outcome == core.Failed {
			c.pace = core.LostAt(c.now)
		}
	}
	switch {
	case outcome == core.Acquired:
		c.acquired()
	case outcome == core.Failed && c.calm != nil:
		c.next()
	case outcome == core.Failed:
		c.after(c.between(0, c.ttl/4), c.next)
	case lost != core.NoReason:
		c.unlock()
	}
}

// acquired checks the invariants of a new hold.
func (c *call) acquired() {
	c.slot, c.holds = c.machine.Slot(), true
	c.sim.grants++
	c.worker.grants++
	c.note("%s has slot %d, token %d", c.caller.Waiter, c.slot, c.machine.Token())
	if permits := c.permits(); c.slot < 0 || c.slot >= max(permits, 1) {
		c.violate("no slot beyond the permits", "%s of %d permits has slot %d", c.caller.Waiter, permits, c.slot)
	}
	for _, m := range c.members {
		for other := range c.sim.holds {
			for _, o := range other.members {
				if other.live() && m.conflicts(o, c.slot, other.slot) {
					c.violate("a lock has one holder", "%s, slot %d, is given to %s while %s has it", m.name, c.slot, c.caller.Waiter, other.caller.Waiter)
				}
			}
		}
		key, token := fmt.Sprint(m.name, " ", c.slot), c.machine.Token()
		if m.permits == 0 {
			key = m.name
		}
		if m.shared {
			continue
		}
		if token <= c.tokens[key] {
			c.violate("tokens rise", "%s has token %d after %d", key, token, c.tokens[key])
		}
		c.tokens[key] = token
	}
	c.sim.holds[c] = true
	if _, successor := c.machine.Attempt(); successor {
		c.handed++
	}
	if c.chance(0.05) { // its process dies
		c.note("%s dies", c.caller.Waiter)
		c.dead, c.busy = true, max(c.busy, c.now+c.ttl)
		c.after(c.between(0, c.ttl), c.next)
		return
	}
	if c.calm != nil {
		c.after(c.calm.hold, c.unlock)
		return
	}
	c.after(c.between(0, pick(c.sim, time.Millisecond, c.ttl/10, c.ttl)), c.unlock)
}

func (c *call) unlock() {
	if c.over || c.dead {
		return
	}
	delete(c.sim.holds, c)
	c.over, c.busy = true, max(c.busy, c.now)
	if c.machine.Slot() != c.slot {
		c.violate("the slot is stable", "%s had slot %d, and has %d", c.caller.Waiter, c.slot, c.machine.Slot())
	}
	c.note("%s unlocks slot %d", c.caller.Waiter, c.slot)
	c.step(core.Event{Kind: core.Unlock})
	if c.calm != nil {
		c.next()
		return
	}
	c.after(c.between(0, c.ttl/4), c.next)
}

var errLost = errors.New("no answer")

// send sends a call to its node. Calls of one machine to one node arrive in order, except renewals.
func (c *call) send(k core.Call) { c.sendAgain(k, c.now+c.ttl) }

func (c *call) sendAgain(k core.Call, until time.Duration) {
	entry := wire.Entry{Waiter: c.caller.Waiter, Ticket: c.caller.Ticket, TTL: c.machine.Life(), Callers: 1}
	script := c.caller.Script(&c.terms, c, &k, c.caller.Owner(k.Attempt, k.Successor), &entry, uint64(epoch.Add(c.now))).Detached()
	if permits := c.of(int(k.Cell)).permits; permits > 0 {
		script = script.OfSemaphore(permits, int(k.Slot))
	}
	if k.Other > 0 {
		script = script.Only(int(k.Other) - 1)
	}
	node := int(k.Cell) % len(c.nodes)
	arrives := c.now + c.delay(node)
	if !k.Do.Renews() {
		arrives = max(arrives, c.last[node])
		c.last[node] = arrives
	}
	lost, unheard := c.chance(c.lossy), c.chance(c.lossy)
	sent, deadline := c.now, c.now+c.limit
	answered := false
	answer := func(reply wire.Reply) {
		if answered || c.dead {
			return
		}
		answered = true
		if reply.Err == nil {
			c.health[node].Answered(c.now-sent, c.now)
		}
		r := c.caller.Read(&k, reply, ended)
		c.step(core.Event{Kind: core.Replied, Call: k, Reply: r})
		if again, _, is := engine.Pending(c.machine, &k, r.Err, true); is && c.now < until {
			c.after(50*time.Millisecond, func() {
				if !c.dead {
					c.sendAgain(again, until)
				}
			})
		}
	}
	c.after(deadline-c.now, func() { answer(wire.Reply{Err: errLost}) })
	if lost {
		return
	}
	run := func() (took bool) {
		if c.down[node] > c.now {
			return false
		}
		if c.recalls(&k) {
			answered = true
			c.after(0, func() { c.recalled(k) })
			return false
		}
		c.scripts++
		reply, told := c.nodes[node].Run(c.nodeTime(), script)
		c.note("n%d: %v %v: %v %v", node+1, c.caller.Waiter, script.Args(), reply.Boxed().Value, reply.Err)
		if reply.Err != nil {
			c.violate("no script fails", "n%d: %v", node+1, reply.Err)
		}
		for _, m := range told {
			c.tell(node, m)
		}
		if !unheard {
			c.after(c.delay(node), func() { answer(reply) })
		}
		return true
	}
	c.after(arrives-c.now, func() { c.serve(node, run) })
}

// recalls reports whether a call is not sent: the first attempt of a caller that left before a busy
// node came to it, or its release.
func (c *call) recalls(k *core.Call) bool {
	if c.calm == nil || c.calm.each == 0 {
		return false
	}
	if k.Do == core.Acquire && k.Attempt == 1 && c.machine.Phase() == core.Over {
		if c.unsent == nil {
			c.unsent = make([]bool, c.Cells())
		}
		c.unsent[k.Cell] = true
	}
	return c.unsent != nil && c.unsent[k.Cell]
}

// recalled takes the answer to a call that was not sent.
func (c *call) recalled(k core.Call) {
	c.step(core.Event{Kind: core.Replied, Call: k, Reply: engine.Recalled(k.Do, true)})
}

// serve runs a call when its node has run those before it.
func (s *sim) serve(node int, run func() (took bool)) {
	if s.calm == nil || s.calm.each == 0 {
		run()
		return
	}
	s.queues[node] = append(s.queues[node], run)
	if len(s.queues[node]) == 1 {
		s.serveNext(node)
	}
}

// serveNext runs the first call in the queue of a node, which stays there as long as it takes.
func (s *sim) serveNext(node int) {
	q := s.queues[node]
	for len(q) > 0 && !q[0]() {
		q = q[1:]
	}
	if s.queues[node] = q; len(q) > 0 {
		s.after(s.calm.each, func() {
			s.queues[node] = s.queues[node][1:]
			s.serveNext(node)
		})
	}
}

// tell delivers a message to its waiter.
func (s *sim) tell(node int, m scriptmodel.Message) {
	if s.chance(s.lossy) {
		return
	}
	said, ok := engine.ParseMessage(m.Text) // others are for Redisson
	c := s.calls[said.Waiter]
	if !ok || c == nil {
		return
	}
	cell := slices.IndexFunc(c.members, func(m member) bool { return m.name == said.Lock })*len(s.nodes) + node
	e, ok := said.Event(cell, c.caller.Secret)
	if !ok {
		s.violate("handoffs are proven", "%s", m.Text)
	}
	s.after(s.delay(node), func() { c.step(e) })
}
