package quorum

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

const (
	// refresh is how often a waiter renews its place in line. Further back than nearPlaces it is done
	// less often, in proportion: a long line must not keep the nodes busy.
	refresh    = 600 * time.Millisecond
	nearPlaces = 16
	maxRefresh = 30 * time.Second

	// placeLife is how many refreshes may fail before a place is lost.
	placeLife = 10.0 / 3

	// grace is how long the votes that are still missing are waited for after the first wake-up, when
	// the quorum can do without some of them.
	grace = 3 * time.Millisecond

	// afterFailure is the average pause while there is no quorum to ask.
	afterFailure = 100 * time.Millisecond
)

// waiter is a call of Lock, from its first attempt to its last: its place in the line of every node. It
// has the same place and ticket in all of its attempts, each of which has an owner of its own.
//
// Every attempt names an heir: an owner to whom a cell hands the lock, when it is released and the waiter
// is the first in line. When the cells that have done so win the tree, the waiter has the lock, without
// another attempt. The next attempt takes over what its former heir was handed.
//
// After an attempt that failed, a cell is open to the waiter if the lock is free there and it is the
// first in line, and busy if it stands in line there. It tries again when the open cells, and the busy
// ones that have told it its turn or handed it the lock, win the tree.
type waiter struct {
	lock   *Lock
	id     quorumlock.Owner
	ticket int64
	signal chan struct{} // something has changed; capacity 1

	mu        sync.Mutex
	attempts  int  // begun so far
	finished  bool // the call has its lease, or has given up: no place may be left anywhere
	strayed   int  // the first attempt after which a line may have it where nobody knows, 0 if there is none
	seats     []seat
	since     time.Time // before the last attempt was sent
	heirHolds bool      // the lock is held by the heir of the last attempt
	soon      bool      // told that it is the second in line
	heard     []Node
	foreign   []func() // stop listening to Redisson's channel
}

// seat is a waiter's standing at one cell.
type seat struct {
	open   bool
	busy   bool
	woken  bool
	handed uint64        // the token with which the heir has the lock here, 0 if it has not
	place  int           // in line, 0 is the first
	until  time.Duration // the holder's TTL when the cell refused
}

func newWaiter(l *Lock) *waiter {
	w := &waiter{
		lock:   l,
		id:     l.client.newOwner(),
		ticket: l.client.now().UnixMicro(),
		signal: make(chan struct{}, 1),
		seats:  make([]seat, len(l.cells)),
	}
	c := l.client
	c.waitersMu.Lock()
	c.waiters[w.id] = w
	c.waitersMu.Unlock()
	return w
}

// place is the waiter's place in line, for as long as its refreshes take.
func (w *waiter) place() scripts.Place {
	life := time.Duration(placeLife * float64(w.refreshAfter()))
	w.mu.Lock()
	defer w.mu.Unlock()
	return scripts.Place{
		Waiter: w.id, Ticket: w.ticket, TTL: life,
		Heir: scripts.Heir{Attempt: w.attempts, TTL: w.lock.handTTL()},
	}
}

// refreshAfter is when the waiter renews its place, by the one it had last.
func (w *waiter) refreshAfter() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	furthest := 0
	for _, s := range w.seats {
		furthest = max(furthest, s.place)
		if s.open { // it is the first in line there, and would be taken for dead
			return refresh
		}
	}
	if furthest <= nearPlaces || w.soon {
		return refresh
	}
	return min(refresh*time.Duration(furthest)/nearPlaces, maxRefresh)
}

// begin is called before an attempt: its answers say anew where the waiter stands. Wake-ups from here
// on count for the wait after it.
func (w *waiter) begin() (attempt int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts++
	w.since = w.lock.client.now()
	for i := range w.seats {
		w.seats[i] = seat{place: w.seats[i].place}
	}
	return w.attempts
}

// overtaken reports whether another attempt has begun since that one.
func (w *waiter) overtaken(attempt int) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attempts > attempt
}

// refused notes that a cell has the waiter in its line. If that is open already, what the attempt before had got was
// given back meanwhile: it may have been in its own way.
func (w *waiter) refused(cell int, a scripts.Answer) {
	if w == nil {
		return
	}
	w.change(func() {
		s := &w.seats[cell]
		s.busy, s.place, s.until = true, a.Place, a.TTL
	})
}

// stray notes that an answer to an attempt was lost, or came when the next had begun and may have overtaken it.
func (w *waiter) stray(attempt int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.strayed == 0 || attempt < w.strayed {
		w.strayed = attempt
	}
}

// mayStray reports whether a line may have the waiter, from an attempt before that one, though all nodes that
// answered have let it go.
func (w *waiter) mayStray(before int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.strayed > 0 && w.strayed < before
}

// yielded notes that the waiter is back in a cell's line.
func (w *waiter) yielded(cell int, open bool) {
	w.change(func() {
		s := &w.seats[cell]
		s.open, s.busy = open, !open
	})
}

// turn notes that a cell has told the waiter that it is its turn.
func (w *waiter) turn(c Cell) {
	w.change(func() {
		if i := indexOf(w.lock.cells, c); i >= 0 {
			w.seats[i].woken = true
		}
	})
}

// missed notes that a node may have told the waiter something it has not heard.
func (w *waiter) missed(n Node) {
	w.change(func() {
		for i, c := range w.lock.cells {
			if c.Node == n {
				w.seats[i].woken = true
			}
		}
	})
}

// next notes that the waiter is the second in line: it refreshes as often as those in front.
func (w *waiter) next() { w.change(func() { w.soon = true }) }

func (w *waiter) change(f func()) {
	w.mu.Lock()
	f()
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// wait returns nil when it is time for the next attempt, and an error when ctx is done. last is why the
// attempt before failed.
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
	for {
		now := w.look()
		if now.handed || now.ready && now.woken {
			return nil
		}
		// Open cells alone make a quorum where the attempt met what the one before was yet to give back. What is
		// handed over must not be kept if it does not come to a quorum: somebody else may have the rest.
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
		case <-ctx.Done():
			return ctx.Err()
		case <-w.lock.client.done:
			return quorumlock.ErrClosed
		}
	}
}

// outlook is how near the waiter is to its turn.
type outlook struct {
	woken     bool // a cell that was busy has told it its turn
	ready     bool // the cells that are its make a quorum
	promising bool // they may yet
	lent      bool // a cell has handed it the lock
	handed    bool // a quorum of the cells has
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

// pauseAfter is how long to wait at most: until the place is due for a refresh; until the key of a
// holder who does not renew it expires, for the first in line; or less while nodes cannot be asked.
func (w *waiter) pauseAfter(last error) time.Duration {
	if _, ok := errors.AsType[*quorumlock.QuorumError](last); ok || !errors.Is(last, quorumlock.ErrHeld) {
		w.lock.set.Logger.Warn("quorumlock: no quorum, trying again", "lock", w.lock.name, "error", last)
		return w.lock.client.jitter(afterFailure)
	}
	pause := w.refreshAfter()
	w.mu.Lock()
	defer w.mu.Unlock()
	var expiry time.Duration
	for _, s := range w.seats {
		if s.busy && s.place == 0 {
			expiry = max(expiry, s.until)
		}
	}
	if expiry > 0 {
		pause = min(pause, expiry+time.Millisecond)
	}
	return pause
}

// jitter is a random duration from half of d to one and a half of it.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// listen opens the waiter's ears, on its first wait.
func (w *waiter) listen() {
	if w.heard != nil {
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

// released notes that somebody has released the lock at a cell. It concerns the first in line only:
// one of the Java clients, which do not know the line, wakes nobody in it.
func (w *waiter) released(cell int) {
	w.change(func() {
		if w.seats[cell].place == 0 {
			w.seats[cell].woken = true
		}
	})
}

// finish is called when the lock is won or given up: from here on, whatever call may have left a place
// behind takes it back. It may be called again.
func (w *waiter) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = true
}

// isFinished reports whether the waiter may stand in no line any more. No waiter is finished: it never
// stood in one.
func (w *waiter) isFinished() bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished
}

// leave gives up the wait: the turn is passed on, at every node.
func (w *waiter) leave(ctx context.Context) {
	w.finish()
	for _, p := range w.lock.parts {
		w.lock.client.start(func() { w.lock.leave(ctx, p, w) })
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
