// Package quorum is the one engine of all kinds of locks: k of n members, nested, in parallel. A
// node's Mutex is one cell, a RedLock is a majority of cells, a MultiLock is every one of its members.
//
// The life of a lease, and where to read it:
//
//	lock.go      Lock, TryLock: re-entrancy, attempts, waiting between them
//	line.go      the line of callers in this process
//	wait.go      standing in line at the nodes; wake.go: being told
//	hand.go      having the lock handed over, without another attempt
//	attempt.go   one attempt, whole: fan-out, tally, fencing, validity
//	tenure.go    what is held: leases, deadline, loss
//	release.go   giving back what was held, and what a failed attempt had got
//	renew.go     rounds of renewal, for the watchdog and Extend
//	client.go    what the locks of one client share: its identity, goroutines, watchdog
//	tree.go      which votes win (pure)
package quorum

import (
	"container/heap"
	"context"
	"fmt"
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
	id     string        // the uuid in its owners
	tenure atomic.Uint64 // the last number given to an owner
	token  atomic.Uint64 // the highest fencing token seen

	now    func() time.Time                  // both clocks
	jitter func(time.Duration) time.Duration // see jitter

	done  chan struct{}  // closed by Close
	calls sync.WaitGroup // what callers are in the midst of; none begins once closed
	group errgroup.Group // every goroutine; one starts only from a call or from another

	mu      sync.Mutex
	closed  bool
	held    map[quorumlock.Owner]*tenure
	named   map[quorumlock.Owner][]*tenure // those acquired for a WithOwner
	entered chan struct{}                  // closed, and replaced, when a lock is acquired for a WithOwner
	lines   map[Cell][]*line               // the local lines, by the first cell of their lock
	ears    map[Node]*ear
	due     schedule    // those to renew, but for the ones in a round
	timer   *time.Timer // the watchdog's next tick
	next    time.Time   // when that is; zero if none is set
	seen    time.Time   // both clocks at the last tick

	waitersMu sync.Mutex // apart from mu: nodes call heard while mu is held, when they are told to listen
	waiters   map[quorumlock.Owner]*waiter
}

// NewClient returns a client with an identity of its own. It starts nothing.
func NewClient() *Client {
	return &Client{
		id:      quorumlock.NewID(),
		now:     time.Now,
		jitter:  jitter,
		done:    make(chan struct{}),
		held:    make(map[quorumlock.Owner]*tenure),
		named:   make(map[quorumlock.Owner][]*tenure),
		entered: make(chan struct{}),
		lines:   make(map[Cell][]*line),
		ears:    make(map[Node]*ear),
		waiters: make(map[quorumlock.Owner]*waiter),
	}
}

// Simulate replaces where c has the time and its random pauses from: a simulation gives every client a wall
// clock of its own, and the same pauses in every run. It is called before c is used.
func (c *Client) Simulate(now func() time.Time, jitter func(time.Duration) time.Duration) {
	c.now, c.jitter = now, jitter
}

// Close makes every lease that is still held count as lost, ends the calls that wait, and returns when
// no goroutine is left. The keys of those leases stay until their TTL: their holders may be at work yet.
func (c *Client) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.done)
	}
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
	c.calls.Wait()
	_ = c.group.Wait() // its functions return no error
}

// begin is called before anything that may start goroutines, and end after it.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return quorumlock.ErrClosed
	}
	c.calls.Add(1)
	return nil
}

func (c *Client) end() { c.calls.Done() }

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
	c.group.Go(func() error {
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

// newOwner returns an owner that no attempt before has used: whatever message of an earlier attempt is
// still under way cannot touch the next.
func (c *Client) newOwner() quorumlock.Owner {
	return quorumlock.Owner(fmt.Sprintf("%s:%d", c.id, c.tenure.Add(1)))
}

// maxHint is where a clock stops being believed: 2^52 µs is in the year 2112. Tokens end at 2^53.
const maxHint = 1 << 52

// Hint returns a fencing token that is most likely higher than any given out before: one more than the
// highest seen, or the wall clock in µs if that is higher. With it the nodes mostly agree at once, and
// tokens go on rising after every counter is lost.
func (c *Client) Hint() uint64 {
	return max(c.token.Load()+1, uint64(min(max(c.now().UnixMicro(), 0), maxHint)))
}

// saw remembers a token, unless it is so high that it would use up the tokens of other locks.
func (c *Client) saw(token uint64) {
	if token > maxHint {
		return
	}
	for old := c.token.Load(); token > old; old = c.token.Load() {
		if c.token.CompareAndSwap(old, token) {
			return
		}
	}
}

// keep begins to look after a tenure that has been won.
func (c *Client) keep(t *tenure, due time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
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
