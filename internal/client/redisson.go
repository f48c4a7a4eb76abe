package client

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// redisson carries out the decisions of package engine about Redisson's clients at the same locks.
// Its fields after mu are guarded by mu.
type redisson struct {
	some atomic.Int32 // the result of Known; read without mu

	mu sync.Mutex
	engine.Redisson[Cell, *listening]
	timer *time.Timer // calls forgetRedisson; nil while no peers are known
	told  bool        // tellWaiters is scheduled
	over  bool        // the client is closed
}

// listening is the subscription to Redisson's channel of a cell. Its fields but stop are guarded by
// redisson.mu.
type listening struct {
	stop    func()           // ends it; nil before it begins; guarded by subscriptions.mu
	waiters map[*session]int // calls that hear the messages, with their index of the cell
	nudge   *time.Timer      // for the look of a waiter that is not first in the queue; nil if not set
}

// meeting is what a session has had to do with Redisson's clients.
type meeting struct {
	// Cells with a scheduled look: see meetRedisson. An attempt follows the looks of a quorum, so
	// with a look for each refusal there would be more and more attempts.
	looks map[int]bool
	tried *engine.Peers[*listening] // of the last cell handed over before the others, or nil
}

// meetRedisson records a refusal that names a Redisson client. If the peers publish no releases,
// and the call is first in the queue, it looks again soon. The caller holds mu.
func (c *session) meetRedisson(cell int, r core.Reply) {
	client, key := c.lock.client, c.lock.keys[cell]
	if c.lock.cells[cell].Permits > 0 { // Redisson clients hold no slots: this owner only looks like one
		return
	}
	s := &client.redisson
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	known := s.Known()
	silent := s.Observed(client.mono(), c.lock.ofMutexes, key, &c.lock.metAt, r.TTL)
	if s.Known() > known && !s.told {
		s.told = true
		time.AfterFunc(engine.TellAfter, client.tellWaiters)
	}
	s.some.Store(int32(s.Known()))
	if s.timer == nil {
		s.timer = time.AfterFunc(engine.PeerMemory, func() { client.forgetRedisson(false) })
	}
	s.mu.Unlock()
	if silent && c.waits != nil && r.Position <= 1 && !c.met.looks[cell] {
		if c.met.looks == nil {
			c.met.looks = make(map[int]bool)
		}
		c.met.looks[cell] = true
		client.lookAfter(c, key, engine.PollInterval/2+time.Duration(c.machine.Draw(int(engine.PollInterval))), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.met.looks, cell)
		})
	}
}

// tellWaiters makes calls listen to peers that became known after the calls began to wait.
func (c *Client) tellWaiters() {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	s := &c.redisson
	s.mu.Lock()
	s.told = false
	s.mu.Unlock()
	for _, w := range c.waiting() {
		s.mu.Lock()
		deaf := slices.ContainsFunc(w.lock.keys, func(cell Cell) bool {
			p := s.At(cell)
			if p == nil || p.Driver == nil {
				return p != nil
			}
			_, hears := p.Driver.waiters[w]
			return !hears
		})
		s.mu.Unlock()
		if deaf {
			w.wantListen()
		}
	}
}

// lookAfter makes a call look at a cell after a pause. before, unless nil, runs first.
func (c *Client) lookAfter(w *session, cell Cell, pause time.Duration, before func()) *time.Timer {
	return time.AfterFunc(pause, func() {
		if c.Begin() != nil {
			return
		}
		defer c.End()
		if before != nil {
			before()
		}
		w.look(cell)
	})
}

// joinRedisson registers a first attempt for the releases that its client hears anyway: the release
// of a hold may arrive before the refusal that the hold caused.
func (c *session) joinRedisson() {
	s := &c.lock.client.redisson
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, cell := range c.lock.keys {
		if p := s.At(cell); p != nil && p.Driver != nil {
			p.Driver.waiters[c], c.ears.hears = i, true
		}
	}
}

// listenToRedisson subscribes a call to the releases of the known peers at its cells. Only the
// call's goroutine calls it.
func (c *session) listenToRedisson() {
	client := c.lock.client
	s := &client.redisson
	client.subscriptions.mu.Lock()
	defer client.subscriptions.mu.Unlock()
	if client.subscriptions.closed {
		return
	}
	for i, cell := range c.lock.keys {
		s.mu.Lock()
		p := s.At(cell)
		if p == nil {
			s.mu.Unlock()
			continue
		}
		if p.Driver == nil {
			p.Driver = &listening{waiters: make(map[*session]int)}
		}
		l := p.Driver
		l.waiters[c], c.ears.hears = i, true
		s.mu.Unlock()
		if l.stop == nil {
			l.stop = cell.Node.Listen(wire.UnlockChannel(cell.Name), func(message string) { client.heardRedisson(cell, message) })
		}
	}
}

// ignoreRedisson removes the call from the listeners. The subscriptions stay.
func (c *session) ignoreRedisson() {
	s := &c.lock.client.redisson
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cell := range c.lock.keys {
		if p := s.At(cell); p != nil && p.Driver != nil {
			delete(p.Driver.waiters, c)
		}
	}
}

// forgetRedisson ends the subscriptions at cells without a recent peer, or all of them.
func (c *Client) forgetRedisson(all bool) {
	s := &c.redisson
	c.subscriptions.mu.Lock()
	defer c.subscriptions.mu.Unlock()
	s.mu.Lock()
	s.over = s.over || all
	gone, next := s.Forget(c.mono(), s.over)
	for _, l := range gone {
		if l != nil && l.nudge != nil {
			l.nudge.Stop()
		}
	}
	s.some.Store(int32(s.Known()))
	if s.timer != nil && s.Known() == 0 {
		s.timer.Stop()
		s.timer = nil
	} else if s.timer != nil {
		s.timer.Reset(next)
	}
	s.mu.Unlock()
	for _, l := range gone {
		if l != nil && l.stop != nil {
			l.stop()
		}
	}
}

// heardRedisson handles a message on Redisson's channel, or "" when messages may have been missed.
func (c *Client) heardRedisson(cell Cell, message string) {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	s := &c.redisson
	s.mu.Lock()
	p := s.At(cell)
	if p == nil || p.Driver == nil || !p.Heard(c.mono(), message) {
		s.mu.Unlock()
		return
	}
	l := p.Driver
	waiters := maps.Clone(l.waiters)
	s.mu.Unlock()
	var foremost engine.Foremost[*session]
	for w, i := range waiters {
		position, phase, attempt := w.position(i)
		switch {
		case phase >= core.Holding:
		case attempt <= 1 && phase < core.Yielding: // it has no position yet
			w.look(cell)
		default:
			foremost.Add(w, w.caller.Ticket, position)
		}
	}
	if !foremost.Found {
		return
	}
	w, pause := foremost.Waiter, foremost.LooksAfter()
	if pause == 0 {
		w.freed(waiters[w])
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.nudge == nil {
		l.nudge = c.lookAfter(w, cell, pause, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			l.nudge = nil
		})
	}
}

// position returns the call's position in a cell's queue, its phase, and its last attempt.
func (c *session) position(cell int) (int, core.Phase, int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	attempt, _ := c.machine.Attempt()
	return c.machine.Cells[cell].Position, c.machine.Phase(), attempt
}

// freed handles the release of a cell by a Redisson client.
func (c *session) freed(cell int) {
	c.mu.Lock()
	now := c.lock.client.time()
	var alone, asks bool
	if len(c.lock.cells) > 1 && c.lock.config.Tree.NeedsEach() {
		s := &c.lock.client.redisson
		begun := slices.ContainsFunc(c.machine.Cells, func(c core.Cell) bool { return c.HandedOver() })
		s.mu.Lock()
		if p := s.At(c.lock.keys[cell]); p != nil {
			alone, asks = p.Freed(now.Mono, c, begun, c.machine.Draw)
		}
		s.mu.Unlock()
	}
	for i := range c.lock.cells {
		if asks || !alone && i == cell {
			c.applyAt(now, core.Event{Kind: core.Turn, Cell: int32(i)})
		}
	}
	c.flush()
	if alone && !asks {
		handOver := wire.Release(c.lock.cells[cell].Name, c.lock.client.place, 1).Open(0, c.lock.client.place)
		// If this fails, the waiter's next refresh is a look, too.
		_ = c.lock.Ask(cell, handOver, func(wire.Reply) {})
	}
}

// handedBeside prepares the machine for a handoff of a cell: Redisson's clients may hold others.
// The caller holds mu.
func (c *session) handedBeside(now core.Time, cell int) {
	s := &c.lock.client.redisson
	if s.some.Load() == 0 {
		return
	}
	trips := make([]time.Duration, len(c.lock.cells))
	for i := range trips {
		trips[i] = c.trip(i)
	}
	s.mu.Lock()
	taken, tried := s.Handed(c, c.lock.keys[cell], c.lock.keys, trips)
	s.mu.Unlock()
	if tried != nil {
		c.met.tried = tried
	}
	for _, i := range taken {
		c.applyAt(now, core.Event{Kind: core.Taken, Cell: int32(i)})
	}
}

// grantedBeside records that the handoff of a cell before the others led to a grant, if there was
// one. The caller holds mu.
func (c *session) grantedBeside() {
	if c.met.tried != nil {
		s := &c.lock.client.redisson
		s.mu.Lock()
		defer s.mu.Unlock()
		c.met.tried.Granted()
	}
}

// leaveOpen returns the window of the hold's release: see Window in package engine. The caller
// holds mu.
func (c *session) leaveOpen(now core.Time) int64 {
	waited, queued := c.machine.Waited(now)
	if c.place == nil {
		waited = 0
	}
	s := &c.lock.client.redisson
	if s.some.Load() == 0 && waited == 0 { // no known peers, and no contention
		return engine.Ordinary
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return engine.Ordinary
	}
	return s.Window(now.Mono, c.lock.keys, len(c.lock.nodes), waited, queued, c.machine.Draw)
}
