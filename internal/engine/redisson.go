package engine

import (
	"maps"
	"math"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// Redisson is a client's knowledge of Redisson's clients, the peers, at the cells C of its locks. D
// is the caller's own state of such a cell. The zero value knows no peers.
//
// The peers do not know the queue. So a waiter that observes one hears the releases of all of them
// from then on. Now and then, a release leaves the lock to them. A client that has observed none
// reads only Known, and calls Window only for a hold that had to wait.
//
// The share: all listeners count the holds of both sides, from the messages of their releases.
// While the peers have had more, the lock is handed over. Otherwise one release in n leaves it to
// them for a moment, a window; n is about the number of callers queued here. So the waiters here
// wait for each other, and not for a peer each time.
//
// A RedissonMultiLock takes its members one after another, and keeps the first while it waits for
// the next. Most versions also release them one after another. A waiter that asks for all members
// after the last release finds the first one taken again. So if a lock needs every cell, its waiter
// has the node hand over the first cell alone. The machine keeps that cell for some ms, and asks
// for the others when they are released. No message names Redisson's first cell, so the waiter
// tries each. After consecutive handoffs of a cell without a grant, it tries that cell less often.
type Redisson[C comparable, D any] struct {
	peers  map[C]*Peers[D]
	probes map[C]*probe
	swept  time.Duration // when old probes were last dropped
}

// Peers is the state of the peers at one cell.
type Peers[D any] struct {
	Driver D

	seen    time.Duration // when one was last observed or heard
	balance int           // holds of the peers minus holds of this library, within ±maxBalance
	queued  int           // furthest position of our waiters at the last contended release
	opened  time.Duration // start of the last window
	window  time.Duration // length of the last window
	used    bool          // a peer has had the lock since the last window
	counted bool          // balance includes the hold behind used; its release was not heard yet
	until   time.Duration // expiry of the last observed peer's key; 0 if a peer was heard since
	silent  time.Duration // last release without a message; 0 after a message
	freed   time.Duration // time of the last call of Freed; 0: none
	counts  bool          // the node is known to have a token counter of the lock
	tries   any           // the waiter that should get this cell before its other cells
	useless int           // consecutive handoffs of this cell alone without a grant
}

// probe is the state of a cell without known peers where this client's callers wait.
type probe struct {
	waits int
	last  time.Duration
}

const (
	// PeerMemory is how long peers count as present after one was last observed or heard.
	PeerMemory = 10 * time.Second

	// The first window suffices for a client that has subscribed, or that polls every millisecond.
	// If no peer comes, the next is longer, for clients that rarely ask. While none comes, windows
	// take at most a fifth of the time.
	firstWindow = 2 * time.Millisecond
	lastWindow  = 20 * time.Millisecond
	restFactor  = 4

	// TellAfter is the time from the first observation of a peer to the subscription of the calls
	// that wait already.
	TellAfter = 20 * time.Millisecond

	// sameObservation is the time after a record at all cells of a lock during which further
	// observations update one cell alone.
	sameObservation = 10 * time.Millisecond

	// maxBalance limits the balance: holds of long ago do not count.
	maxBalance = 100

	// Peers that neither hold the lock nor subscribe are not observed: they poll while the lock is
	// handed over. So where callers wait, about two releases a second, in all processes together,
	// leave the lock free. A release is a probe with the probability interval/probeInterval, where
	// interval is the time since the previous release. Probes begin when a client has waited for
	// the lock a few times. For a client that rarely asks, many short windows are as good as a few
	// long ones of the same total. But a window delays every waiter.
	probeInterval = 500 * time.Millisecond
	probeWindow   = 6 * time.Millisecond
	firstProbe    = 4
	probeEvery    = 4    // at most one release in so many is a probe, on average
	maxProbes     = 1000 // limit of len(probes)

	// PollInterval is the mean time between looks if peers publish no releases (spin, fair locks).
	PollInterval = 5 * time.Millisecond
	ttlNoise     = 20 * time.Millisecond // error of an expiry that is computed from a TTL

	// After a peer's release, a waiter looks lookDelay later for each position in the queue.
	lookDelay    = 10 * time.Millisecond
	maxLookDelay = 200 * time.Millisecond

	// mostUseless limits useless: a waiter tries a cell at one release in 64, or more often.
	mostUseless = 6
)

// Known returns the number of cells with peers.
func (r *Redisson[C, D]) Known() int { return len(r.peers) }

// At returns the peers at a cell, nil if none are known.
func (r *Redisson[C, D]) At(cell C) *Peers[D] { return r.peers[cell] }

// Observed records that a peer holds cell; cells are those of the lock, without semaphores. The key
// there lasts for ttl. The peer is recorded at all cells, because it may be about to take the
// others. *all is the time of the last such record; Observed updates it. silent reports whether the
// peers' releases have no message.
func (r *Redisson[C, D]) Observed(now time.Duration, cells []C, cell C, all *time.Duration, ttl time.Duration) (silent bool) {
	if now-*all >= sameObservation || r.peers[cell] == nil {
		*all = now
		for _, c := range cells {
			if r.peers[c] == nil {
				if r.peers == nil {
					r.peers = make(map[C]*Peers[D])
				}
				r.peers[c] = &Peers[D]{used: true}
				delete(r.probes, c)
			}
			r.peers[c].seen = now
		}
	}
	p := r.peers[cell]
	p.seen = now
	if !p.used { // not every release is published
		p.used, p.counted = true, true
		p.balance = min(p.balance+1, maxBalance)
	}
	if until := now + ttl; ttl > 0 {
		// A later expiry, without a message: the lock was acquired again, or (rarely) renewed.
		if p.until != 0 && until-p.until > ttlNoise {
			p.silent = now
		}
		p.until = until
	}
	return p.silent != 0 && now-p.silent < PeerMemory
}

// Forget drops the cells without a recent peer, or all of them, and returns their Drivers. next is
// the time until the next Forget; 0 if no cell is left.
func (r *Redisson[C, D]) Forget(now time.Duration, all bool) (gone []D, next time.Duration) {
	for cell, p := range r.peers {
		if left := PeerMemory - (now - p.seen); left <= 0 || all {
			gone = append(gone, p.Driver)
			delete(r.peers, cell)
		} else if next == 0 || left < next {
			next = left
		}
	}
	return gone, next
}

// Heard records a message on Redisson's channel, or "" when messages may have been missed. It
// reports whether a waiter should look: the peers call nobody. Anyone can publish such a message,
// so it proves nothing: it only counts for the share, and makes a waiter look.
func (p *Peers[D]) Heard(now time.Duration, message string) (looks bool) {
	if message == "" {
		return true
	}
	theirs, window := wire.IsTheirs(message)
	if !theirs {
		if !wire.GivesUp(message) {
			p.balance = max(p.balance-1, -maxBalance)
		}
		if window > 0 {
			p.open(now, min(window, lastWindow))
		}
		return false
	}
	p.seen, p.used = now, true
	if !p.counted {
		p.balance = min(p.balance+1, maxBalance)
	}
	p.counted, p.until, p.silent = false, 0, 0
	return true
}

// Foremost finds the waiter W of this client that looks after a peer's release: the one with the
// lowest ticket. Positions do not show which, as each dates from its waiter's last attempt.
type Foremost[W any] struct {
	Waiter W
	Found  bool

	ticket  int64
	nearest int
}

// Add adds a waiter, with its ticket and its position in the queue.
func (f *Foremost[W]) Add(w W, ticket int64, position int) {
	if !f.Found || position < f.nearest {
		f.nearest = position
	}
	if !f.Found || ticket < f.ticket {
		f.Waiter, f.ticket = w, ticket
	}
	f.Found = true
}

// LooksAfter returns the pause before the waiter looks: 0 if one here was first in the queue.
// Otherwise it looks later, since the first one may have left the queue, or may not hear the
// release. A look by any waiter makes the node call the first one.
func (f *Foremost[W]) LooksAfter() time.Duration {
	if f.nearest <= 1 { // position 0 may be the entry that keeps a window free
		return 0
	}
	return min(time.Duration(f.nearest)*lookDelay, maxLookDelay)
}

// Freed records the release of the cell by a peer, for a waiter that needs each of several cells.
// begun: the waiter has a cell already. alone: the waiter should get this cell before the others.
// asks: it should ask for all cells instead, because the node hands nothing over: in a window, or
// without a token counter, which the first grant creates. draw returns a random number below n.
func (p *Peers[D]) Freed(now time.Duration, waiter any, begun bool, draw func(n int) int) (alone, asks bool) {
	p.freed = now
	if begun || draw(1<<p.useless) > 0 {
		return false, false
	}
	if now-p.opened < p.window { // an attempt learns its end
		return true, true
	}
	if !p.counts && draw(2) == 0 {
		return true, true
	}
	p.tries = waiter
	return true, false
}

// Handed records a handoff of a cell to a waiter. taken has the indices of the cells that a peer
// released more than a round trip before this one: most likely, a peer has them again. tried is the
// state of this cell if it was handed over before the others, else nil. Call tried.Granted if the
// waiter gets the lock. trips are the round trips to the cells.
func (r *Redisson[C, D]) Handed(waiter any, cell C, cells []C, trips []time.Duration) (taken []int, tried *Peers[D]) {
	p := r.peers[cell]
	if p == nil {
		return nil, nil
	}
	p.counts = true
	if p.tries == waiter {
		tried = p
		p.useless = min(p.useless+1, mostUseless)
	}
	for i, c := range cells {
		if other := r.peers[c]; other != nil && other.freed != 0 && p.freed-other.freed > trips[i] {
			taken = append(taken, i)
		}
	}
	return taken, tried
}

// Granted records that the handoff of this cell before the others led to a grant.
func (p *Peers[D]) Granted() { p.useless = 0 }

// Ordinary is the window of a release that ignores peers.
const Ordinary = math.MinInt64

// Window returns the window of a hold's release, in ms. 0 hands the lock over, although peers may
// listen. Any negative window but Ordinary is a probe. waited is the time since the hold's call
// began, 0 without contention; queued is the call's furthest position in a queue. nodes is the
// number of nodes, which Redisson's clients take one after another.
func (r *Redisson[C, D]) Window(now time.Duration, cells []C, nodes int, waited time.Duration, queued int, draw func(n int) int) int64 {
	// The cell where the peers are furthest behind: holds of only a part of the lock do not count.
	var known *Peers[D]
	for _, c := range cells {
		if p := r.peers[c]; p != nil && (known == nil || p.balance < known.balance) {
			known = p
		}
	}
	if known == nil {
		return r.probe(now, cells[0], waited/time.Duration(queued+1), draw)
	}
	if waited > 0 {
		known.queued = queued
	}
	n := min(known.queued, 1<<15-2) + 1 // n² fits into an int of 32 bits
	switch {
	case known.balance > 0,
		!known.used && now-known.opened < known.window*(1+restFactor),
		draw(n*n) >= n-known.balance: // a window in one of n, or more if the peers are behind
		return 0
	}
	window := known.next(nodes)
	for _, c := range cells {
		if p := r.peers[c]; p != nil {
			p.open(now, window)
		}
	}
	return window.Milliseconds()
}

// open records the start of a window.
func (p *Peers[D]) open(now, window time.Duration) {
	p.opened, p.window, p.used, p.counted = now, window, false, false
}

// next returns the length of the next window for a lock on so many nodes.
func (p *Peers[D]) next(nodes int) time.Duration {
	first := firstWindow
	if nodes > 1 {
		first = min(2*firstWindow*time.Duration(nodes), lastWindow)
	}
	if p.used {
		return first
	}
	return min(2*max(p.window, first), lastWindow)
}

// probe decides whether a release is a probe, and returns its window. waited is about the interval
// between releases.
func (r *Redisson[C, D]) probe(now time.Duration, cell C, waited time.Duration, draw func(n int) int) int64 {
	if waited == 0 {
		return Ordinary
	}
	t := r.probes[cell]
	switch {
	case t == nil:
		if r.probes == nil {
			r.probes = make(map[C]*probe)
		}
		if len(r.probes) >= maxProbes && now-r.swept > PeerMemory {
			r.swept = now
			maps.DeleteFunc(r.probes, func(_ C, t *probe) bool { return now-t.last > PeerMemory })
		}
		if len(r.probes) >= maxProbes {
			return Ordinary
		}
		t = &probe{}
		r.probes[cell] = t
	case now-t.last > PeerMemory:
		*t = probe{}
	}
	t.last = now
	if t.waits++; t.waits <= firstProbe || draw(int(probeInterval/time.Microsecond)) >= int(min(waited, probeInterval/probeEvery)/time.Microsecond) {
		return Ordinary
	}
	return -probeWindow.Milliseconds()
}
