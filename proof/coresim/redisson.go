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

// redisson carries out the decisions about Redisson's clients, as in package client. Only the
// processes of plans with peers have one: in other plans there are no windows and no probes.
type redisson struct {
	engine.Redisson[site, *listening]
	met   map[*lock]time.Duration
	timer bool // is set
	told  bool // tellWaiters is scheduled
}

// site is a lock's name at a node.
type site struct{ node, name int }

// listening is a subscription to the releases of peers.
type listening struct {
	waiters []listener
	nudged  bool // a waiter that is not first in the queue looks later
}

type listener struct {
	*call
	cell int
}

// beside is a call's part of this.
type beside struct {
	opens  bool  // its releases have a window
	window int64 // in ms
	tried  *engine.Peers[*listening]
	looks  map[int32]bool // cells with a scheduled look
}

// windowOwner is the owner of the entry that keeps a window free. It is that of no call.
func (p *process) windowOwner() quorumlock.Owner { return quorumlock.Owner(p.id + ":9999999999") }

func (c *call) siteOf(cell int) site {
	return site{c.process.tier.nodeOf(cell), c.lock.nameNumber(cell)}
}

func (c *call) sites() []site {
	all := make([]site, c.lock.Cells())
	for i := range all {
		all[i] = c.siteOf(i)
	}
	return all
}

// meet records a refusal that names a peer.
func (c *call) meet(k *core.Call, r *core.Reply) {
	p := c.process
	if p.redisson == nil || p.closed || k.Do != core.Acquire || r.OK || r.Free || !wire.IsRedisson(r.Holder) || c.lock.permits(int(k.Cell)) > 0 {
		return
	}
	s := p.redisson
	met := s.met[c.lock]
	ofMutexes := slices.DeleteFunc(c.sites(), func(s site) bool { return s.name == semaphore })
	known := s.Known()
	silent := s.Observed(p.now.Mono, ofMutexes, c.siteOf(int(k.Cell)), &met, r.TTL)
	s.met[c.lock] = met
	if s.Known() > known && !s.told {
		s.told = true
		p.after(engine.TellAfter, p.tellWaiters)
	}
	if !s.timer {
		s.timer = true
		p.after(engine.PeerMemory, func() { p.forgetPeers(false) })
	}
	if silent && c.place != nil && r.Position <= 1 && !c.looks[k.Cell] {
		if c.looks == nil {
			c.looks = make(map[int32]bool)
		}
		c.looks[k.Cell] = true
		pause := engine.PollInterval/2 + time.Duration(c.machine.Draw(int(engine.PollInterval)))
		cell := k.Cell
		p.after(pause, func() {
			delete(c.looks, cell)
			c.step(core.Event{Kind: core.Turn, Cell: cell})
		})
	}
}

// tellWaiters makes calls listen to peers that became known after the calls began to wait.
func (p *process) tellWaiters() {
	p.redisson.told = false
	for _, c := range p.live {
		if phase := c.machine.Phase(); !c.tries && (phase == core.Yielding || phase == core.Waiting) {
			c.listenToPeers(true)
		}
	}
}

// listenToPeers registers a call for the releases of the known peers at its cells. A first attempt
// only joins existing subscriptions.
func (c *call) listenToPeers(waits bool) {
	p := c.process
	if p.redisson == nil || p.closed {
		return
	}
	for i, at := range c.sites() {
		s := p.redisson.At(at)
		if s == nil || !waits && s.Driver == nil {
			continue
		}
		if s.Driver == nil {
			s.Driver = &listening{}
			p.to.Subscribe(at.node, unlockChannels[at.name])
		}
		if one := (listener{c, i}); !slices.Contains(s.Driver.waiters, one) {
			s.Driver.waiters = append(s.Driver.waiters, one)
		}
	}
}

// forgetPeers ends the subscriptions at cells without a recent peer, or all of them.
func (p *process) forgetPeers(all bool) {
	if p.redisson == nil {
		return
	}
	gone, next := p.redisson.Forget(p.now.Mono, all)
	for range gone {
		for node := range p.tier.plan.Nodes {
			for name, channel := range unlockChannels {
				if !p.wants(site{node, name}) {
					p.to.Unsubscribe(node, channel)
				}
			}
		}
	}
	if p.redisson.timer = next > 0; next > 0 {
		p.after(next, func() { p.forgetPeers(false) })
	}
}

func (p *process) wants(at site) bool {
	s := p.redisson.At(at)
	return s != nil && s.Driver != nil
}

// overlooks reports whether peers have had a name, and waiting calls of the process do not listen
// yet: it has not observed a peer lately, or only just.
func (p *process) overlooks(name int) bool {
	has, observed := false, false
	for _, o := range p.tier.peers {
		for _, s := range o.cells {
			if s.name == name && o.moves > 0 {
				has, observed = true, observed || p.redisson.At(s) != nil
			}
		}
	}
	return has && (!observed || p.redisson.told)
}

// unlockChannels are Redisson's channels, by name.
var unlockChannels = [...]string{wire.UnlockChannel(names[0]), wire.UnlockChannel(names[1]), wire.UnlockChannel(names[2])}

// ofPeers handles an event of a subscription to Redisson's channels, and reports whether it is one.
func (p *process) ofPeers(e *fleet.Event) bool {
	if p.redisson == nil {
		return false
	}
	if e.Kind == fleet.Unsubscribed { // from all channels of the node, or from one
		node, failed := e.Node, e.Channel
		p.after(20*time.Millisecond, func() {
			for name, channel := range unlockChannels {
				if (failed == "" || failed == channel) && p.wants(site{node, name}) {
					p.to.Subscribe(node, channel)
				}
			}
		})
	}
	name := slices.Index(unlockChannels[:], e.Channel)
	if at := (site{e.Node, name}); name < 0 || e.Kind == fleet.Unsubscribed {
		return name >= 0
	} else if p.wants(at) {
		p.heardPeer(at, e.Text)
	} else {
		p.to.Unsubscribe(e.Node, e.Channel)
	}
	return true
}

// heardPeer handles a message on Redisson's channel, or "" when messages may have been missed.
func (p *process) heardPeer(at site, message string) {
	s := p.redisson.At(at)
	if !s.Heard(p.now.Mono, message) {
		return
	}
	l := s.Driver
	var foremost engine.Foremost[listener]
	l.waiters = slices.DeleteFunc(l.waiters, func(w listener) bool { return w.machine.Phase() >= core.Holding })
	var asking []listener
	for _, w := range l.waiters {
		attempt, _ := w.machine.Attempt()
		switch position := w.machine.Cells[w.cell].Position; {
		case attempt <= 1 && w.machine.Phase() < core.Yielding: // it has no position yet
			asking = append(asking, w)
		default:
			foremost.Add(w, w.caller.Ticket, position)
		}
	}
	for _, w := range asking {
		w.step(core.Event{Kind: core.Turn, Cell: int32(w.cell)})
	}
	if !foremost.Found {
		return
	}
	w, pause := foremost.Waiter, foremost.LooksAfter()
	switch {
	case pause == 0:
		w.freedByPeer(w.cell)
	case !l.nudged:
		l.nudged = true
		p.after(pause, func() {
			l.nudged = false
			w.step(core.Event{Kind: core.Turn, Cell: int32(w.cell)})
		})
	}
}

// freedByPeer handles the release of a cell by a peer.
func (c *call) freedByPeer(cell int) {
	p, alone, asks := c.process, false, false
	if c.lock.Cells() > 1 && c.lock.lock.Tree.NeedsEach() {
		begun := slices.ContainsFunc(c.machine.Cells, func(d core.Cell) bool { return d.HandedOver() })
		alone, asks = p.redisson.At(c.siteOf(cell)).Freed(p.now.Mono, c, begun, c.machine.Draw)
	}
	for i := range c.lock.Cells() {
		if asks || !alone && i == cell {
			c.apply(core.Event{Kind: core.Turn, Cell: int32(i)})
		}
	}
	c.flush()
	if alone && !asks {
		b := p.tier.newBatch(1)
		handOver := wire.Release(c.lock.NameOf(cell), p.windowOwner(), 1).Open(0, p.windowOwner())
		b.items = append(b.items, item{call: c, k: core.Call{Do: core.Release, Cell: int32(cell)}, script: handOver})
		p.lanes[p.tier.nodeOf(cell)*fleet.Lanes].send(b, p.tier.plan.NodeTimeout, nobody{})
	}
}

// nobody ignores an outcome.
type nobody struct{}

func (nobody) answered(*batch) {}

// handedBeside prepares the machine for a handoff of a cell: peers may hold others.
func (c *call) handedBeside(cell int) {
	s := c.process.redisson
	if s == nil || s.Known() == 0 {
		return
	}
	trips := make([]time.Duration, c.lock.Cells())
	for i := range trips {
		trips[i] = c.trip(i)
	}
	taken, tried := s.Handed(c, c.siteOf(cell), c.sites(), trips)
	if tried != nil {
		c.tried = tried
	}
	for _, i := range taken {
		c.apply(core.Event{Kind: core.Taken, Cell: int32(i)})
	}
}

func (c *call) grantedBeside() {
	if c.tried != nil {
		c.tried.Granted()
	}
}

// leaveOpen sets the window of a release.
func (c *call) leaveOpen(e *core.Event) {
	p := c.process
	alone := slices.ContainsFunc(c.lock.names, func(name int) bool { return !c.lock.shares(name) })
	downgraded := c.worker.hold != nil && c.worker.hold.downgraded
	if p.redisson == nil || p.closed || e.Keep > 0 || !alone || downgraded {
		return
	}
	waited, queued := c.machine.Waited(p.now)
	if c.place == nil {
		waited = 0
	}
	if p.redisson.Known() == 0 && waited == 0 { // no known peers, and no contention
		return
	}
	c.window = p.redisson.Window(p.now.Mono, c.sites(), p.tier.plan.Nodes, waited, queued, c.machine.Draw)
	c.opens = c.window != engine.Ordinary
}

// opened is a script with the window of the call.
func (c *call) opened(k *core.Call, s wire.Call) wire.Call {
	if c.opens && !c.lock.Shares(int(k.Cell)) && !k.Shared {
		return s.Open(time.Duration(c.window)*time.Millisecond, c.process.windowOwner())
	}
	return s
}
