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

// strangers are clients of Redisson's at the locks of a client. They do not know the queue. So a waiter that meets one hears
// the releases of all of them from then on, and a release leaves the lock to them now and then. A client that has met none
// looks at a single number.
//
// How often: everybody who listens counts the holds of both sides, from the messages of their releases. While the strangers
// have had more, the lock is handed over. Otherwise one release in n leaves it to them for a moment, where n is how many are
// queued here: so those who wait here wait for each other, and not for a stranger each time.
type redissonPeers struct {
	some atomic.Int32 // how many cells have strangers

	mu     sync.Mutex
	of     map[Cell]*redissonPeer
	probes map[Cell]*probe
	swept  time.Time   // when old trials were last dropped
	timer  *time.Timer // forgets strangers; set while there are some
	over   bool        // the client is closed
}

// stranger is what is known of the strangers at one cell.
type redissonPeer struct {
	seen    time.Time     // when one was last met or heard
	balance int           // by how many holds the strangers are ahead
	queued  int           // how many of this library's wait
	opened  time.Time     // when the lock was last left to them
	window  time.Duration // for how long
	used    bool          // one has had the lock since
	counted bool          // that hold is in the balance, though it was not heard to end
	until   time.Time     // when the key of the one that was met last ends; zero if one was heard since
	silent  time.Time     // when it was last seen that they release the lock without a message
	stop    func()        // ends the subscription; nil if there is none. Guarded by subscriptions.mu
	waiters map[*call]int // those who hear the messages, and as which of their cells
	freed   time.Time     // when one of them last released the cell: see firstmember.go
	counts  bool          // the node is known to have a token counter
	tries   *call         // the waiter that is to have this cell before the others
	useless int           // consecutive handoffs of this cell alone that led to no grant; at most mostUseless
	nudge   *time.Timer   // has a waiter look that is not the first in the queue
}

// trial is about a cell without known strangers where this client's callers wait.
type probe struct {
	waits int
	last  time.Time
}

const (
	// remembered is for how long strangers are taken to be there after one was last met or heard.
	peerMemory = 10 * time.Second

	// A window is first as long as a client takes that has subscribed, or that polls every millisecond. If no stranger comes, the
	// next is longer, for those who ask seldom; and the lock is left to them for no more than a fifth of the time.
	firstWindow = 2 * time.Millisecond
	lastWindow  = 20 * time.Millisecond
	restFactor  = 4

	// sameMeeting is how long all cells of a lock count as met after one was.
	sameObservation = 10 * time.Millisecond

	// most is how far one side is ahead at most: what was long ago does not count.
	maxBalance = 100

	// Strangers that neither hold the lock nor subscribe are not seen: they poll while the lock is handed from one to the next. So
	// where callers wait, about two releases a second, in all processes together, leave the lock free: each with the chance that is
	// its part of that half second. That begins when a client has waited for the lock a few times. A client that asks seldom is met
	// as often in many short windows as in a few long ones that last as long together. But every waiter is delayed by a whole window.
	probeInterval = 500 * time.Millisecond
	probeWindow   = 6 * time.Millisecond
	firstProbe    = 4
	probeEvery    = 4    // no more than one release in so many is a trial, on average
	maxProbes     = 1000 // cells of which the waits are counted, at one time

	// Whoever waits for strangers that publish nothing (spin locks, fair locks) asks this often, about.
	pollInterval = 5 * time.Millisecond
	ttlNoise     = 20 * time.Millisecond // of a TTL that was read twice

	// between is how much later a waiter looks than the one before it in the queue, after a stranger has released the lock.
	lookDelay    = 10 * time.Millisecond
	maxLookDelay = 200 * time.Millisecond
)

// at is the cell as the key of a map.
func at(c Cell) Cell { return Cell{Node: c.Node, Name: c.Name} }

// meet notes that a stranger holds the lock at a cell. It is called with the call's mu held.
func (c *call) observePeer(cell int, r core.Reply) {
	silent := c.lock.client.peers.observe(c.lock, cell, r.TTL)
	if silent && c.waits != nil && r.Position <= 1 {
		time.AfterFunc(pollInterval/2+time.Duration(c.machine.Draw(int(pollInterval))), func() {
			if c.lock.client.Begin() != nil {
				return
			}
			defer c.lock.client.End()
			c.told(core.Event{Kind: core.Turn}, c.lock.cells[cell])
		})
	}
}

// meet notes that strangers want a lock: who has one cell is on the way to the others. The stranger's key lasts for ttl. meet reports
// whether they release the lock without a message.
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
	if !st.used { // not all of them publish their releases
		st.used, st.counted = true, true
		st.balance = min(st.balance+1, maxBalance)
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(peerMemory, func() { c.forgetPeers(false) })
	}
	if until := now.Add(ttl); ttl > 0 {
		// The key lasts for longer than it did, and nobody was heard: it was acquired again, or renewed, which is seldom.
		if !st.until.IsZero() && until.Sub(st.until) > ttlNoise {
			st.silent = now
		}
		st.until = until
	}
	return !st.silent.IsZero() && now.Sub(st.silent) < peerMemory
}

// hearStrangers subscribes a call to the releases of the strangers that are known at its cells. It is called by the goroutine
// of the call.
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

// ignoreStrangers ends what hearStrangers began. The subscription stays.
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

// forgetStrangers ends the subscriptions at cells where no stranger has been met or heard for a while, or all of them.
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

// heardStranger takes a message on Redisson's channel, or "" when messages may have been missed. Anybody who may publish can
// send one: it makes waiters look, and no more.
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
	if nearest <= 1 { // the place before it may be one that was kept for strangers
		foremost.freed(at)
		return
	}
	// Redisson's clients call nobody in the queue. The first may have left it, or may not hear this. Whoever looks calls it.
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
		foremost.told(core.Event{Kind: core.Turn}, cell)
	})
}

// position returns where the call is queued at a cell, and whether it waits at all.
func (c *call) position(cell int) (n int, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Cells[cell].Position, c.machine.Phase() < core.Holding
}

// open notes that the lock is left to the strangers. It is called with the mutex of the strangers held.
func (st *redissonPeer) openWindow(window time.Duration) {
	st.opened, st.window, st.used, st.counted = time.Now(), window, false, false
}

// next is the length of the next window, for a lock of so many nodes. Redisson's clients take these one after the other.
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

// ordinary is the window of a release that is not open to strangers.
const ordinary = math.MinInt64

// leaveOpen decides about the release of a hold: for how long it leaves the lock to strangers, in ms; 0 if it hands it over
// although strangers may listen; negative to meet strangers that nobody has met; or ordinary. It is called with the call's
// mu held.
func (c *call) leaveOpen() int64 {
	client := c.lock.client
	waited, queued := c.machine.Waited(client.time())
	if c.turn == nil {
		waited = 0
	}
	s := &client.peers
	if s.some.Load() == 0 && waited == 0 { // nobody is met, and nobody waits
		return ordinary
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var known *redissonPeer // where they are furthest behind: if they have a part of the lock, they are not behind there
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
		c.machine.Draw(n*n) >= n-known.balance: // one in n, and more often the further behind the strangers are
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

// try decides whether to leave a lock to strangers that nobody has met. It is called with mu held.
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
