package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

const (
	// refresh is how often a waiter refreshes its entry in the queue. Behind nearPositions it does so less often, in
	// proportion: a long queue must not keep the nodes busy.
	refresh       = 600 * time.Millisecond
	nearPositions = 16
	maxRefresh    = 30 * time.Second

	// entryLife is how many refreshes may fail before an entry is lost.
	entryLife = 10.0 / 3

	// spread is how much later than the waiter before it a waiter looks when the holder's key should have expired.
	spread    = time.Millisecond
	maxSpread = 100 * time.Millisecond

	// grace is how long a waiter waits for the missing votes after the first wake-up, if the quorum can do without
	// some of them.
	grace = 3 * time.Millisecond

	// afterFailure is the average pause while there is no quorum to ask.
	afterFailure = 100 * time.Millisecond
)

// waiter is a call of Lock or TryLock, from its first attempt to its last. It has one ticket, and one entry in the queue
// of every node, for all of its attempts. Each attempt has an owner of its own.
//
// Every attempt names a successor: an owner to whom a cell hands the lock when the lock is released and the waiter is
// the first in the queue. When the cells that have handed over win the tree, the waiter has the lock, without another
// attempt. The next attempt takes over earlier handoffs.
//
// After a failed attempt, a cell is open to the waiter if the lock is free there and the waiter is the first in the
// queue. A cell is busy if the waiter is queued there. The waiter tries again when the open cells, and the busy ones
// that have called it or handed it the lock, win the tree.
type waiter struct {
	lock    *Lock
	id      quorumlock.Owner
	ticket  int64
	tries   bool       // a TryLock: nothing is handed to it, since it does not listen
	callers func() int // the calls of this process that it stands for
	secret  string
	signal  chan struct{} // something has changed; capacity 1

	mu       sync.Mutex
	attempts int     // begun so far
	trial    *tenure // the last of them
	contests int     // attempts that were refused somewhere
	finished bool    // the call has its lease, or has given up: no entry may be left anywhere
	strayed  int     // the first attempt after which it may be queued without anybody knowing, 0 if there is none
	seats    []seat
	since    time.Time // before the last attempt was sent
	held     bool      // the lock is held by the successor of the last attempt
	soon     bool      // told to look often
	heard    []Node
	foreign  []func()         // stop listening to Redisson's channel
	met      quorumlock.Owner // who had a member of a MultiLock that is tried
	warned   bool             // the lack of a quorum is logged; used only by the goroutine that waits
}

// seat is what a waiter knows of one cell.
type seat struct {
	open     bool
	busy     bool
	woken    bool
	handed   uint64        // the token with which the successor has the lock here, 0 if it has not
	position int           // in the queue, 0 is the first
	until    time.Duration // how long the cell may go on refusing, counted from its refusal
	cleared  bool          // what a successor was handed here was given back
}

// newWaiter returns the waiter of a call with that ticket.
func newWaiter(l *Lock, ticket int64, callers func() int) *waiter {
	w := &waiter{
		lock:    l,
		id:      l.client.newOwner(),
		ticket:  ticket,
		callers: callers,
		signal:  make(chan struct{}, 1),
		seats:   make([]seat, len(l.cells)),
	}
	return w
}

// register gives the waiter a secret, and makes it known to the client: from then on messages reach it.
func (w *waiter) register() {
	w.secret = rand.Text()
	c := w.lock.client
	c.waitersMu.Lock()
	defer c.waitersMu.Unlock()
	c.waiters[w.id] = w
}

// entry returns the waiter's entry in the queue, which outlives a few failed refreshes.
func (w *waiter) entry() scripts.Entry {
	life, callers := w.life(), w.callers()
	w.mu.Lock()
	defer w.mu.Unlock()
	e := scripts.Entry{Waiter: w.id, Ticket: w.ticket, TTL: life, Callers: callers}
	if !w.tries {
		e.Successor = scripts.Successor{Attempt: w.attempts, TTL: w.lock.handTTL(), Secret: w.secret}
	}
	return e
}

// life is how long its entry is kept without a refresh.
func (w *waiter) life() time.Duration { return time.Duration(entryLife * float64(w.refreshAfter())) }

// refreshAfter is how long after the last attempt the waiter refreshes its entry, by the position it had then.
func (w *waiter) refreshAfter() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	furthest := 0
	for _, s := range w.seats {
		furthest = max(furthest, s.position)
		if s.open { // it is the first there, and would be taken for dead
			return refresh
		}
	}
	if furthest <= nearPositions || w.soon {
		return refresh
	}
	return min(refresh*time.Duration(furthest)/nearPositions, maxRefresh)
}

// begin is called before an attempt, whose answers say again where the waiter is queued. Wake-ups from here on count
// for the wait after the attempt.
func (w *waiter) begin(t *tenure) (attempt int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts++
	w.trial = t
	w.since = w.lock.client.now()
	for i := range w.seats {
		w.seats[i] = seat{position: w.seats[i].position}
	}
	return w.attempts
}

// tolerance is how long an attempt that was refused somewhere waits for the nodes that have not answered. Otherwise
// contenders that have some of the living nodes each would all wait for the silent ones. It is a few round trips, as
// these nodes took lately, and doubles with every attempt: in the end a node that has become slow gets its time.
func (t *tenure) tolerance() time.Duration {
	limit := t.lock.set.NodeTimeout
	longest := grace
	if t.waiter.tries { // a TryLock has only one attempt if nobody contends
		longest = limit / 24
	}
	t.mu.Lock()
	for _, p := range t.lock.parts {
		if len(t.answered(p, unanswered).cells) > 0 {
			longest = max(longest, 3*t.lock.client.health.roundTrip(p.node, limit/24))
		}
	}
	t.mu.Unlock()
	w := t.waiter
	w.mu.Lock()
	defer w.mu.Unlock()
	w.contests++
	return min(longest<<min(w.contests-1, 10), limit)
}

// overtaken reports whether a later attempt has begun.
func (w *waiter) overtaken(attempt int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attempts > attempt
}

// refused notes that a cell has refused the waiter, and that the waiter is queued there.
func (w *waiter) refused(cell int, a scripts.Answer) {
	w.change(func() {
		s := &w.seats[cell]
		s.busy, s.position, s.until = true, a.Position, a.TTL
	})
}

// stray notes that an answer to an attempt was lost, or came after the next attempt had begun: the two may have
// overtaken each other.
func (w *waiter) stray(attempt int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.strayed == 0 || attempt < w.strayed {
		w.strayed = attempt
	}
}

// mayStray reports whether a node may still have the waiter in its queue because of an attempt before that one, even
// though all nodes that answered have removed it.
func (w *waiter) mayStray(before int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.strayed > 0 && w.strayed < before
}

// yielded notes that the waiter is back in the queue of a cell.
func (w *waiter) yielded(cell int, open bool) {
	w.change(func() {
		s := &w.seats[cell]
		s.open, s.busy = open, !open
	})
}

// turn notes that a cell has called the waiter.
func (w *waiter) turn(c Cell) {
	w.change(func() {
		if i := indexOf(w.lock.cells, c); i >= 0 {
			w.seats[i].woken = true
		}
	})
}

// missed notes that a node may have sent the waiter a message that was lost.
func (w *waiter) missed(n Node) {
	w.change(func() {
		for i, c := range w.lock.cells {
			if c.Node == n {
				w.seats[i].woken = true
			}
		}
	})
}

// next notes that the waiter is the second in the queue: it refreshes as often as the first.
func (w *waiter) next() { w.change(func() { w.soon = true }) }

func (w *waiter) change(f func()) {
	w.mu.Lock()
	f()
	if w.trial != nil {
		w.trial.look()
	}
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// wait returns nil when it is time for the next attempt, and an error when ctx is done. last says why the last
// attempt failed.
func (w *waiter) wait(ctx context.Context, last error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.listen()
	due := time.Now().Add(w.pauseAfter(last))
	pause := time.NewTimer(time.Until(due))
	defer pause.Stop()
	var patience <-chan time.Time // until the missing votes are no longer waited for
	soon := w.isSoon()
	var entered <-chan struct{} // closed when a lock is acquired for an owner that is named
	if w.lock.set.Owner != "" {
		var has bool
		if has, entered = w.lock.client.enters(w.lock); has {
			return nil
		}
	}
	for {
		now := w.look()
		if now.handed || now.ready && now.woken {
			return nil
		}
		// Open cells alone can make a quorum: the attempt met leftovers of the one before, which are gone by now. And
		// handoffs that make no quorum must not be kept: somebody else may have the rest.
		if (now.ready || now.woken && now.promising || now.lent) && patience == nil {
			patience = time.After(grace)
		}
		if !soon && w.isSoon() {
			soon = true
			if time.Until(due) > refresh {
				pause.Reset(refresh)
			}
		}
		select {
		case <-w.signal:
		case <-patience:
			return nil
		case <-pause.C:
			return nil
		case <-entered: // by some owner, for some lock
			var has bool
			if has, entered = w.lock.client.enters(w.lock); has {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-w.lock.client.stopping:
			return quorumlock.ErrClosed
		}
	}
}

// outlook is how near the waiter is to its turn.
type outlook struct {
	woken     bool // a cell that was busy has called it
	ready     bool // the cells that are open, have called it or were handed to it make a quorum
	promising bool // these cells may still become a quorum
	lent      bool // some cell has handed it the lock
	handed    bool // a quorum of the cells has handed it the lock
}

func (w *waiter) look() (now outlook) {
	w.mu.Lock()
	defer w.mu.Unlock()
	votes := make([]Vote, len(w.seats))
	for i, s := range w.seats {
		now.lent = now.lent || s.handed > 0
		now.woken = now.woken || s.busy && s.woken || s.handed > 0
		if s.open || s.busy && s.woken || s.handed > 0 {
			votes[i] = Yes
		}
	}
	now.ready = w.lock.tree.Tally(votes) == Won
	now.promising = w.lock.tree.Promising(votes)
	now.handed = now.lent && w.isHanded()
	return now
}

func (w *waiter) isSoon() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.soon
}

// pauseAfter is the longest time to wait: until the entry is due for a refresh, or until the holder's keys expire if
// they are not renewed. It is shorter while there is no quorum to ask.
func (w *waiter) pauseAfter(last error) time.Duration {
	if _, ok := errors.AsType[*quorumlock.QuorumError](last); ok || !errors.Is(last, quorumlock.ErrHeld) {
		if !w.warned {
			w.warned = true
			w.lock.set.Logger.Warn("quorumlock: no quorum, trying again until there is one", "lock", w.lock.name, "error", last)
		}
		return w.lock.client.jitter(afterFailure)
	}
	w.warned = false
	pause := w.refreshAfter()
	w.mu.Lock()
	defer w.mu.Unlock()
	if expiry, furthest := w.expiry(); expiry > 0 {
		pause = min(pause, expiry+spread+min(time.Duration(furthest)*spread, maxSpread))
	}
	return pause
}

// expiry returns after how long the lock may be free at a quorum because keys expire, 0 if unknown, and the furthest
// position in the queues. It is called with mu held.
func (w *waiter) expiry() (soonest time.Duration, furthest int) {
	votes := make([]Vote, len(w.seats))
	for i, s := range w.seats {
		if s.open || s.handed > 0 {
			votes[i] = Yes
		}
		if s.busy {
			furthest = max(furthest, s.position)
		}
	}
	for w.lock.tree.Tally(votes) != Won {
		next := -1
		for i, s := range w.seats {
			if votes[i] != Yes && s.busy && s.until > 0 && (next < 0 || s.until < w.seats[next].until) {
				next = i
			}
		}
		if next < 0 {
			return 0, furthest
		}
		votes[next], soonest = Yes, w.seats[next].until
	}
	return soonest, furthest
}

// jitter returns a random duration between half of d and one and a half times d.
func jitter(d time.Duration) time.Duration { return d/2 + mathrand.N(d) }

// listen subscribes at the nodes when it is first called.
func (w *waiter) listen() {
	if w.heard != nil || w.isFinished() { // heard and foreign belong to the goroutine of the call
		return
	}
	for _, p := range w.lock.parts {
		w.lock.client.listen(p.node)
		w.heard = append(w.heard, p.node)
	}
	if !w.lock.set.Redisson {
		return
	}
	for i, c := range w.lock.cells {
		w.foreign = append(w.foreign, c.Node.Listen(scripts.UnlockChannel(c.Name), func(string) { w.released(i) }))
	}
}

// released notes that somebody has released the lock at a cell. It concerns only the first in the queue: Redisson's
// clients do not know the queue, so their releases call nobody in it.
func (w *waiter) released(cell int) {
	w.change(func() {
		if w.seats[cell].position == 0 {
			w.seats[cell].woken = true
		}
	})
}

// finish is called when the lock is won or given up: from here on, every call that may have left an entry behind
// removes it. It may be called again.
func (w *waiter) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = true
}

// undecided reports whether the last attempt of a TryLock was refused although it is not certain that somebody has the
// lock, or will have it: no single contender has enough of the nodes. A hold of this client that has ended does not
// count; its release may not have arrived everywhere.
//
// Whoever has one member of a MultiLock may be another contender, which lacks the members that this one has. So such a
// refusal is final only if this contender has nothing, or meets the same one again. It returns who was met.
func (w *waiter) undecided() (is bool, met quorumlock.Owner) {
	t := w.trial
	t.mu.Lock()
	defer t.mu.Unlock()
	refusals, grants := 0, 0
	for _, c := range t.cells {
		if c.state == granted {
			grants++
		}
		if c.state != refused {
			continue
		}
		refusals++
		who := scripts.Base(c.why.Holder)
		if who == "" || c.why.Free || w.lock.client.ended(who) {
			continue
		}
		votes, rest, taken := make([]Vote, len(t.cells)), make([]Vote, len(t.cells)), make([]bool, len(t.cells))
		for i, d := range t.cells {
			rest[i] = Yes
			if d.state == refused && !d.why.Free && scripts.Base(d.why.Holder) == who {
				votes[i], rest[i], taken[i] = Yes, No, true
			}
		}
		switch {
		case w.lock.tree.Tally(votes) == Won:
			return false, who
		case !w.lock.tree.Broken(taken) && w.lock.tree.Tally(rest) != Lost:
		case who == w.met:
			return false, who
		default:
			met = who
		}
	}
	return refusals > 0 && (grants > 0 || met == ""), met
}

// isFinished reports whether no entry of the waiter may be left anywhere.
func (w *waiter) isFinished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished
}

// leave gives up the wait: the turn is passed on at every node. Where the last attempt has yet to be answered, the
// waiter leaves when the answer comes.
func (w *waiter) leave(ctx context.Context) {
	w.finish()
	t := w.trial
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range w.lock.parts {
		if q := t.answered(p, granted, refused, unknown, quarantined); len(q.cells) > 0 {
			w.lock.client.start(func() { w.lock.leave(ctx, q, w) })
		}
	}
}

// close ends the wait when the call returns.
func (w *waiter) close() {
	w.finish()
	c := w.lock.client
	c.waitersMu.Lock()
	delete(c.waiters, w.id)
	c.waitersMu.Unlock()
	for _, n := range w.heard {
		c.unlisten(n)
	}
	for _, stop := range w.foreign {
		stop()
	}
}
