package coresim

import (
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/fleet"
)

// lock has the configuration shared by the calls of one kind on the same names.
type lock struct {
	names []int  // of the members
	other string // at the end of its names; empty for the names of the plan
	read  int    // the shared members, as bits
	nodes int
	each  []int // node
	terms wire.Terms
	lock  core.Config
	try   core.Config
}

func (t *tier) newLock(names []int, read int, renew bool) *lock {
	p := t.plan
	set := p.settings(renew)
	l := &lock{names: names, read: read, nodes: p.Nodes, terms: wire.TermsOf(&set)}
	for node := range p.Nodes {
		l.each = append(l.each, node)
	}
	tree := core.Majority(p.Quorum, p.Nodes)
	if p.Nodes == 1 && p.Seed%2 == 0 { // as in package node
		tree = core.Tree{}
	}
	permits := 0
	if slices.Contains(names, semaphore) {
		permits = p.Permits
	}
	if len(names) > 1 {
		members := make([]core.Tree, len(names))
		for i := range members {
			members[i] = tree
		}
		tree, l.terms.Several = core.Every(members), true
	}
	l.lock = core.Config{Tree: tree, TTL: set.TTL, HandTTL: l.terms.HandTTL, NodeTimeout: set.NodeTimeout, MaxHold: set.MaxHold, Drift: set.Drift, Renew: set.Renew}
	if permits > 0 { // the semaphore is the last member
		l.lock.Slots = []core.Slots{{First: (len(names) - 1) * p.Nodes, Cells: p.Nodes, Permits: permits}}
	}
	l.try = l.lock
	l.try.Tries = true
	return l
}

func (l *lock) Cells() int              { return len(l.names) * l.nodes }
func (l *lock) nameNumber(cell int) int { return l.names[cell/l.nodes] }
func (l *lock) NameOf(cell int) string  { return names[l.nameNumber(cell)] + l.other }
func (l *lock) has(name int) bool       { return slices.Contains(l.names, name) }

// call is the shell of one machine.
type call struct {
	process    *process
	worker     *worker
	number     int
	lock       *lock
	tries      bool
	caller     wire.Caller
	entry      wire.Entry             // with the ticket that was sent last
	vague      bool                   // that ticket is from a vague reading of a clock, or follows an unsure one: see timely
	place      *engine.Place[*worker] // in the local queue; nil for TryLock and Attach
	acceptance engine.Acceptance
	machine    *core.Machine
	outcome    core.Outcome
	reason     core.Reason
	armed      time.Duration
	calls      []core.Call // to be sent
	lost       bool        // report it in flush
	freed      bool        // report in flush that the release is decided
	decided    bool        // report it in flush
	busy       bool
	holds      bool
	over       bool          // Unlock has begun
	kept       time.Duration // the nodes keep the lock until then, after the hold's end
	waits      []extension
	loss       core.Reason
	// The last renewal found no quorum. Renewals too late to extend anything do not count.
	behind   bool
	extended time.Duration  // how long the hold was valid at that renewal
	rounds   map[int32]bool // renewals that have been decided
	asked    []*batch       // the batches of the first attempt that may still be recalled

	activity
	beside
}

// extension is an Extend that waits for a round.
type extension struct {
	round int32
	done  func(core.Round)
}

func (t *tier) newCall(k *worker, l *lock, tries bool, ticket int64) *call {
	c := &call{process: k.process, worker: k, lock: l, tries: tries, number: len(t.calls)}
	c.caller = wire.Caller{Waiter: quorumlock.Owner(k.process.id + ":" + itoa(c.number)), Ticket: ticket}
	config := &l.try
	if !tries {
		c.place = k.place
		c.caller.Secret = "s" + itoa(c.number)
		config = &l.lock
	}
	c.machine = core.New(config, c.trip, uint64(k.process.to.Random(1<<40)))
	c.activity.begin(t, c)
	t.calls = append(t.calls, c)
	return c
}

func (c *call) trip(cell int) time.Duration {
	t := c.process.tier
	return c.process.health[t.nodeOf(cell)].Trip(t.plan.NodeTimeout / 24)
}

func (c *call) start() {
	c.process.live = append(c.process.live, c)
	if !c.tries {
		c.listenToPeers(false)
	}
	c.step(core.Event{Kind: core.Start})
}

func (c *call) step(e core.Event) {
	c.apply(e)
	c.flush()
}

// apply is one step. Call flush next.
func (c *call) apply(e core.Event) {
	p := c.process
	was := c.machine.Phase()
	fx := c.machine.Step(p.now, e)
	if now := c.machine.Phase(); !was.LeadsTo(now) || fx.Bug != "" {
		p.tier.violate(inTable, "%s: %v -> %v %s", c.caller.Waiter, was, now, fx.Bug)
	}
	p.tier.stepped(c, was, &e, fx)
	c.calls = append(c.calls, fx.Calls...)
	if fx.Listen {
		c.listen()
	}
	if fx.Lost != core.NoReason {
		c.loss, c.lost = fx.Lost, true
	}
	for _, r := range fx.Rounds {
		c.renewed(r)
	}
	c.freed = c.freed || fx.Released
	if fx.Outcome != core.Undecided {
		c.outcome, c.reason, c.decided = fx.Outcome, fx.Reason, true
		if fx.Outcome == core.Acquired {
			c.grantedBeside()
		}
	}
	c.arm()
}

func (c *call) renewed(r core.Round) {
	for i, w := range c.waits {
		if w.round == r.ID {
			c.waits = append(c.waits[:i], c.waits[i+1:]...)
			w.done(r)
			return
		}
	}
}

func (c *call) arm() {
	wake := c.machine.Wake()
	if wake == 0 || c.armed != 0 && c.armed <= wake {
		return
	}
	c.armed = wake
	c.process.at(wake, (*tick)(c))
}

// tick is the alarm of a machine.
type tick call

func (c *tick) ring(at time.Duration) {
	if c.armed == at && !c.process.closed {
		c.armed = 0
		(*call)(c).step(core.Event{Kind: core.Tick})
	}
}

// flush carries out the effects of the steps, until none is left.
func (c *call) flush() {
	if c.busy {
		return
	}
	c.busy = true
	for len(c.calls) > 0 || c.lost || c.freed || c.decided {
		calls, lost, freed, decided := c.calls, c.lost, c.freed, c.decided
		c.calls, c.lost, c.freed, c.decided = nil, false, false, false
		c.send(calls)
		if lost {
			c.process.forget(c)
			c.worker.lost()
		}
		if decided {
			c.worker.decided(c)
		}
		if freed {
			c.worker.freed()
		}
		if cap(calls) > cap(c.calls) && len(c.calls) == 0 {
			c.calls = calls[:0]
		}
	}
	c.busy = false
}

// send sends calls, those to one node together.
func (c *call) send(calls []core.Call) {
	if len(calls) == 0 {
		return
	}
	p := c.process
	asks := slices.ContainsFunc(calls, func(k core.Call) bool { return k.Do == core.Acquire })
	if asks {
		c.setTicket()
		p.tier.timely(c)
		p.tier.paced(c.worker)
	}
	entry := wire.Entry{Waiter: c.caller.Waiter, Ticket: c.entry.Ticket, Unsure: c.entry.Unsure, TTL: c.machine.Life(), Callers: 1}
	if c.place != nil {
		entry.Callers = c.place.Callers()
	}
	var hints [len(names)]uint64
	c.renew(calls)
	for node := range p.tier.plan.Nodes {
		var b *batch
		for i := range calls {
			k := &calls[i]
			if k.Do.Renews() || p.tier.nodeOf(int(k.Cell)) != node {
				continue
			}
			if b == nil {
				b = p.tier.newBatch(len(c.lock.names))
			}
			hint := &hints[c.lock.nameNumber(int(k.Cell))]
			if *hint == 0 && k.Do == core.Acquire {
				*hint = p.hint(c.lock.nameNumber(int(k.Cell)))
			}
			b.items = append(b.items, item{call: c, k: *k, script: c.script(k, &entry, *hint), entry: entry})
		}
		if b != nil && !c.recall(node, b) {
			c.list(b)
			p.lanes[node*fleet.Lanes].send(b, p.tier.plan.NodeTimeout, c)
		}
	}
	if asks && !entry.Unsure {
		c.settle(entry.Ticket)
	}
}

// list makes b recallable if it is part of a first attempt. It is called before b is sent.
func (c *call) list(b *batch) {
	if k := &b.items[0].k; k.Do == core.Acquire && k.Attempt == 1 {
		b.first = true
		c.asked = append(c.asked, b)
	}
}

// recall runs before b is sent to a node, and works as in package transport. If the first attempt
// is still in the lane's queue, and b releases all of it, recall drops both and returns true. In
// either case, that attempt can no longer be recalled.
func (c *call) recall(node int, b *batch) bool {
	p, l := c.process, &c.process.lanes[node*fleet.Lanes]
	i := slices.IndexFunc(c.asked, func(a *batch) bool { return a.lane == l })
	if i < 0 {
		return false
	}
	a := c.asked[i]
	c.asked = slices.Delete(c.asked, i, i+1)
	if !l.begin(a, b.endsAll(a)) {
		return false
	}
	p.tier.recalled(c, node)
	answers := p.health[node].Answers()
	for _, items := range [][]item{a.items, b.items} {
		for j := range items {
			c.apply(core.Event{Kind: core.Replied, Call: items[j].k, Reply: engine.Recalled(items[j].k.Do, answers)})
		}
	}
	p.landed(node, a)
	return true
}

// endsAll reports whether b releases, or leaves the queue for, everything that a has asked for.
func (b *batch) endsAll(a *batch) bool {
	return slices.EqualFunc(b.items, a.items, func(x, y item) bool {
		return x.k.Cell == y.k.Cell && (x.k.Do == core.Release || x.k.Do == core.ReleaseAndLeave || x.k.Do == core.Leave)
	})
}

func (c *call) script(k *core.Call, entry *wire.Entry, hint uint64) wire.Call {
	s := c.caller.Script(&c.lock.terms, c.lock, k, c.caller.Owner(k.Attempt, k.Successor), entry, hint)
	if permits := c.lock.permits(int(k.Cell)); permits > 0 {
		s = s.OfSemaphore(permits, int(k.Slot))
		if k.Other > 0 {
			s = s.Only(int(k.Other) - 1)
		}
		return s
	}
	return c.opened(k, s)
}

// answered takes the replies of a node.
func (c *call) answered(b *batch) {
	c.asked = slices.DeleteFunc(c.asked, func(a *batch) bool { return a == b })
	for i := range b.items {
		c.replied(&b.items[i])
	}
	c.judged(b)
	// After all replies, because a later one may make a release unnecessary.
	for i := range b.items {
		c.keepPending(&b.items[i])
	}
	c.flush()
	c.process.landed(b.lane.node, b)
}

// replied gives a reply to the machine.
func (c *call) replied(it *item) {
	p, k := c.process, &it.k
	r := c.caller.Read(k, it.reply, p.ended)
	if k.Do == core.Acquire && r.OK {
		p.saw(c.lock.nameNumber(int(k.Cell)), r.Token)
	}
	c.meet(k, &r)
	c.apply(core.Event{Kind: core.Replied, Call: *k, Reply: r})
}

func (c *call) keepPending(it *item) {
	err := it.reply.Err
	if again, twice, is := engine.Pending(c.machine, &it.k, err, err != nil && isDown(err)); is {
		c.process.retries[c.process.tier.nodeOf(int(it.k.Cell))].add(item{call: c, k: again, script: c.script(&again, nil, 0)}, twice, err == nil)
	}
}

func (c *call) listen() {
	p := c.process
	for node := range p.listens {
		if !p.listens[node] {
			p.listens[node] = true
			p.to.Subscribe(p.tier.server(node), p.channel)
		}
	}
	c.listenToPeers(true)
}

func (c *call) notify(by func(cell int) bool) {
	for i := range c.lock.Cells() {
		if by(i) {
			c.apply(core.Event{Kind: core.Turn, Cell: int32(i)})
		}
	}
	c.flush()
}

// alive reports whether the lock is held.
func (c *call) alive() bool {
	return c.machine.Phase() == core.Holding && c.machine.Remaining(c.process.now) > 0
}

// keeps records that the nodes keep the lock for d.
func (c *call) keeps(d time.Duration) {
	now := c.process.now.Mono
	c.kept = now + d
	c.process.former.Keep(uint64(c.number), c.kept, now)
}

// release gives the lock back. worker.freed follows.
func (c *call) release(keep time.Duration) {
	c.over = true
	if keep > 0 {
		c.keeps(keep)
	}
	c.process.forget(c)
	e := core.Event{Kind: core.Unlock, Keep: keep}
	if c.worker.text != nil && c.worker.hold == nil { // it goes back to where it was
		e.Kind = core.GiveBack
	}
	c.leaveOpen(&e)
	c.step(e)
}

// extend renews at once, and has done called with the outcome.
func (c *call) extend(done func(core.Round)) { c.renewNow(core.Extend, done) }

func (c *call) renewNow(kind core.EventKind, done func(core.Round)) {
	before := c.machine.LastRound()
	c.apply(core.Event{Kind: kind})
	if id := c.machine.LastRound(); id != before {
		c.waits = append(c.waits, extension{id, done})
		c.flush()
		return
	}
	c.flush()
	done(core.Round{})
}
