package quorum

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// redissonPeers are Redisson's clients at the locks of a client. They do not know the queue. So a
// waiter that observes one hears the releases of all of them from then on. Now and then, a release
// leaves the lock to them. A client that has observed none reads only some.
//
// The share: all listeners count the holds of both sides, from the messages of their releases.
// While the peers have had more, the lock is handed over. Otherwise one release in n leaves it to
// them for a moment, a window; n is how many are queued here. So the waiters here wait for each
// other, and not for a peer each time.
type redissonPeers struct {
	some atomic.Int32 // len(of)

	mu     sync.Mutex
	of     map[Cell]*redissonPeer
	probes map[Cell]*probe
	swept  time.Time   // when old probes were last dropped
	timer  *time.Timer // calls forgetPeers; nil while of is empty
	over   bool        // the client is closed
}

// redissonPeer is the state of the peers at one cell. All fields but stop are guarded by
// redissonPeers.mu.
type redissonPeer struct {
	seen    time.Time     // when one was last observed or heard
	balance int           // holds of the peers minus holds of this library, within ±maxBalance
	queued  int           // furthest position of our waiters at the last contended release
	opened  time.Time     // start of the last window
	window  time.Duration // length of the last window
	used    bool          // a peer has had the lock since the last window
	counted bool          // the hold under used is in balance, though its release was not heard
	until   time.Time     // expiry of the last observed peer's key; zero if a peer was heard since
	silent  time.Time     // last release without a message; zero after a message
	stop    func()        // ends the subscription, or nil; guarded by subscriptions.mu
	waiters map[*call]int // calls that hear the messages, with their index of this cell
	freed   time.Time     // when a peer last released the cell: see firstmember.go
	counts  bool          // the node has a token counter of the lock
	tries   *call         // the waiter that should get this cell before its others
	useless int           // consecutive handoffs of this cell alone without a grant
	nudge   *time.Timer   // makes a waiter look that is not the first in the queue; nil if not set
}

// probe is the state of a cell without known peers where this client's callers wait.
type probe struct {
	waits int
	last  time.Time
}

const (
	// peerMemory is the time for which peers count as present after the last was observed or heard.
	peerMemory = 10 * time.Second

	// The first window suffices for a client that has subscribed, or that polls every millisecond.
	// If no peer comes, the next is longer, for clients that ask seldom. At most a fifth of the
	// time is left to the peers.
	firstWindow = 2 * time.Millisecond
	lastWindow  = 20 * time.Millisecond
	restFactor  = 4

	// sameObservation is the time for which one observed cell stands for all cells of a lock.
	sameObservation = 10 * time.Millisecond

	// maxBalance limits the balance: holds of long ago do not count.
	maxBalance = 100

	// Peers that neither hold the lock nor subscribe are not observed: they poll while the lock is
	// handed over. So where callers wait, about two releases a second, in all processes together,
	// leave the lock free. The chance of each is its interval's part of probeInterval. Probes begin
	// when a client has waited for the lock a few times. For a client that asks seldom, many short
	// windows are as good as a few long ones of the same total. But a window delays every waiter.
	probeInterval = 500 * time.Millisecond
	probeWindow   = 6 * time.Millisecond
	firstProbe    = 4
	probeEvery    = 4    // at most one release in so many is a probe, on average
	maxProbes     = 1000 // limit of len(probes)

	// pollInterval is the mean time between looks if peers publish no releases (spin, fair locks).
	pollInterval = 5 * time.Millisecond
	ttlNoise     = 20 * time.Millisecond // error of an expiry that is computed from a TTL

	// After a peer's release, a waiter looks lookDelay later for each position in the queue.
	lookDelay    = 10 * time.Millisecond
	maxLookDelay = 200 * time.Millisecond
)

// at returns the cell as the key of a map.
func at(c Cell) Cell { return Cell{Node: c.Node, Name: c.Name} }

// observePeer records that a peer holds the lock at a cell. The caller holds mu.
func (c *call) observePeer(cell int, r core.Reply) {
	silent := c.lock.client.peers.observe(c.lock, cell, r.TTL)
	if silent && c.waits != nil && r.Position <= 1 {
		time.AfterFunc(pollInterval/2+time.Duration(c.machine.Draw(int(pollInterval))), func() {
			if c.lock.client.Begin() != nil {
				return
			}
			defer c.lock.client.End()
			c.look(c.lock.cells[cell])
		})
	}
}

// observe records that peers want a lock: a peer with one cell is on the way to the others. The
// observed key lasts for ttl. silent reports whether the peers' releases have no message.
func (s *redissonPeers) observe(l *Lock, i int, ttl time.Duration) (silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	now := time.Now()
	cells := l.cells
	if now.Sub(l.metAt) < sameObservation && s.of[at(l.cells[i])] != nil {
		cells = cells[i : i+1]
	} else {
		l.metAt = now
	}
	for _, cell := range cells {
		cell = at(cell)
		if s.of[cell] == nil {
			if s.of == nil {
				s.of = make(map[Cell]*redissonPeer)
			}
			s.of[cell] = &redissonPeer{used: true, waiters: make(map[*call]int)}
			delete(s.probes, cell)
		}
		s.of[cell].seen = now
	}
	s.some.Store(int32(len(s.of)))
	st, c := s.of[at(l.cells[i])], l.client
	if !st.used { // not every release is published
		st.used, st.counted = true, true
		st.balance = min(st.balance+1, maxBalance)
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(peerMemory, func() { c.forgetPeers(false) })
	}
	if until := now.Add(ttl); ttl > 0 {
		// A later expiry, without a message: the lock was acquired again, or (rarely) renewed.
		if !st.until.IsZero() && until.Sub(st.until) > ttlNoise {
			st.silent = now
		}
		st.until = until
	}
	return !st.silent.IsZero() && now.Sub(st.silent) < peerMemory
}

// listenToPeers subscribes a call to the releases of the known peers at its cells. Only the call's
// goroutine calls it.
func (c *call) listenToPeers() {
	client := c.lock.client
	s := &client.peers
	client.subscriptions.mu.Lock()
	defer client.subscriptions.mu.Unlock()
	if client.subscriptions.closed {
		return
	}
	for i, cell := range c.lock.cells {
		cell = at(cell)
		s.mu.Lock()
		st := s.of[cell]
		if st != nil {
			st.waiters[c] = i
			c.hears = true
		}
		s.mu.Unlock()
		if st != nil && st.stop == nil {
			st.stop = cell.Node.Listen(wire.UnlockChannel(cell.Name), func(message string) { client.heardPeer(cell, message) })
		}
	}
}

// ignorePeers removes the call from the listeners. The subscriptions stay.
func (c *call) ignorePeers() {
	s := &c.lock.client.peers
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cell := range c.lock.cells {
		if st := s.of[at(cell)]; st != nil {
			delete(st.waiters, c)
		}
	}
}

// forgetPeers ends the subscriptions at cells without a recent peer, or all of them.
func (c *Client) forgetPeers(all bool) {
	s := &c.peers
	c.subscriptions.mu.Lock()
	defer c.subscriptions.mu.Unlock()
	var stops []func()
	s.mu.Lock()
	s.over = s.over || all
	next := time.Duration(0)
	for cell, st := range s.of {
		if left := peerMemory - time.Since(st.seen); left > 0 && !s.over {
			if next == 0 || left < next {
				next = left
			}
			continue
		}
		delete(s.of, cell)
		if st.nudge != nil {
			st.nudge.Stop()
		}
		if st.stop != nil {
			stops = append(stops, st.stop)
		}
	}
	s.some.Store(int32(len(s.of)))
	if s.timer != nil && len(s.of) == 0 {
		s.timer.Stop()
		s.timer = nil
	} else if s.timer != nil {
		s.timer.Reset(next)
	}
	s.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// heardPeer handles a message on Redisson's channel, or "" when messages may have been missed. Any
// publisher can send one, so a message only makes waiters look.
func (c *Client) heardPeer(cell Cell, message string) {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	s := &c.peers
	s.mu.Lock()
	st := s.of[cell]
	if st == nil {
		s.mu.Unlock()
		return
	}
	theirs, window := wire.IsTheirs(message)
	switch {
	case message == "":
	case theirs:
		st.seen, st.used = time.Now(), true
		if !st.counted {
			st.balance = min(st.balance+1, maxBalance)
		}
		st.counted = false
		st.until, st.silent = time.Time{}, time.Time{}
	default:
		if !wire.GivesUp(message) {
			st.balance = max(st.balance-1, -maxBalance)
		}
		if window > 0 {
			st.openWindow(min(window, lastWindow))
		}
		s.mu.Unlock()
		return
	}
	waiters := maps.Clone(st.waiters)
	s.mu.Unlock()
	var foremost *call
	nearest, at := 0, 0
	for w, i := range waiters {
		position, waits := w.position(i)
		switch {
		case !waits:
		case foremost == nil || position < nearest:
			foremost, nearest, at = w, position, i
		}
	}
	if foremost == nil {
		return
	}
	if nearest <= 1 { // position 0 may be the entry that keeps a window free
		foremost.freed(at)
		return
	}
	// Redisson's clients call no waiter. The first may have left the queue, or may not hear this. A
	// waiter that looks calls it.
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.nudge != nil {
		return
	}
	st.nudge = time.AfterFunc(min(time.Duration(nearest)*lookDelay, maxLookDelay), func() {
		if c.Begin() != nil {
			return
		}
		defer c.End()
		s.mu.Lock()
		st.nudge = nil
		s.mu.Unlock()
		foremost.look(cell)
	})
}

// position returns the call's position in the queue of a cell, and whether the call waits.
func (c *call) position(cell int) (n int, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Cells[cell].Position, c.machine.Phase() < core.Holding
}

// openWindow records the start of a window. The caller holds redissonPeers.mu.
func (st *redissonPeer) openWindow(window time.Duration) {
	st.opened, st.window, st.used, st.counted = time.Now(), window, false, false
}

// next returns the length of the next window, for a lock of so many nodes. Redisson's clients take
// the nodes one after another.
func (st *redissonPeer) next(nodes int) time.Duration {
	first := firstWindow
	if nodes > 1 {
		first = min(2*firstWindow*time.Duration(nodes), lastWindow)
	}
	if st.used {
		return first
	}
	return min(2*max(st.window, first), lastWindow)
}

// ordinary is the window of a release that ignores peers.
const ordinary = math.MinInt64

// leaveOpen returns the window of a hold's release, in ms. 0 hands the lock over, although peers
// may listen. A negative window is a probe. ordinary ignores peers. The caller holds mu.
func (c *call) leaveOpen() int64 {
	client := c.lock.client
	waited, queued := c.machine.Waited(client.time())
	if c.turn == nil {
		waited = 0
	}
	s := &client.peers
	if s.some.Load() == 0 && waited == 0 { // no known peers, and no contention
		return ordinary
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The cell where the peers are furthest behind: a part of the lock elsewhere does not count.
	var known *redissonPeer
	for _, cell := range c.lock.cells {
		if st := s.of[at(cell)]; st != nil && (known == nil || st.balance < known.balance) {
			known = st
		}
	}
	if known == nil {
		return s.probe(at(c.lock.cells[0]), waited/time.Duration(queued+1), c.machine.Draw)
	}
	if waited > 0 {
		known.queued = queued
	}
	n := known.queued + 1
	switch {
	case known.balance > 0,
		!known.used && time.Since(known.opened) < known.window*(1+restFactor),
		c.machine.Draw(n*n) >= n-known.balance: // one in n, or more if the peers are behind
		return 0
	}
	window := known.next(len(c.lock.nodes))
	for _, cell := range c.lock.cells {
		if st := s.of[at(cell)]; st != nil {
			st.openWindow(window)
		}
	}
	return window.Milliseconds()
}

// probe decides whether a release is a probe, and returns its window. waited is about the interval
// between releases. The caller holds mu.
func (s *redissonPeers) probe(cell Cell, waited time.Duration, random func(n int) int) int64 {
	if waited == 0 || s.over {
		return ordinary
	}
	now, t := time.Now(), s.probes[cell]
	switch {
	case t == nil:
		if s.probes == nil {
			s.probes = make(map[Cell]*probe)
		}
		if len(s.probes) >= maxProbes && now.Sub(s.swept) > peerMemory {
			s.swept = now
			maps.DeleteFunc(s.probes, func(_ Cell, t *probe) bool { return now.Sub(t.last) > peerMemory })
		}
		if len(s.probes) >= maxProbes {
			return ordinary
		}
		t = &probe{}
		s.probes[cell] = t
	case now.Sub(t.last) > peerMemory:
		*t = probe{}
	}
	t.last = now
	if t.waits++; t.waits <= firstProbe || random(int(probeInterval/time.Microsecond)) >= int(min(waited, probeInterval/probeEvery)/time.Microsecond) {
		return ordinary
	}
	return -probeWindow.Milliseconds()
}
