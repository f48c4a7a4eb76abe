package quorum

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum/engine"
)

// waiterOf returns the waiter of a call.
func (c *Client) waiterOf(number uint64) quorumlock.Owner {
	var memory [128]byte
	b := append(append(memory[:0], c.id...), ':')
	return quorumlock.Owner(strconv.AppendUint(b, number, 10))
}

// newNumber returns the number of a call. Two copies of a process restored from one image share
// their client's identity and counters, but must have different owners. So the number is random,
// mixed with the time: even with equal randomness, copies seldom draw in the same nanosecond.
// Simulations count, because they need the same numbers in every run.
func (c *Client) newNumber(order uint64) uint64 {
	if c.jitter != nil {
		return order
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return (binary.LittleEndian.Uint64(b[:])^uint64(time.Now().UnixNano()))%numbers + numbers
}

const numbers = 1 << 52 // the range of the random numbers, which have 16 digits

// numberOf returns the number of the call that an owner of this client belongs to.
func (c *Client) numberOf(o quorumlock.Owner) (number uint64, ok bool) {
	rest, ok := strings.CutPrefix(string(o), c.id+":")
	if !ok {
		return 0, false
	}
	digits := 0
	for digits < len(rest) && '0' <= rest[digits] && rest[digits] <= '9' {
		digits++
	}
	number, err := strconv.ParseUint(rest[:digits], 10, 64)
	return number, err == nil
}

// waiter returns the waiting or holding call of an owner of this client, or nil.
func (c *Client) waiter(o quorumlock.Owner) *call {
	n, ok := c.numberOf(o)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[n]
}

// ended reports whether an owner belongs to a recent call of this client that has ended, and no
// longer keeps a key by UnlockAfter or Detach. place counts as ended. An unknown number belongs to
// a copy of the process: see newNumber.
func (c *Client) ended(o quorumlock.Owner) bool {
	n, ok := c.numberOf(o)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	over := c.live[n] == nil && !c.former.Keeps(n, c.time().Mono)
	return over && (o == c.place || c.former.Has(n))
}

// isLive reports whether an owner belongs to a waiting or holding call of this client.
func (c *Client) isLive(o quorumlock.Owner) bool {
	n, ok := c.numberOf(o)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[n] != nil
}

func (c *Client) nextTicket() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newTicket()
}

// keeps records that the nodes keep the lock of a call for d after its hold.
func (c *Client) keeps(number uint64, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.time().Mono
	c.former.Keep(number, now+min(d, math.MaxInt64-now), now)
}

// enlist adds a call to live: messages reach it from now on.
func (c *Client) enlist(w *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[w.number] = w
}

// hold records that a call has the lock. It returns ErrClosed once the client has been stopped.
func (c *Client) hold(w *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops {
		return quorumlock.ErrClosed
	}
	if c.live[w.number] != w { // it is lost already
		return nil
	}
	w.holds = true
	c.held++
	at := w.lock.cells[0]
	if w.older = c.holders[at]; w.older != nil {
		w.older.newer = w
	}
	c.holders[at] = w
	if o := w.lock.set.Owner; o != "" {
		n := c.namedOwner(o)
		n.holds = append(n.holds, w)
		close(n.entered)
		n.entered = make(chan struct{})
	}
	if c.clock == nil {
		c.clock = time.AfterFunc(engine.ClockCheck, c.compareClocks)
		c.seen = c.time()
	} else if c.held == 1 {
		c.clock.Reset(engine.ClockCheck)
		c.seen = c.time()
	}
	return nil
}

// forget removes a call that has failed, or has no hold any more. It may be called again.
func (c *Client) forget(w *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live[w.number] != w {
		return
	}
	delete(c.live, w.number)
	c.former.Add(w.number)
	if w.holds {
		c.held--
		if c.held == 0 {
			c.clock.Stop()
		}
		c.unlink(w)
		if n := c.named[w.lock.set.Owner]; n != nil {
			n.holds = slices.DeleteFunc(n.holds, func(other *call) bool { return other == w })
			c.dropOwner(w.lock.set.Owner, n)
		}
	}
	c.checkIdle()
}

// unlink removes a call from the holds at its first cell. The caller holds mu.
func (c *Client) unlink(w *call) {
	if w.older != nil {
		w.older.newer = w.newer
	}
	switch at := w.lock.cells[0]; {
	case w.newer != nil:
		w.newer.older = w.older
	case w.older != nil:
		c.holders[at] = w.older
	default:
		delete(c.holders, at)
	}
	w.newer, w.older = nil, nil
}

// named is an owner of WithOwner that holds or waits; guarded by Client.mu.
type named struct {
	holds   []*call
	waits   int           // number of waiting calls of Lock
	entered chan struct{} // closed, and replaced, when the owner acquires a lock
}

// namedOwner returns the entry of an owner, which it creates if necessary. The caller holds mu.
func (c *Client) namedOwner(o quorumlock.Owner) *named {
	n := c.named[o]
	if n == nil {
		n = &named{entered: make(chan struct{})}
		c.named[o] = n
	}
	return n
}

// dropOwner drops an owner that neither holds nor waits. The caller holds mu.
func (c *Client) dropOwner(o quorumlock.Owner, n *named) {
	if len(n.holds) == 0 && n.waits == 0 {
		delete(c.named, o)
	}
}

// awaitOwner records the begin of a wait for an owner, and leaveOwner its end.
func (c *Client) awaitOwner(o quorumlock.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namedOwner(o).waits++
}

func (c *Client) leaveOwner(o quorumlock.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.named[o]
	n.waits--
	c.dropOwner(o, n)
}

// holderOf returns the owner of this client that holds l, or "".
func (c *Client) holderOf(l *Lock) quorumlock.Owner {
	c.mu.Lock()
	w := c.holders[l.cells[0]]
	for w != nil && !w.lock.same(l) {
		w = w.older
	}
	c.mu.Unlock()
	if w == nil || !w.alive() {
		return ""
	}
	return w.Owner()
}

// enters reports whether the named owner of l has l, or shares a cell that l would hold alone: then
// the call must not wait. It also returns a channel that is closed when the owner next acquires a
// lock. awaitOwner must have been called.
func (c *Client) enters(l *Lock) (has bool, entered <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is := func(w *call) bool { return w.includes(l) || w.shares(l) }
	return c.holdOf(l.set.Owner, is) != nil, c.named[l.set.Owner].entered
}

// find returns the hold of an owner that includes l, or nil.
func (c *Client) find(o quorumlock.Owner, l *Lock) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has(o, l)
}

// has is find for callers that hold mu.
func (c *Client) has(o quorumlock.Owner, l *Lock) *call {
	return c.holdOf(o, func(w *call) bool { return w.includes(l) })
}

// sharer returns the hold of an owner that shares a cell that l would hold alone, or nil.
func (c *Client) sharer(o quorumlock.Owner, l *Lock) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holdOf(o, func(w *call) bool { return w.shares(l) })
}

// holdOf returns a hold of an owner for which is returns true, or nil. The caller holds mu.
func (c *Client) holdOf(o quorumlock.Owner, is func(*call) bool) *call {
	if n, ok := c.numberOf(o); ok {
		if w := c.live[n]; w != nil && w.holds && is(w) {
			return w
		}
	}
	if n := c.named[o]; n != nil {
		if i := slices.IndexFunc(n.holds, is); i >= 0 {
			return n.holds[i]
		}
	}
	return nil
}
