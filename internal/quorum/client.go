// Package quorum is the shell around the engine of all kinds of locks, package core: k of n members, nested, in parallel.
// A node's Mutex is one cell, a RedLock is a majority of cells, a MultiLock is every one of its members.
//
// The life of a lease, and where to read it:
//
//	lock.go           Lock, TryLock: re-entrancy, the local queue, one call
//	call.go           a call: its machine, what it sends, its timer
//	hold.go           its leases, Extend, Unlock
//	errors.go         its errors
//	latch.go          a latch, which is no lock: Done, Wait, Count; with latchround.go, latchunion.go
//	subscriptions.go  the messages that wake waiters
//	localqueue.go     the callers of this process, of which a few go to the nodes
//	client.go         what the locks of one client share: its identity, its calls, Close
//	debts.go          giving back later what could not be sent to a node at once
//	health.go         which nodes are down; each change is logged once
//
// The mutexes are taken in this order. Package lockorder has the same order, and a test of the simulation checks it:
//
//	subscriptions.mu  while a caller starts or stops listening
//	hub.mu            of package node, while somebody starts or stops listening, and while it passes on messages
//	call.mu           during a step
//	debts.mu          during a step, when a call that gives something back has failed
//	Client.mu         and those of the renewals, the health, what a lock has seen, and a node's lanes: one at a time
//
// No node is called while the mutex of a call, or one below it, is held. subscriptions.mu and hub.mu may be held: whoever hears
// a message sends the calls that it leads to. So a Node's Do must not wait, and must take neither of the two. No answer is
// delivered while the mutex of a lane is held.
package quorum

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/scripts"
)

// Node is a server on which locks are kept.
type Node interface {
	fmt.Stringer

	// Do runs scripts in this order, each exactly once, and calls answer once with a reply for each, at the deadline at the
	// latest. It keeps nothing of calls. What several Dos ask for one lock in one lane runs in the order of the Dos, unless
	// a connection breaks. answer must not block, and must not keep the slice; it may be called before Do returns.
	Do(ctx context.Context, lane Lane, deadline time.Time, calls []scripts.Call, answer func(replies []scripts.Reply))

	// Listen calls heard with every message on the channel, and with "" when some may have been missed.
	Listen(channel string, heard func(message string)) (stop func())
}

// Lane is one of the ways to a node. They do not wait for each other.
type Lane uint8

const (
	Foreground Lane = iota // somebody waits for it
	Background             // renewals, and what was owed
)

// Client is what the locks of one client share. It is safe for concurrent use.
type Client struct {
	id     string        // `<label>~<uuid>`: the client in its owners
	number atomic.Uint64 // the last given to a call

	base   time.Time                         // the clocks of the machines count from here
	now    func() time.Time                  // both clocks
	jitter func(time.Duration) time.Duration // nil but in simulations

	stopping chan struct{}  // closed by Shutdown, or by Close: from then on nothing is acquired
	lost     chan struct{}  // closed when Close has made every lease count as lost
	flight   atomic.Int64   // calls under way, here and at the nodes; none begins once closed
	gone     chan struct{}  // closed when the client is closed and none is under way
	group    errgroup.Group // every goroutine; one starts only from a call or from another

	mu      sync.Mutex
	closed  bool
	stops   bool                         // stopping is closed
	ticket  int64                        // the last given to a call
	held    int                          // holds that are not over
	idle    chan struct{}                // closed when nothing is held and nothing under way; made by Shutdown
	live    map[uint64]*call             // those that wait or hold
	kept    map[uint64]time.Time         // until when the nodes keep what UnlockAfter has left
	named   map[quorumlock.Owner][]*call // those acquired for a WithOwner
	entered chan struct{}                // closed, and replaced, when a lock is acquired for a WithOwner
	queues  map[Cell][]*localQueue       // the local queues, by the first cell of their lock
	clock   *time.Timer                  // compares the clocks while something is held
	seen    time.Time                    // both clocks when they were compared last

	subscriptions subscriptions
	renewals      renewals
	debts         debts
	health        health
}

// NewClient returns a client with an identity of its own, which begins with the label. It starts nothing.
func NewClient(label string) *Client {
	return &Client{
		id:       label + "~" + quorumlock.NewID(),
		base:     time.Now(),
		now:      time.Now,
		stopping: make(chan struct{}),
		lost:     make(chan struct{}),
		gone:     make(chan struct{}),
		live:     make(map[uint64]*call),
		kept:     make(map[uint64]time.Time),
		named:    make(map[quorumlock.Owner][]*call),
		entered:  make(chan struct{}),
		queues:   make(map[Cell][]*localQueue),
	}
}

// Simulate replaces the clock and the random pauses of c: a simulation gives every client a wall clock of its
// own, and the same pauses in every run. It is called before c is used.
func (c *Client) Simulate(now func() time.Time, jitter func(time.Duration) time.Duration) {
	c.now, c.jitter, c.base = now, jitter, now()
}

// time is now, as the machines count it.
func (c *Client) time() core.Time { return c.timeOf(c.now()) }

func (c *Client) timeOf(now time.Time) core.Time {
	return core.Time{Mono: now.Sub(c.base), Wall: now.Round(0).Sub(c.base.Round(0))}
}

// Close makes every lease that is still held count as lost, ends the calls that wait, and returns when
// no goroutine is left. The keys of those leases stay until their TTL: their holders may still be at work.
func (c *Client) Close() {
	c.mu.Lock()
	first := !c.closed
	if first {
		c.enter()
	}
	c.closed = true
	c.stop()
	c.mu.Unlock()
	if first {
		for _, w := range c.all() {
			w.step(core.Event{Kind: core.Close})
		}
		close(c.lost)
		c.mu.Lock()
		if c.clock != nil {
			c.clock.Stop()
		}
		c.mu.Unlock()
		c.subscriptions.close()
		c.forgive()
		c.End()
	}
	<-c.gone
	_ = c.group.Wait() // its functions return no error
}

// Closed returns a channel that is closed when Close has made every lease count as lost.
func (c *Client) Closed() <-chan struct{} { return c.lost }

// all returns the calls that wait or hold.
func (c *Client) all() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*call, 0, len(c.live))
	for _, w := range c.live {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *call) int { return cmp.Compare(a.number, b.number) })
	return all
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

// checkIdle is called with mu held.
func (c *Client) checkIdle() {
	if c.flight.Load() > 0 {
		return
	}
	if c.closed {
		closeOnce(c.gone)
	}
	if c.idle != nil && len(c.live) == 0 {
		closeOnce(c.idle)
	}
}

// closeOnce closes a channel that may be closed already. The caller holds the mutex that guards it.
func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// Begin is called before anything that may ask the nodes, and End after it. It returns ErrClosed once the client is closed.
// Close waits for those that have begun.
func (c *Client) Begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return quorumlock.ErrClosed
	}
	c.enter()
	return nil
}

// beginCall is Begin for a call of Lock or TryLock. Once Shutdown has begun, it returns ErrClosed. Shutdown waits for the
// calls that began before.
func (c *Client) beginCall() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops {
		return quorumlock.ErrClosed
	}
	c.enter()
	return nil
}

func (c *Client) End() {
	if c.flight.Add(-1) == 0 {
		c.mu.Lock()
		c.checkIdle()
		c.mu.Unlock()
	}
}

// enter is Begin for those who are between Begin and End already. So once the client is closed and the last call has ended,
// none is under way again.
func (c *Client) enter() {
	c.flight.Add(1)
}

// send asks a node, for somebody who has begun. answer ends with End.
func (c *Client) send(n Node, lane Lane, deadline time.Time, calls []scripts.Call, answer func([]scripts.Reply)) {
	c.enter()
	n.Do(context.Background(), lane, deadline, calls, answer)
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Go runs f in a goroutine that Close waits for, or returns ErrClosed.
func (c *Client) Go(f func()) error {
	if err := c.Begin(); err != nil {
		return err
	}
	defer c.End()
	c.start(f)
	return nil
}

// start is Go for those who have called begin, or are in a goroutine of the client.
func (c *Client) start(f func()) {
	c.enter()
	c.group.Go(func() error {
		defer c.End()
		f()
		return nil
	})
}

// waiterOf is the waiter of a call.
func (c *Client) waiterOf(number uint64) quorumlock.Owner {
	b := make([]byte, 0, len(c.id)+12)
	b = append(append(b, c.id...), ':')
	return quorumlock.Owner(strconv.AppendUint(b, number, 10))
}

// numberOf returns the number of the call that an owner belongs to, if it is of this client.
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

// waiter returns the call that an owner of this client belongs to, if it waits or holds.
func (c *Client) waiter(o quorumlock.Owner) *call {
	n, ok := c.numberOf(o)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[n]
}

// ended reports whether an owner is one of this client's that neither holds nor is trying to.
func (c *Client) ended(o quorumlock.Owner) bool {
	n, ok := c.numberOf(o)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[n] == nil && !time.Now().Before(c.kept[n])
}

// Hint returns the wall clock in µs, as the least token to ask for.
func (c *Client) Hint() uint64 { return uint64(max(c.now().UnixMicro(), 0)) }

func (c *Client) nextTicket() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newTicket()
}

// keeps notes that the nodes keep the lock of a call for that long, though its hold has ended.
func (c *Client) keeps(number uint64, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.kept, func(_ uint64, until time.Time) bool { return until.Before(now) })
	c.kept[number] = now.Add(d)
}

// enlist makes a call known: messages reach it.
func (c *Client) enlist(w *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[w.number] = w
}

// hold notes that a call has the lock, unless the client has been stopped.
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
	if o := w.lock.set.Owner; o != "" {
		c.named[o] = append(c.named[o], w)
		close(c.entered)
		c.entered = make(chan struct{})
	}
	if c.clock == nil {
		c.clock = time.AfterFunc(clockCheck, c.compareClocks)
		c.seen = c.now()
	} else if c.held == 1 {
		c.clock.Reset(clockCheck)
		c.seen = c.now()
	}
	return nil
}

// forget is called when a call has failed, or its hold is over or lost. It may be called again.
func (c *Client) forget(w *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live[w.number] != w {
		return
	}
	delete(c.live, w.number)
	if w.holds {
		c.held--
		if c.held == 0 {
			c.clock.Stop()
		}
	}
	if o := w.lock.set.Owner; o != "" {
		rest := slices.DeleteFunc(c.named[o], func(other *call) bool { return other == w })
		c.named[o] = rest
		if len(rest) == 0 {
			delete(c.named, o)
		}
	}
	c.checkIdle()
}

// clockCheck is how often the wall clock is compared with the monotonic one while something is held: the monotonic clock
// may stand still while the machine is suspended, and with it every timer.
const clockCheck = time.Second

// compareClocks has every hold look at its deadline when the clocks have gone apart.
func (c *Client) compareClocks() {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	c.mu.Lock()
	now := c.now()
	stepped := now.Round(0).Sub(c.seen.Round(0))-now.Sub(c.seen) > clockCheck/10
	c.seen = now
	if c.held > 0 {
		c.clock.Reset(clockCheck)
	}
	c.mu.Unlock()
	if stepped {
		for _, w := range c.all() {
			w.step(core.Event{Kind: core.Tick})
		}
	}
}

// holderOf returns the owner of this client that holds l, if any.
func (c *Client) holderOf(l *Lock) quorumlock.Owner {
	for _, w := range c.all() {
		if w.lock.same(l) && w.alive() {
			return w.Owner()
		}
	}
	return ""
}

// enters reports whether the named owner of l has l. It also returns a channel that is closed when a lock is next
// acquired for a named owner.
func (c *Client) enters(l *Lock) (has bool, entered <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has(l.set.Owner, l) != nil, c.entered
}

// find returns the hold of a lock that an owner has, if any.
func (c *Client) find(o quorumlock.Owner, l *Lock) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has(o, l)
}

// has is find, called with mu held.
func (c *Client) has(o quorumlock.Owner, l *Lock) *call {
	if n, ok := c.numberOf(o); ok {
		if w := c.live[n]; w != nil && w.holds && w.lock.same(l) {
			return w
		}
	}
	for _, w := range c.named[o] {
		if w.lock.same(l) {
			return w
		}
	}
	return nil
}
