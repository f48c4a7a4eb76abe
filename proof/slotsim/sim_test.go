package slotsim

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/options"
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
	trips   []time.Duration // round trips to each node, by all callers: a moving average that starts at 0
	scripts int             // how many the nodes ran
	holds   map[int]*call   // by slot
	tokens  map[int]uint64  // of each slot, the highest
	grants  int
	handed  int
	working int           // workers that are not done
	patient int           // calls of Lock that wait
	busy    time.Duration // when something last happened, or failed, that callers may have had to wait for
	bad     string
	trace   *strings.Builder
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
func (c *call) Cells() int              { return len(c.nodes) }
func (c *call) NameOf(int) string       { return name }
func (c *call) Shares(int) bool         { return false }
func (c *call) live() bool {
	return c.machine.Phase() == core.Holding && c.machine.Remaining(c.time()) > 0
}
func (s *sim) forgetful() int { return 2*s.quorum - len(s.nodes) - 1 }

func newSim(seed uint64, traces bool) *sim {
	s := &sim{Rand: rand.New(rand.NewPCG(seed, 0x510)), holds: map[int]*call{}, tokens: map[int]uint64{}, calls: map[quorumlock.Owner]*call{}}
	if traces {
		s.trace = new(strings.Builder)
	}
	n := pick(s, 1, 2, 3, 3, 3, 4, 5, 5)
	s.quorum = n/2 + 1
	if s.chance(0.4) {
		s.quorum += s.IntN(n - s.quorum + 1)
	}
	for range n {
		s.nodes = append(s.nodes, scriptmodel.New(epoch-1e9))
	}
	s.down, s.trips = make([]time.Duration, n), make([]time.Duration, n)
	s.permits = pick(s, 1, 2, 2, 3, 3, 5, 8, 20)
	s.limit = 50 * time.Millisecond
	s.ttl = pick(s, 300*time.Millisecond, time.Second, 3*time.Second)
	s.lossy = pick(s, 0, 0, 0.01, 0.05)
	return s
}

// run plays the schedule.
func (s *sim) run() {
	workers := 2 + s.IntN(max(8, s.permits+4))
	for i := range workers {
		s.working++
		permits := s.permits
		if s.chance(0.1) {
			permits = 1 + s.IntN(s.permits)
		}
		w := &worker{sim: s, number: i, permits: permits, left: 2 + s.IntN(5)}
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

// maxIdle is how long a slot may be free while somebody waits for it and nothing fails. Who is called may be the last one to know: it
// finds out at its next refresh.
const maxIdle = 2 * time.Second

// idle checks that free slots are granted to patient callers.
func (s *sim) idle() {
	if s.now-s.busy < maxIdle || s.lossy > 0 || s.patient == 0 {
		return
	}
	live := 0
	for _, c := range s.holds {
		if !c.over && c.live() {
			live++
		}
	}
	if live < s.permits {
		s.violate("free slots are granted", "%d of %d slots are taken, and %d callers have waited since %v", live, s.permits, s.patient, s.busy)
	}
}

// left checks that no slot stays taken once all TTLs are over.
func (s *sim) left() {
	s.now += 10*s.ttl + time.Minute
	for i, n := range s.nodes {
		for _, k := range n.Keys(s.nodeTime()) {
			if k != wire.TokenKey(name) && s.bad == "" {
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
		key := pick(s, "", name, wire.SlotsKey(name), wire.TokenKey(name), wire.QueueKey(name), wire.EntriesKey(name))
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

// worker is a caller.
type worker struct {
	*sim
	number, permits, left int
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
	tries   bool
	over    bool
	dead    bool // its process is
	holds   bool
}

func (w *worker) newCall() *call {
	c := &call{worker: w, number: len(w.calls), last: make([]time.Duration, len(w.nodes))}
	set := options.Settings{TTL: w.ttl, NodeTimeout: w.limit, Drift: quorumlock.DefaultDrift(), Renew: !w.chance(0.1)}
	c.terms = wire.TermsOf(&set)
	n := len(w.nodes)
	config := &core.Config{
		Tree: core.Majority(w.quorum, n), TTL: w.ttl, HandTTL: c.terms.HandTTL, NodeTimeout: w.limit, Drift: set.Drift,
		Renew: set.Renew, Tries: w.chance(0.2), Slots: []core.Slots{{First: 0, Cells: n, Permits: w.permits}},
	}
	c.caller = wire.Caller{Waiter: quorumlock.Owner(fmt.Sprintf("p%d:%d", w.number, c.number)), Ticket: int64(epoch.Add(w.now)) + int64(c.number)}
	if c.tries = config.Tries; !c.tries {
		c.caller.Secret = fmt.Sprint("s", c.number)
	}
	c.machine = core.New(config, func(cell int) time.Duration { return w.trips[cell] }, w.Uint64())
	w.calls[c.caller.Waiter] = c
	return c
}

func (c *call) start() {
	if !c.tries {
		c.patient++
	}
	c.busy = max(c.busy, c.now)
	c.step(core.Event{Kind: core.Start})
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
		if outcome != core.Undecided && !c.tries {
			c.patient--
		}
	}
	switch {
	case outcome == core.Acquired:
		c.acquired()
	case outcome == core.Failed:
		c.after(c.between(0, c.ttl/4), c.next)
	case lost != core.NoReason:
		c.unlock()
	}
}

// acquired checks the invariants of a new hold.
func (c *call) acquired() {
	c.slot, c.holds = c.machine.Slot(), true
	c.grants++
	c.note("%s has slot %d, token %d", c.caller.Waiter, c.slot, c.machine.Token())
	if c.slot < 0 || c.slot >= c.permits {
		c.violate("no slot beyond the permits", "%s of %d permits has slot %d", c.caller.Waiter, c.permits, c.slot)
	}
	if other := c.sim.holds[c.slot]; other != nil && !other.over && other.live() {
		c.violate("a slot has one holder", "slot %d is given to %s while %s has it", c.slot, c.caller.Waiter, other.caller.Waiter)
	}
	if token := c.machine.Token(); token <= c.tokens[c.slot] {
		c.violate("tokens rise", "slot %d has token %d after %d", c.slot, token, c.tokens[c.slot])
	}
	c.sim.holds[c.slot], c.tokens[c.slot] = c, c.machine.Token()
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

// send sends a call to its node. Calls of one machine to one node arrive in order, but for renewals.
func (c *call) send(k core.Call) { c.sendAgain(k, c.now+c.ttl) }

func (c *call) sendAgain(k core.Call, until time.Duration) {
	entry := wire.Entry{Waiter: c.caller.Waiter, Ticket: c.caller.Ticket, TTL: c.machine.Life(), Callers: 1}
	script := c.caller.Script(&c.terms, c, &k, c.caller.Owner(k.Attempt, k.Successor), &entry, uint64(epoch.Add(c.now))).OfSemaphore(c.permits, int(k.Slot)).Detached()
	if k.Other > 0 {
		script = script.Only(int(k.Other) - 1)
	}
	node := int(k.Cell)
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
			c.trips[node] += (c.now - sent - c.trips[node]) / 4
		}
		r := c.caller.Read(&k, reply, ended)
		c.step(core.Event{Kind: core.Replied, Call: k, Reply: r})
		if again, times := c.machine.Retry(k, r.Err != nil); times > 0 && c.now < until {
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
	c.after(arrives-c.now, func() {
		if c.down[node] > c.now {
			return
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
	})
}

// tell delivers a message to the waiter that it is for.
func (s *sim) tell(node int, m scriptmodel.Message) {
	if s.chance(s.lossy) {
		return
	}
	what, rest, _ := strings.Cut(m.Text, " ")
	waiter, _, _ := strings.Cut(rest, " ")
	c := s.calls[quorumlock.Owner(waiter)]
	if c == nil {
		return
	}
	e := core.Event{Cell: int32(node)}
	switch what {
	case "handoff":
		h, ok := wire.ParseHandoff(rest)
		if !ok || !h.ProvenBy(c.caller.Secret) {
			s.violate("handoffs are proven", "%s", m.Text)
		}
		e.Kind, e.Attempt, e.Token, e.Slot = core.Handoff, int32(h.Attempt), h.Token, int32(h.Slot)
	case "turn":
		e.Kind = core.Turn
	case "slot":
		e.Kind = core.TurnForSlot
		_, of, _ := strings.Cut(rest, " ")
		slot, _, _ := strings.Cut(of, " ")
		n, err := strconv.Atoi(slot)
		if err != nil {
			s.violate("messages can be read", "%s", m.Text)
		}
		e.Slot = int32(n)
	case "next":
		e.Kind = core.Next
	}
	s.after(s.delay(node), func() { c.step(e) })
}
