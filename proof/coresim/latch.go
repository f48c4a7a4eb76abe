package coresim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/fleet"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// latchName is the name of the latch.
const latchName = "l"

// retention is how long the nodes keep the latch: by any clock, longer than a schedule.
const retention = 20 * time.Hour

// LatchPlan has the calls on a latch.
type LatchPlan struct {
	N     int         // how many ids open it; 0: there is no latch
	IDs   int         // how many there are
	Calls []LatchCall `shrink:"drop"`
}

// LatchCall is one call on the latch.
type LatchCall struct {
	Process int
	At      time.Duration
	What    latchUse
	ID      int           // of a Done
	Limit   time.Duration // how long the call may take
	Fresh   bool          `shrink:"0"` // the caller has a latch of its own, which has seen nothing
}

// latchUse is a kind of call on a latch.
type latchUse int

const (
	adds latchUse = iota
	waits
	counts
)

func (u latchUse) String() string { return [...]string{"Done", "Wait", "Count"}[u] }

// latches adds a latch to a plan, in one seed of twelve. Its own generator keeps the other seeds
// unchanged.
func (p *Plan) latches() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x1a7c))}
	if p.Guard || !g.chance(1./12) {
		return
	}
	l := &p.Latch
	l.N = pick(g, 1, 2, 3, 3, 4, 5, 10)
	l.IDs = l.N + g.IntN(3)
	calls := 6 + g.IntN(8) + l.N
	switch {
	case p.Class == calm:
		p.Twins = p.Twins || g.chance(0.4) && p.Nodes > 2 && p.Quorum < p.Nodes && p.Permits+len(p.Peers) == 0
	case g.chance(0.6):
		g.views(p)
	}
	for at := g.between(0, p.Length); p.Class == beyond && at < p.Length; at += g.between(0, p.Length) {
		for node := range p.Nodes {
			p.Faults = append(p.Faults, fleet.Fault{Kind: fleet.Forget, At: at + g.between(0, 4*p.Latency), Node: node})
		}
	}
	for range calls {
		c := LatchCall{Process: g.IntN(len(p.Processes)), At: g.between(0, p.Length), What: pick(g, waits, counts, counts, adds, adds, adds), ID: g.IntN(l.IDs),
			Limit: g.between(0, 2*p.TTL), Fresh: g.chance(0.4)}
		if g.chance(0.3) {
			c.Limit = g.between(0, 6*p.Latency) // as the replies come
		}
		if g.chance(0.5) && len(l.Calls) > 0 { // just after another one
			c.At = l.Calls[len(l.Calls)-1].At + g.between(0, 4*p.Latency)
		}
		l.Calls = append(l.Calls, c)
	}
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Key != "" && f.Kind == fleet.Evict && g.chance(0.5) {
			f.Key = pick(g, latchName, wire.LatchKey(latchName))
		}
	}
}

// views makes the processes see different nodes, and others after a while: one alone, with ids that
// no other node may have; all but one; or all. The nodes that may forget do so now and then.
func (g generator) views(p *Plan) {
	slice := p.Length / 6
	for at := time.Duration(0); at < p.Length-slice; at += slice {
		for process := range p.Processes {
			some, view := g.IntN(p.Nodes), g.IntN(5)
			for node := range p.Nodes {
				if view < 2 && node != some || view >= 2 && view < 4 && node == some {
					p.Faults = append(p.Faults, fleet.Fault{Kind: fleet.Cut, At: at, For: slice - time.Millisecond, Client: process, Node: node})
				}
			}
		}
		if n := p.forgetful(); n > 0 && g.chance(0.5) {
			p.Faults = append(p.Faults, fleet.Fault{Kind: pick(g, fleet.CrashLoss, fleet.Forget, fleet.Evict, fleet.Evict), At: at + g.between(0, slice/2), For: g.between(0, slice/4),
				Node: g.IntN(n), Key: pick(g, latchName, latchName, wire.LatchKey(latchName))})
		}
	}
}

// latch is the shell of a latch in a process, as in package client. Its Wait hears no messages.
type latch struct {
	process *process
	terms   *engine.Latch
	found   int
	open    bool
	next    []*latchCall // the calls of Done whose ids the next look adds
	adding  bool
	most    int // the most ids that a call has returned
}

// latchCall is a call on the latch, and its place in the history.
type latchCall struct {
	LatchCall
	latch            *latch
	began            time.Duration // in true time
	called, returned int64         // logical time: distinct within one instant
	over             bool
	size             int
	err              error
	least            int           // the most ids that its latch had returned before
	pause            time.Duration // after the next failure
}

// history has the calls on the latch, and what they share.
type history struct {
	terms  engine.Latch
	shared []*latch // by process
	calls  []*latchCall
	clock  int64
	looks  int
}

var errLimit = errors.New("the limit has passed")

// address is the name of a node in errors.
type address int

func (a address) String() string { return "n" + itoa(int(a)+1) }

// startLatch schedules the calls of the plan.
func (t *tier) startLatch() {
	h, p := &t.latch, t.plan
	if p.Latch.N == 0 {
		return
	}
	h.terms = engine.Latch{Name: latchName, N: p.Latch.N, Need: p.Quorum, Retention: retention}
	for node := range p.Nodes {
		h.terms.Cells = append(h.terms.Cells, engine.LatchCell{Name: latchName, Node: address(node)})
	}
	for _, proc := range t.procs {
		h.shared = append(h.shared, &latch{process: proc, terms: &h.terms})
	}
	for _, c := range p.Latch.Calls {
		t.world.At(c.At, func() { t.callLatch(c) })
	}
}

// callLatch makes a call on the latch; nil if the process cannot.
func (t *tier) callLatch(of LatchCall) (c *latchCall) {
	h := &t.latch
	l := h.shared[of.Process]
	if of.Fresh {
		l = &latch{process: l.process, terms: &h.terms}
	}
	t.outside(l.process, func() {
		if l.process.closed {
			return
		}
		h.clock++
		c = &latchCall{LatchCall: of, latch: l, began: t.world.Now(), called: h.clock, least: l.most, pause: 50 * time.Millisecond}
		h.calls = append(h.calls, c)
		l.process.after(of.Limit, func() { c.end(0, errLimit) })
		c.ask()
	})
	return c
}

// ask is one try of a call.
func (c *latchCall) ask() {
	l := c.latch
	switch {
	case c.over || l.process.closed:
	case c.What == adds:
		l.next = append(l.next, c)
		if !l.adding {
			l.addNext()
		}
	case l.open:
		c.end(l.terms.N, nil)
	case c.What == waits:
		l.look(wire.MakeLatch, nil, c.looked)
	default:
		l.look(wire.ReadLatch, nil, c.looked)
	}
}

// addNext adds the ids of all calls of Done that wait, in one look.
func (l *latch) addNext() {
	calls := l.next
	l.next, l.adding = nil, len(calls) > 0
	if !l.adding {
		return
	}
	var ids []string
	for _, c := range calls {
		ids = append(ids, string(rune(firstID+c.ID)))
	}
	slices.Sort(ids)
	l.look(wire.MakeLatch, slices.Compact(ids), func(size int, err error) {
		for _, c := range calls {
			c.looked(size, err)
		}
		l.addNext()
	})
}

// looked is called with the outcome of a look for the call.
func (c *latchCall) looked(size int, err error) {
	p := c.latch.process
	around := func(d time.Duration) { p.after(d/2+time.Duration(p.to.Random(int64(d))), c.ask) }
	final := errors.Is(err, quorumlock.ErrLatchForgotten) || wire.IsWrongUse(err) && !errors.Is(err, quorumlock.ErrNoQuorum)
	switch {
	case c.over:
	case final || c.What == counts || err == nil && (c.What == adds || size == c.latch.terms.N):
		c.end(size, err)
	case err == nil:
		c.pause = 50 * time.Millisecond
		around(3 * time.Second)
	default:
		around(c.pause)
		c.pause = min(2*c.pause, time.Second)
	}
}

// look is a look at the latch, under way.
type look struct {
	*engine.Look
	latch *latch
	began time.Duration // in true time
	round int
	done  func(size int, err error)
}

// look adds ids at all nodes, and finds the number of ids at a quorum of them.
func (l *latch) look(mode wire.LatchMode, ids []string, done func(size int, err error)) {
	t := l.process.tier
	t.latch.looks++
	k := &look{engine.NewLook(l.terms, mode, ids, l.found, "look"+itoa(t.latch.looks)), l, t.world.Now(), 0, done}
	k.ask()
}

// ask sends the requests of a round.
func (k *look) ask() {
	p := k.latch.process
	// Two rounds for each number of ids to read, and for each of three attempts; the rest is slack.
	if k.round++; k.round > 16 {
		p.tier.violate(inTime, "p%d looks at the latch without an end", p.number+1)
		return
	}
	for cell := range k.latch.terms.Cells {
		b := p.tier.newBatch(1)
		b.items = append(b.items, item{script: k.Request(cell)})
		p.lanes[cell*fleet.Lanes].send(b, p.tier.plan.NodeTimeout, &lookAt{k, cell, k.round})
	}
}

// lookAt gets the reply of a cell in a round.
type lookAt struct {
	*look
	cell, of int
}

func (a *lookAt) answered(b *batch) {
	k := a.look
	if a.of != k.round || k.latch.process.closed || !k.Answer(a.cell, b.items[0].reply) {
		return // the round is over, or goes on
	}
	if k.Next() {
		k.ask()
		return
	}
	k.round = 0
	size, err := k.End()
	if err == nil {
		k.latch.open = k.latch.open || size == k.latch.terms.N
		k.latch.found = max(k.latch.found, k.Found())
		k.latch.process.tier.checkSize(k.began, size)
	}
	k.done(size, err)
}

// end ends a call, and checks its result.
func (c *latchCall) end(size int, err error) {
	p, h, t := c.latch.process, &c.latch.process.tier.latch, c.latch.process.tier
	if c.over || p.closed || p.dead {
		return
	}
	h.clock++
	c.over, c.size, c.err, c.returned = true, size, err, h.clock
	if t.traces {
		t.note("%v", c)
	}
	switch {
	case errors.Is(err, quorumlock.ErrLatchForgotten):
		if !t.forgets(0) {
			t.violate(notForgotten, "%v", c)
		}
	case err == errLimit:
		soon, late := 20*time.Millisecond+40*t.plan.Latency, 500*time.Millisecond+8*t.plan.NodeTimeout
		if c.What != waits && (t.plan.Class == calm && c.Limit > soon || c.Limit > late && t.wellSince(p.number, c.began)) {
			t.violate(nothingFails, "%v", c)
		}
	case err != nil && t.wellSince(p.number, c.began):
		t.violate(minority, "%v, and a quorum is well", c)
	case err == nil && c.What != adds:
		if size < c.least {
			t.violate(oneSet, "the latch of this caller had %d ids: %v", c.least, c)
		}
		c.latch.most = max(c.latch.most, size)
	case err == nil:
		if has, need := t.having()[c.ID], t.plan.Quorum-t.forgot(c.began); has < need {
			t.violate(quorumHas, "%d nodes have the id, not %d: %v", has, need, c)
		}
	}
}

func (c *latchCall) String() string {
	return fmt.Sprintf("p%d: %v of %d, fresh %v, from %d to %d: %d, %v", c.Process+1, c.What, c.ID, c.Fresh, c.called, c.returned, c.size, c.err)
}

// wellSince reports whether nothing has been wrong between a process and a quorum of the nodes.
func (t *tier) wellSince(process int, since time.Duration) bool {
	well := 0
	for n := range t.plan.Nodes {
		if tr := &t.troubles[process*t.plan.Nodes+n]; tr.now == 0 && tr.last < since {
			well++
		}
	}
	return well >= t.plan.Quorum
}

// checkSize checks the size that a look has found: a quorum has at least so many ids, less the
// nodes that may have lost them.
func (t *tier) checkSize(since time.Duration, size int) {
	need := t.plan.Quorum - t.forgot(since)
	for _, has := range t.having() {
		if has >= need {
			size--
		}
	}
	if size > 0 {
		t.violate(quorumHas, "%d of the ids that a look has counted since %v are at fewer than %d nodes", size, since, need)
	}
}

// forgot returns how many nodes may have lost keys since the given time.
func (t *tier) forgot(since time.Duration) int {
	lost := make(map[int]bool)
	for i := range t.plan.Faults {
		f := &t.plan.Faults[i]
		switch ofLatch := f.Key == latchName || f.Key == wire.LatchKey(latchName); {
		case f.Kind != fleet.CrashLoss && f.Kind != fleet.Forget && !(f.Kind == fleet.Evict && ofLatch):
		case f.At+f.For >= since && f.At <= t.world.Now():
			lost[t.server(f.Node)] = true
		}
	}
	return len(lost)
}

// firstID is the first id, which is a letter.
const firstID = 'a'

// having returns how many nodes have each id, or an open latch.
func (t *tier) having() []int {
	count := make([]int, t.plan.Latch.IDs)
	for i := range t.plan.Nodes {
		if t.server(i) != i {
			continue
		}
		n, now := t.world.Node(i)
		ids, _ := n.Peek(now, wire.LatchKey(latchName))
		state, _ := n.Peek(now, latchName)
		open := slices.ContainsFunc(state.Fields, func(f scriptmodel.Field) bool { return strings.HasSuffix(f.Value, " open") })
		for id := range count {
			if open {
				count[id]++
			}
		}
		for i := 0; i < len(ids.Members) && !open; i++ {
			if m := &ids.Members[i]; m.Name != "" { // "" has the digest
				id, _ := utf8.DecodeRuneInString(m.Name)
				count[id-firstID]++
			}
		}
	}
	return count
}

// openLatch adds all ids in a last process, when all is well, and checks the whole history.
func (t *tier) openLatch() {
	if t.plan.Latch.N == 0 {
		return
	}
	for _, c := range t.latch.calls {
		for p := c.latch.process; !c.over && !p.dead && !p.closed && len(t.violations) == 0; {
			t.advance(100 * time.Millisecond)
		}
	}
	begin := func(what latchUse, id int) *latchCall {
		return t.callLatch(LatchCall{Process: len(t.procs) - 1, What: what, ID: id, Limit: time.Second + 2*t.plan.NodeTimeout})
	}
	end := func(c *latchCall) {
		for !c.over && len(t.violations) == 0 {
			t.world.Run(t.world.Now() + time.Millisecond)
		}
		if c.err != nil || c.What == counts && c.size != t.plan.Latch.N {
			t.violate(waitEnds, "with all nodes well: %v", c)
		}
	}
	var added []*latchCall
	for id := range t.plan.Latch.IDs {
		c := begin(adds, id)
		if added = append(added, c); !t.plan.Big { // a big plan adds all at once
			end(c)
		}
	}
	for _, c := range added {
		end(c)
	}
	end(begin(waits, 0))
	end(begin(counts, 0))
	var calls []fleet.SetCall
	for _, c := range t.latch.calls {
		calls = append(calls, fleet.SetCall{Adds: c.What == adds, ID: c.ID, Size: c.size, Called: c.called, Returned: c.returned, OK: c.over && c.err == nil})
	}
	if t.plan.Class != beyond && len(t.violations) == 0 && !fleet.IsSet(t.plan.Latch.N, calls) {
		t.violate(oneSet, "the calls are not linearizable: %v", t.latch.calls)
	}
}
