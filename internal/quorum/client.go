// Package quorum is the one engine of all kinds of locks: k of n members, nested, in parallel. A
// node's Mutex is one cell, a RedLock is a majority of cells, a MultiLock is every one of its members.
//
// The life of a lease, and where to read it:
//
//	lock.go        Lock, TryLock: re-entrancy, attempts, waiting between them
//	localqueue.go  the callers of this process, of which a few go to the nodes
//	wait.go        waiting in the queues of the nodes
//	wake.go        the messages that wake waiters
//	hand.go        taking over a lock that was handed over, without another attempt
//	attempt.go     one whole attempt: fan-out, tally, fencing, validity
//	tenure.go      holds: leases, deadline, loss
//	release.go     giving back what was held, and what a failed attempt had got
//	renew.go       rounds of renewal, for the watchdog and Extend
//	client.go      what the locks of one client share: its identity, goroutines, watchdog
//	debts.go       giving back later what could not be sent to a node at once
//	health.go      which nodes are down; each change is logged once
//	tree.go        which votes win (pure)
package quorum

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// Node is a server on which locks are kept.
type Node interface {
	fmt.Stringer

	// Send runs scripts in one round trip, each exactly once, and returns a reply for each, at ctx's
	// deadline at the latest.
	Send(ctx context.Context, calls ...scripts.Call) []scripts.Reply

	// Listen calls heard with every message on the channel, and with "" when some may have been missed.
	Listen(channel string, heard func(message string)) (stop func())
}

// Client is what the locks of one client share. It is safe for concurrent use.
type Client struct {
	id     string        // `<label>~<uuid>`: the client in its owners
	tenure atomic.Uint64 // the last number given to an owner

	now    func() time.Time                  // both clocks
	jitter func(time.Duration) time.Duration // see jitter

	stopping chan struct{}  // closed by Shutdown, or by Close: from then on nothing is acquired
	calls    sync.WaitGroup // calls under way; none begins once closed
	group    errgroup.Group // every goroutine; one starts only from a call or from another
	running  atomic.Int64   // calls and goroutines under way; once it is 0, only a timer or a new call starts more

	mu      sync.Mutex
	closed  bool
	stops   bool          // stopping is closed
	ticket  int64         // the last given to a call
	idle    chan struct{} // closed when no lease is left and nothing is under way; set by Shutdown
	held    map[quorumlock.Owner]*tenure
	tries   map[quorumlock.Owner]bool      // attempts under way, and the waiters of TryLocks
	kept    map[quorumlock.Owner]time.Time // until when the nodes keep what UnlockAfter has left
	named   map[quorumlock.Owner][]*tenure // those acquired for a WithOwner
	entered chan struct{}                  // closed, and replaced, when a lock is acquired for a WithOwner
	queues  map[Cell][]*localQueue         // the local queues, by the first cell of their lock
	ears    map[Node]*ear
	due     schedule    // the tenures to renew, except those in a round
	timer   *time.Timer // the watchdog's next tick
	next    time.Time   // when that is; zero if none is set
	seen    time.Time   // both clocks at the last tick

	waitersMu sync.Mutex // apart from mu: nodes call heard from Listen, which is called with mu held
	waiters   map[quorumlock.Owner]*waiter

	debts  debts
	health health
}

// NewClient returns a client with an identity of its own, which begins with the label. It starts nothing.
func NewClient(label string) *Client {
	return &Client{
		id:       label + "~" + quorumlock.NewID(),
		now:      time.Now,
		jitter:   jitter,
		stopping: make(chan struct{}),
		held:     make(map[quorumlock.Owner]*tenure),
		tries:    make(map[quorumlock.Owner]bool),
		kept:     make(map[quorumlock.Owner]time.Time),
		named:    make(map[quorumlock.Owner][]*tenure),
		entered:  make(chan struct{}),
		queues:   make(map[Cell][]*localQueue),
		ears:     make(map[Node]*ear),
		waiters:  make(map[quorumlock.Owner]*waiter),
	}
}

// Simulate replaces the clock and the random pauses of c: a simulation gives every client a wall clock of its
// own, and the same pauses in every run. It is called before c is used.
func (c *Client) Simulate(now func() time.Time, jitter func(time.Duration) time.Duration) {
	c.now, c.jitter = now, jitter
}

// Close makes every lease that is still held count as lost, ends the calls that wait, and returns when
// no goroutine is left. The keys of those leases stay until their TTL: their holders may still be at work.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.stop()
	var held []*tenure
	for _, t := range c.held {
		held = append(held, t)
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.deafen()
	c.mu.Unlock()
	for _, t := range held {
		t.lose("the client was closed")
	}
	c.forgive()
	c.calls.Wait()
	_ = c.group.Wait() // its functions return no error
}

// stop ends acquiring. It is called with mu held.
func (c *Client) stop() {
	if !c.stops {
		c.stops = true
		close(c.stopping)
	}
}

// Shutdown refuses new calls of Lock and TryLock, and ends those that wait, with ErrClosed. It returns when every
// lease has been unlocked or lost and everything has been given back, or with ctx's error when ctx is done. It closes
// nothing: call Close after it.
func (c *Client) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	c.stop()
	if c.idle == nil {
		c.idle = make(chan struct{})
		c.checkIdle()
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.debts.wait(ctx)
}

// ran is called when a call or a goroutine is over. What an abandoned attempt has got is given back in goroutines, so
// Shutdown waits for the last of them.
func (c *Client) ran() {
	if c.running.Add(-1) > 0 {
		return
	}
	select {
	case <-c.stopping:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.checkIdle()
	default:
	}
}

// checkIdle is called with mu held.
func (c *Client) checkIdle() {
	if c.idle == nil || len(c.held) > 0 || c.running.Load() > 0 {
		return
	}
	select {
	case <-c.idle:
	default:
		close(c.idle)
	}
}

// begin is called before anything that may start goroutines, and end after it.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return quorumlock.ErrClosed
	}
	c.calls.Add(1)
	c.running.Add(1)
	return nil
}

func (c *Client) end() {
	c.ran()
	c.calls.Done()
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Go runs f in a goroutine that Close waits for, or returns ErrClosed.
func (c *Client) Go(f func()) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	c.start(f)
	return nil
}

// start is Go for those who have called begin, or are in a goroutine of the client.
func (c *Client) start(f func()) {
	c.running.Add(1)
	c.group.Go(func() error {
		defer c.ran()
		growStack()
		f()
		return nil
	})
}

// growStack makes room on the goroutine's stack for a round trip while there is little on it to copy: it
// would grow several times on the way down through the Redis client otherwise.
//
//go:noinline
func growStack() {
	var room [5 << 10]byte
	use(&room)
}

//go:noinline
func use(*[5 << 10]byte) {}

// newOwner returns an owner that no earlier attempt has used: a message of an earlier attempt that is still
// under way cannot touch the next.
func (c *Client) newOwner() quorumlock.Owner {
	return quorumlock.Owner(fmt.Sprintf("%s:%d", c.id, c.tenure.Add(1)))
}

// Hint returns the wall clock in µs, as the least token to ask for.
func (c *Client) Hint() uint64 { return uint64(max(c.now().UnixMicro(), 0)) }

func (c *Client) nextTicket() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newTicket()
}

// trying notes that an attempt is under way, or is over.
func (c *Client) trying(o quorumlock.Owner, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is {
		c.tries[o] = true
	} else {
		delete(c.tries, o)
	}
}

// ended reports whether an owner is one of this client's that neither holds nor is trying to.
func (c *Client) ended(o quorumlock.Owner) bool {
	if !strings.HasPrefix(string(o), c.id+":") || c.waiter(o) != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[o] == nil && !c.tries[o] && !time.Now().Before(c.kept[o])
}

// keeps notes that the nodes keep the lock of an owner for that long, though its hold has ended.
func (c *Client) keeps(o quorumlock.Owner, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.kept, func(_ quorumlock.Owner, until time.Time) bool { return until.Before(now) })
	c.kept[o] = now.Add(d)
}

// holderOf returns the owner of this client that holds l, if any.
func (c *Client) holderOf(l *Lock) quorumlock.Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, t := range c.held {
		if t.lock.same(l) {
			return o
		}
	}
	return ""
}

// track starts renewing a hold that was won.
func (c *Client) track(t *tenure, due time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.stops {
		return quorumlock.ErrClosed
	}
	c.held[t.owner] = t
	if o := t.lock.set.Owner; o != "" {
		c.named[o] = append(c.named[o], t)
		close(c.entered)
		c.entered = make(chan struct{})
	}
	c.reschedule(t, due)
	return nil
}

// forget is called when a tenure is over.
func (c *Client) forget(t *tenure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, t.owner)
	if o := t.lock.set.Owner; o != "" {
		if rest := without(c.named[o], t); len(rest) > 0 {
			c.named[o] = rest
		} else {
			delete(c.named, o)
		}
	}
	if t.index >= 0 {
		heap.Remove(&c.due, t.index)
	}
	c.checkIdle()
}

func without(ts []*tenure, t *tenure) []*tenure {
	rest := ts[:0:0]
	for _, u := range ts {
		if u != t {
			rest = append(rest, u)
		}
	}
	return rest
}

// enters reports whether the named owner of l has l. It also returns a channel that is closed when a lock is next
// acquired for a named owner.
func (c *Client) enters(l *Lock) (has bool, entered <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has(l.set.Owner, l) != nil, c.entered
}

// find returns the tenure of lock that o has, if any.
func (c *Client) find(o quorumlock.Owner, lock *Lock) *tenure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has(o, lock)
}

// has is find, called with mu held.
func (c *Client) has(o quorumlock.Owner, lock *Lock) *tenure {
	if t := c.held[o]; t != nil && t.lock.same(lock) {
		return t
	}
	for _, t := range c.named[o] {
		if t.lock.same(lock) {
			return t
		}
	}
	return nil
}
