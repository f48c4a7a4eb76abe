// Package quorum is the shell around the engine of all kinds of locks, package core: k of n members, nested, in parallel.
// A node's Mutex is one cell, a RedLock is a majority of cells, a MultiLock is every one of its members.
//
// The life of a lease, and where to read it:
//
//	lock.go           Lock, TryLock: re-entrancy, the local queue, one call
//	multi.go          the lock of several locks: a MultiLock, its limits
//	call.go           a call: its machine, what it sends, its timer
//	hold.go           its leases, Extend, Unlock
//	attach.go         Detach and Attach; with parked.go, the text of a detached hold
//	errors.go         its errors
//	observe.go        what an Observer learns of a call and its hold
//	latch.go          a latch, which is no lock: Done, Wait, Count; with latchround.go, latchlook.go
//	subscriptions.go  the messages that wake waiters
//	strangers.go      clients of Redisson's at the same locks: hearing their releases, and leaving them their share
//	firstmember.go    the member that a RedissonMultiLock releases first
//	tickets.go        the tickets of calls, by the clocks of the nodes
//	localqueue.go     the callers of this process, of which a few go to the nodes
//	client.go         what the locks of one client share: its identity, its clock, Close
//	registry.go       the calls of a client: which of them wait or hold, and for which owners
//	retry.go          pending releases: sent again until the node has confirmed them
//	health.go         which nodes are down; each change is logged once
//
// The mutexes are taken in this order. Package lockorder has the same order, and a test of the simulation checks it:
//
//	subscriptions.mu  while a caller starts or stops listening
//	hub.mu            of package transport, while a caller starts or stops listening, and while a hub passes on messages
//	call.mu           during a step
//	retryQueue.mu     during a step, after a failed release or leave
//	Client.mu         and those of the renewals, the strangers, the health, what a lock has seen, and a node's lanes: one at a time
//
// No node is called while the mutex of a call, or one below it, is held. subscriptions.mu and hub.mu may be
// held: whoever hears a message sends the calls that it leads to. So a Node's Do must not wait, and must take neither of the two.
// No answer is delivered while the mutex of a lane is held.
package quorum

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Node is a server on which locks are kept.
type Node interface {
	fmt.Stringer

	// Do runs scripts in this order, each exactly once, and calls answer once with a reply for each, at the deadline at the
	// latest. It keeps nothing of calls. What several Dos ask for one lock in one lane runs in the order of the Dos, unless
	// a connection breaks. answer must not block, and must not keep the slice; it may be called before Do returns.
	//
	// If the calls give back the first attempt of their waiter, and nothing else of the waiter was sent, the node may drop
	// both Dos and answer them with [wire.ErrRecalled].
	Do(ctx context.Context, lane Lane, deadline time.Time, calls []wire.Call, answer func(replies []wire.Reply))

	// Listen calls heard with every message on the channel, and with "" when some may have been missed.
	Listen(channel string, heard func(message string)) (stop func())
}

// Lane is one of the ways to a node. They do not wait for each other.
type Lane uint8

const (
	Foreground Lane = iota // somebody waits for it
	Background             // renewals, and pending releases
)

// Client is what the locks of one client share. It is safe for concurrent use.
type Client struct {
	id    string           // `<label>~<uuid>`: the client in its owners
	wake  string           // the channel on which its waiters are called
	place quorumlock.Owner // keeps a lock free for Redisson's clients: see Open in package wire
	calls atomic.Uint64    // the number of calls begun

	base   time.Time                         // the clocks of the machines count from here
	now    func() time.Time                  // the monotonic clock and the wall clock
	boot   func() time.Duration              // a clock that is as the monotonic one, but for suspends: it counts those; nil: there is none
	booted time.Duration                     // what boot showed at base
	slept  atomic.Int64                      // ns of suspends since base, by boot
	jitter func(time.Duration) time.Duration // nil but in simulations

	observer quorumlock.Observer // learns of the nodes; nil: that of the lock
	logger   *slog.Logger        // the same
	defaults []quorumlock.Option // of its locks

	stopping chan struct{}  // closed by Shutdown, or by Close: from then on nothing is acquired
	lost     chan struct{}  // closed when Close has made every lease count as lost
	flight   atomic.Int64   // calls under way, here and at the nodes; none begins once closed
	gone     chan struct{}  // closed when the client is closed and none is under way
	group    errgroup.Group // every goroutine; one starts only from a call or from another

	mu      sync.Mutex
	closed  bool
	stops   bool                        // stopping is closed
	ticket  int64                       // the last given to a call
	ahead   map[Node]time.Duration      // how far the clock of a node is ahead of the client's own time, as it told last
	held    int                         // holds that are not over
	idle    chan struct{}               // closed when nothing is held and nothing under way; made by Shutdown
	live    map[uint64]*call            // waiting and holding calls, by their numbers
	recent  []uint64                    // the numbers of the calls that ended last, up to maxRecent
	oldest  int                         // the index of the next number to replace
	kept    map[uint64]time.Time        // until when the nodes keep what UnlockAfter has left
	paces   paces                       // of the locks for which callers wait in vain
	holders map[Cell]*call              // those that hold, by the first cell of their lock: the last one, with the others behind it
	named   map[quorumlock.Owner]*named // of each WithOwner that holds or waits
	sweepAt int                         // how many kept there may be before those that are over are dropped
	queues  map[Cell][]*localQueue      // the local queues, by the first cell of their lock
	clock   *time.Timer                 // compares the clocks while something is held
	seen    core.Time                   // when the clocks were compared last

	correction time.Duration // added to the client's own time for tickets
	toldAt     int64         // the own time when a node told its clock last

	subscriptions subscriptions
	peers         redissonPeers
	renewals      renewals
	retries       retryQueue
	health        health
}

// NewClient returns a client with an identity of its own, which begins with the label. It starts nothing.
func NewClient(label string) *Client {
	id := label + "~" + settings.NewID()
	c := &Client{
		id:       id,
		wake:     wire.WakeChannel(id),
		place:    quorumlock.Owner(id + ":0"), // which is no call's
		stopping: make(chan struct{}),
		lost:     make(chan struct{}),
		gone:     make(chan struct{}),
		live:     make(map[uint64]*call),
		kept:     make(map[uint64]time.Time),
		holders:  make(map[Cell]*call),
		named:    make(map[quorumlock.Owner]*named),
		queues:   make(map[Cell][]*localQueue),
		ahead:    make(map[Node]time.Duration),
	}
	c.setClocks(time.Now, bootClock())
	if c.base == c.base.Round(0) { // no monotonic reading: in a bubble of testing/synctest, whose time the kernel does not know
		c.boot = nil
	}
	return c
}

// ID is how the client is called in its owners: `<label>~<uuid>`.
func (c *Client) ID() string { return c.id }

// SetDefaults sets the options that a MultiLock inherits from the client. It is called before c is used.
func (c *Client) SetDefaults(opts []quorumlock.Option) { c.defaults = opts }

// Defaults returns the options of SetDefaults.
func (c *Client) Defaults() []quorumlock.Option { return c.defaults }

// Simulate replaces the clocks and the random pauses of c: a simulation gives every client its own
// clocks, and the same pauses in every run. boot is nil for a system without a clock that counts
// suspends. Call Simulate before c is used.
func (c *Client) Simulate(now func() time.Time, boot func() time.Duration, jitter func(time.Duration) time.Duration) {
	c.jitter = jitter
	c.setClocks(now, boot)
}

func (c *Client) setClocks(now func() time.Time, boot func() time.Duration) {
	c.now, c.base, c.boot = now, now(), boot
	if c.boot != nil {
		c.booted = c.boot()
	}
}

// time is now, as the machines count it.
func (c *Client) time() core.Time {
	t, _ := c.clocks()
	return t
}

// clocks returns the result of time, and the same moment by the monotonic clock and the wall clock.
// boot is read before now, but booted was read after base. So a pause between two readings never
// counts as a suspend. The next call notices a suspend between the two.
func (c *Client) clocks() (core.Time, time.Time) {
	if c.boot == nil {
		now := c.now()
		return core.Time{Mono: now.Sub(c.base), Boot: now.Round(0).Sub(c.base.Round(0))}, now
	}
	up := c.boot() - c.booted
	now := c.now()
	mono := now.Sub(c.base)
	slept := c.slept.Load()
	for more := int64(up - mono); more > slept; slept = c.slept.Load() {
		c.slept.CompareAndSwap(slept, more)
	}
	return core.Time{Mono: mono, Boot: mono + time.Duration(slept)}, now
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
		c.forgetPeers(true)
		c.dropPending()
		c.End()
	}
	<-c.gone
	_ = c.group.Wait() // its functions return no error
}

// Stopping returns a channel that is closed when Shutdown, or Close, begins.
func (c *Client) Stopping() <-chan struct{} { return c.stopping }

func (c *Client) isStopping() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}

// Closed returns a channel that is closed when Close has made every lease count as lost.
func (c *Client) Closed() <-chan struct{} { return c.lost }

// all returns the calls that wait or hold.
func (c *Client) all() []*call { return c.liveCalls(true) }

// waiting returns the calls that wait.
func (c *Client) waiting() []*call { return c.liveCalls(false) }

func (c *Client) liveCalls(holding bool) []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*call
	for _, w := range c.live {
		if holding || !w.holds {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *call) int { return cmp.Compare(a.order, b.order) })
	return all
}

// stop ends acquiring. It is called with mu held.
func (c *Client) stop() {
	if !c.stops {
		c.stops = true
		close(c.stopping)
	}
}

// Shutdown refuses new calls of Lock and TryLock, and ends waiting calls, with ErrClosed. Stopping notifies the others. Shutdown
// returns when every lease has been unlocked or lost and all releases are confirmed, or with ctx's error when ctx is done. It
// closes nothing: call Close after it.
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
	return c.retries.wait(ctx)
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

// send sends a request to a node, between Begin and End. ctx has the values of the waiting caller. answer ends with End.
func (c *Client) send(ctx context.Context, n Node, lane Lane, deadline time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	c.enter()
	n.Do(ctx, lane, deadline, calls, answer)
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

// Hint returns the wall clock in µs, as the least token to ask for.
func (c *Client) Hint() uint64 { return uint64(max(c.now().UnixMicro(), 0)) }

// clockCheck is the interval between two comparisons of the clocks while a lock is held. During a
// suspend, the monotonic clock and all timers may stand still.
const clockCheck = time.Second

// compareClocks has every hold look at its deadline when the clocks have gone apart.
func (c *Client) compareClocks() {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	c.mu.Lock()
	now := c.time()
	stepped := now.Boot-c.seen.Boot-(now.Mono-c.seen.Mono) > clockCheck/10
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
