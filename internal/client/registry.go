package client

import (
	"crypto/rand"
	"encoding/binary"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
)

// waiterOf returns the waiter of a call, and the owner of its first attempt. Both share one
// allocation.
func (c *Client) waiterOf(number uint64) (waiter, first quorumlock.Owner) {
	var memory [128]byte
	b := append(append(memory[:0], c.id...), ':')
	b = strconv.AppendUint(b, number, 10)
	first = quorumlock.Owner(append(b, ".1"...)) // as wire.OwnerOf
	return first[:len(b)], first
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
func (c *Client) waiter(o quorumlock.Owner) *session {
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
	over := c.live[n] == nil && !c.former.Keeps(n, c.mono())
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
	now := c.mono()
	c.former.Turn(now, engine.EndedMemory)
	c.former.Keep(number, now+min(d, math.MaxInt64-now), now)
}

// remember keeps the calls of waiters among the recent ones: their releases are pending.
func (c *Client) remember(waiters []quorumlock.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range waiters {
		if n, ok := c.numberOf(o); ok {
			c.former.Refresh(n)
		}
	}
}

// enlist adds a call to live: messages reach it from now on.
func (c *Client) enlist(w *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[w.number] = w
}

// hold records that a call has the lock. It returns ErrClosed once the client has been stopped.
func (c *Client) hold(now core.Time, w *session) error {
	c.renewals.hold(w.lock, 1)
	held, err := c.addHolder(now, w)
	if !held {
		c.renewals.hold(w.lock, -1)
	}
	return err
}

func (c *Client) addHolder(now core.Time, w *session) (held bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops {
		return false, quorumlock.ErrClosed
	}
	if c.live[w.number] != w { // it is lost already
		return false, nil
	}
	w.holds = true
	c.held++
	c.addHold(w, w.lock.spots("", true))
	if o := w.lock.set.Owner; o != "" {
		c.addHold(w, w.lock.spots(o, true))
	}
	if c.clock == nil {
		c.clock = time.AfterFunc(engine.ClockCheck, c.compareClocks)
		c.seen = now
	} else if c.held == 1 {
		c.clock.Reset(engine.ClockCheck)
		c.seen = now
	}
	return true, nil
}

// forget removes a call that has failed, or has no hold any more. It may be called again.
func (c *Client) forget(w *session) {
	if held := c.dropCall(w); held {
		c.renewals.hold(w.lock, -1)
	}
}

func (c *Client) dropCall(w *session) (held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live[w.number] != w {
		return false
	}
	delete(c.live, w.number)
	// Its last requests may take the node timeout.
	c.former.Turn(c.mono(), max(engine.EndedMemory, 2*w.lock.set.NodeTimeout))
	c.former.Add(w.number)
	if w.holds {
		c.held--
		if c.held == 0 {
			c.clock.Stop()
		}
		c.holders.remove(w.links)
		w.links = nil
		c.paces.end(w.lock)
	}
	c.checkIdle()
	return w.holds
}

// spot is the key by which a hold and a call of one owner find each other: the names of a lock, or
// a name that the hold shares and the call wants alone.
type spot struct {
	owner  quorumlock.Owner // "" for the holds of all owners
	names  string
	shared bool // names is a single name, which the hold shares
}

// spots returns the spots of an owner's holds of l if holds is set, and otherwise those of its
// calls for l. Equal locks have a spot in common. Other locks have one only for a shared name.
func (l *Lock) spots(o quorumlock.Owner, holds bool) iter.Seq[spot] {
	return func(yield func(spot) bool) {
		more, last := yield(spot{owner: o, names: l.names}), ""
		for i := 0; more && o != "" && i < len(l.cells); i++ {
			if c := &l.cells[i]; c.Shared == holds && c.Permits == 0 && c.Name != last {
				last = c.Name
				more = yield(spot{o, c.Name, true})
			}
		}
	}
}

// link is a hold, or a waiting call of Lock, at a spot.
type link struct {
	at           spot
	session      *session      // nil for a waiting call
	entered      chan struct{} // of a waiting call: see awaitOwner
	older, newer *link         // neighbours at the spot
	next         *link         // of the same call, at its next spot
}

// index has the latest link at each spot; guarded by Client.mu, like its links.
type index map[spot]*link

func (x index) add(k *link) *link {
	if k.older = x[k.at]; k.older != nil {
		k.older.newer = k
	}
	x[k.at] = k
	return k
}

// remove removes the links of a call.
func (x index) remove(k *link) {
	for ; k != nil; k = k.next {
		if k.older != nil {
			k.older.newer = k.newer
		}
		switch {
		case k.newer != nil:
			k.newer.older = k.older
		case k.older != nil:
			x[k.at] = k.older
		default:
			delete(x, k.at)
		}
	}
}

// addHold adds a hold at spots, and wakes the calls that wait there. The caller holds mu.
func (c *Client) addHold(w *session, spots iter.Seq[spot]) {
	for at := range spots {
		k := &w.link
		if w.links != nil {
			k = new(link)
		}
		*k = link{at: at, session: w, next: w.links}
		w.links = c.holders.add(k)
		for k := c.waiters[at]; k != nil; k = k.older {
			select {
			case k.entered <- struct{}{}:
			default: // already woken
			}
		}
	}
}

// share records that other owners may share a hold whose cells were all exclusive.
func (c *Client) share(w *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live[w.number] == w {
		c.addHold(w, w.lock.spots(w.lock.set.Owner, false))
	}
}

// awaitOwner begins a wait for l, and stop ends it. entered receives a value when the result of
// enters may have become true. entered is nil if l has no owner.
func (c *Client) awaitOwner(l *Lock) (entered <-chan struct{}, stop func()) {
	if l.set.Owner == "" {
		return nil, func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wakes := make(chan struct{}, 1)
	var all *link
	for at := range l.spots(l.set.Owner, false) {
		all = c.waiters.add(&link{at: at, entered: wakes, next: all})
	}
	return wakes, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiters.remove(all)
	}
}

// holderOf returns the owner of this client that holds l, or "".
func (c *Client) holderOf(l *Lock) quorumlock.Owner {
	c.mu.Lock()
	k := c.holders[spot{names: l.names}]
	for k != nil && !k.session.lock.same(l) {
		k = k.older
	}
	c.mu.Unlock()
	if k == nil || !k.session.alive() {
		return ""
	}
	return k.session.Owner()
}

// enters reports whether the owner of l has l, or shares a cell that l would hold alone: then the
// call must not wait.
func (c *Client) enters(l *Lock) bool {
	return c.holdOf(l.set.Owner, l, func(w *session) bool { return w.includes(l) || w.shares(l) }) != nil
}

// find returns the hold of an owner that includes l, or nil.
func (c *Client) find(o quorumlock.Owner, l *Lock) *session {
	return c.holdOf(o, l, func(w *session) bool { return w.includes(l) })
}

// sharer returns the hold of an owner that shares a cell that l would hold alone, or nil.
func (c *Client) sharer(o quorumlock.Owner, l *Lock) *session {
	return c.holdOf(o, l, func(w *session) bool { return w.shares(l) })
}

// holdOf returns a hold of an owner for which is returns true, or nil. is may return true only for
// holds that include l, or share a cell that l would hold alone.
func (c *Client) holdOf(o quorumlock.Owner, l *Lock, is func(*session) bool) *session {
	n, own := c.numberOf(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.live[n]; own && w != nil && w.holds && is(w) {
		return w
	}
	for at := range l.spots(o, false) {
		for k := c.holders[at]; k != nil; k = k.older {
			if is(k.session) {
				return k.session
			}
		}
	}
	return nil
}
