package client

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
)

// registry has the waiting and holding calls of a client; guarded by Client.mu.
type registry struct {
	live    map[uint64]*session // by number
	former  engine.Ended
	held    int         // number of calls in live that hold
	holders index       // holds
	waiters index       // calls of Lock with WithOwner, until they return
	clock   *time.Timer // compares the clocks while held > 0
	seen    core.Time   // the clocks at the last comparison
}

// all returns the waiting and holding calls, the oldest first.
func (c *Client) all() []*session { return c.liveCalls(true) }

// waiting returns the waiting calls, the oldest first.
func (c *Client) waiting() []*session { return c.liveCalls(false) }

func (c *Client) liveCalls(holding bool) []*session {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*session
	for _, w := range c.live {
		if holding || !w.listed.holds {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *session) int { return cmp.Compare(a.order, b.order) })
	return all
}

// compareClocks makes every call check its deadline if the clocks have moved apart.
func (c *Client) compareClocks() {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	c.mu.Lock()
	now := c.time()
	stepped := engine.Suspended(c.seen, now)
	c.seen = now
	if c.held > 0 {
		c.clock.Reset(engine.ClockCheck)
	}
	c.mu.Unlock()
	if stepped {
		for _, w := range c.all() {
			w.step(core.Event{Kind: core.Tick})
		}
	}
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
	c.sessions++
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
	w.listed.holds = true
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
	c.sessions--
	// Its last requests may take the node timeout.
	c.former.Turn(c.mono(), max(engine.EndedMemory, 2*w.lock.set.NodeTimeout))
	c.former.Add(w.number)
	if w.listed.holds {
		c.held--
		if c.held == 0 {
			c.clock.Stop()
		}
		c.holders.remove(w.listed.links)
		w.listed.links = nil
		c.paces.end(w.lock)
	}
	c.checkIdle()
	return w.listed.holds
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

// listed is the place of a session in the registry.
type listed struct {
	holds bool  // set by Client.hold
	links *link // the hold in holders
	link  link  // the last of links
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
		k := &w.listed.link
		if w.listed.links != nil {
			k = new(link)
		}
		*k = link{at: at, session: w, next: w.listed.links}
		w.listed.links = c.holders.add(k)
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
	if w := c.live[n]; own && w != nil && w.listed.holds && is(w) {
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
