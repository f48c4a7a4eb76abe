// Package client is the shell of package core, for all kinds of locks. It has the clocks,
// goroutines, timers and mutexes; package engine has its other decisions. A lock is a tree of
// cells: one cell for a node's Mutex, a majority for a RedLock, every member for a MultiLock.
//
// The life of a lease, by file:
//
//	lock.go           Lock, TryLock: re-entry, the local queue, one call
//	permits.go        several permits of a semaphore: LockN, TryLockN
//	multi.go          the lock of several locks: a MultiLock, its limits
//	session.go        a session: its machine, its requests, its timer
//	hold.go           its leases, Extend, Unlock
//	attach.go         Detach and Attach; with parked.go, the text of a detached hold
//	data.go           the data of a hold
//	errors.go         its errors
//	observe.go        its events for an Observer
//	latch.go          a latch, which is no lock: Done, Wait, Count
//	subscriptions.go  the messages that wake waiters
//	redisson.go       Redisson's clients at the same locks: their releases, and their share
//	tickets.go        the tickets of calls, and the client's own time
//	localqueue.go     the callers of this process, some of whom wait here
//	admission.go      the attempts that wait unsent, until their nodes have room
//	pace.go           pauses of callers with little time, while nodes are busy
//	client.go         the state that the locks of one client share: its identity, its clock, Close
//	registry.go       the waiting and holding calls of a client, and their owners
//	renewals.go       the renewals of a client's holds
//	pending.go        pending releases
//	health.go         which nodes are down; each change is logged once
//	ask.go            calls beside a lock, for elections
//	kind.go           the Lock of a kind
//	boottime_linux.go the clock that counts suspends
//
// The mutexes have four levels. A goroutine that holds a mutex may lock only those of later levels.
// Package lockorder has the same levels, and a test of the simulation checks them:
//
//	subscriptions.mu  while a caller starts or stops listening
//	hub.mu            of package transport, while a caller starts or stops listening, and while a
//	                  hub passes on messages
//	call.mu           during a step
//	all others        those of Client, pendingReleases, renewals, redisson, health, admission, Latch,
//	                  the hints of a Lock, and the others of package transport
//
// No node is called while a mutex of the last two levels is held. subscriptions.mu and hub.mu may
// be held, since a message may lead to calls. So a Node's Do must not wait, and must lock neither
// of these two mutexes. No answer is delivered while the mutex of a lane is held.
package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Node is a server that keeps locks.
type Node interface {
	fmt.Stringer

	// Do runs scripts in this order, none of them twice. It calls answer once, with a reply for
	// each, or with errors once the node has been silent for limit. Do keeps no reference to calls.
	// In one lane, the calls of one waiter run in the order of Do, unless a connection breaks.
	// answer must not block, and must not keep the slice. It may be called before Do returns.
	//
	// If the calls release the first attempt of their waiter, and nothing of that waiter was sent,
	// the node may drop attempt and release. It then answers both with [wire.ErrRecalled].
	Do(ctx context.Context, lane Lane, limit time.Duration, calls []wire.Call, answer func(replies []wire.Reply))

	// Listen calls heard with every message on the channel, and with "" when some may be missing.
	Listen(channel string, heard func(message string)) (stop func())
}

// Lane is one of the ways to a node. Lanes do not wait for each other.
type Lane uint8

const (
	Foreground Lane = iota // calls with a waiting caller
	Background             // renewals
	Releases               // pending releases, on the way of Background
)

// Client is the state that the locks of one client share. It is safe for concurrent use.
type Client struct {
	id    string           // `<label>~<uuid>`: the client in its owners
	wake  string           // the channel on which nodes call its waiters
	place quorumlock.Owner // owner of the entries that keep a window free: see wire.Call.Open
	calls atomic.Uint64    // number of calls begun

	base   time.Time                         // zero of the machines' clocks
	now    func() time.Time                  // reads the monotonic and the wall clock
	boot   func() time.Duration              // monotonic, but counts suspends; nil if there is none
	booted time.Duration                     // boot's reading at base
	slept  atomic.Int64                      // ns of suspends since base, by boot; never falls
	jitter func(time.Duration) time.Duration // nil except in simulations

	observer quorumlock.Observer // gets the events of nodes; nil: the lock's Observer does
	logger   *slog.Logger        // for events of nodes; nil: the lock's Logger
	defaults []quorumlock.Option // inherited by a MultiLock

	stopping chan struct{}  // closed by Shutdown or Close; nothing is acquired after
	lost     chan struct{}  // closed by Close when every lease counts as lost
	flight   atomic.Int64   // operations between Begin and End; stays 0 once 0 and closed
	telling  atomic.Int64   // calls of the user's Logger and Observer by tell; none begins while flight is 0
	gone     chan struct{}  // closed when closed is set, and flight and telling are 0
	group    errgroup.Group // every goroutine; one starts only while flight > 0

	mu         sync.Mutex
	closed     bool
	stops      bool // stopping is closed
	nodeClocks engine.Clocks[Node]
	held       int                 // number of calls in live that hold
	idle       chan struct{}       // closed when live is empty and flight is 0; nil before Shutdown
	live       map[uint64]*session // waiting and holding calls, by number
	former     engine.Ended
	// The locks with a caller that has given up since the last grant.
	paces   paces
	holders index                    // holds
	waiters index                    // calls of Lock with WithOwner, until they return
	queues  map[string][]*localQueue // local queues, by the names of their lock
	clock   *time.Timer              // compares the clocks while held > 0
	seen    core.Time                // the clocks at the last comparison

	subscriptions subscriptions
	redisson      redisson
	renewals      renewals
	alarms        alarms
	pending       pendingReleases
	health        health
	admission     admission
	dataRefused   sync.Once // logs the first refusal of the data of a hold
}

// NewClient returns a client with an identity that begins with label. It starts no goroutine.
func NewClient(label string) *Client {
	id := label + "~" + settings.NewID()
	c := &Client{
		id:       id,
		wake:     wire.WakeChannel(id),
		place:    quorumlock.Owner(id + ":0"), // numbers of calls are never 0
		stopping: make(chan struct{}),
		lost:     make(chan struct{}),
		gone:     make(chan struct{}),
		live:     make(map[uint64]*session),
		holders:  make(index),
		waiters:  make(index),
		queues:   make(map[string][]*localQueue),
	}
	c.setClocks(time.Now, bootClock())
	// No monotonic reading: a testing/synctest bubble, whose time the kernel does not know.
	if c.base == c.base.Round(0) {
		c.boot = nil
	}
	return c
}

// ID returns the client's name in its owners: `<label>~<uuid>`.
func (c *Client) ID() string { return c.id }

// SetDefaults sets the options that a MultiLock inherits from the client. Call it before c is used.
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

// time returns the current time for machines.
func (c *Client) time() core.Time {
	t, _ := c.clocks()
	return t
}

// times yields the numbers below n, each with the time. It reads the clocks once for several
// numbers, since a reading costs a system call. An earlier time is no risk: a process can be
// stopped after any reading.
func (c *Client) times(n int) iter.Seq2[int, core.Time] {
	return func(yield func(int, core.Time) bool) {
		var now core.Time
		for i := range n {
			if i%16 == 0 {
				now = c.time()
			}
			if !yield(i, now) {
				return
			}
		}
	}
}

// mono returns the monotonic part of time. It needs no system call, and notices no suspend.
func (c *Client) mono() time.Duration { return c.now().Sub(c.base) }

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

// The limits of the wait of a Close. The user's code may block, and a frozen node answers nothing.
const (
	closeWait = time.Second            // in all
	leastWait = 100 * time.Millisecond // for what needs neither, at each step
)

// CloseTime returns until when a Close waits that belongs to a Shutdown with ctx.
func CloseTime(ctx context.Context) time.Time {
	until := time.Now().Add(closeWait)
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		return end
	} else if ctx.Err() != nil {
		return time.Now()
	}
	return until
}

// WaitUntil waits for done until a time, and for leastWait at least. It reports whether done is
// closed.
func WaitUntil(until time.Time, done <-chan struct{}) bool {
	late := time.NewTimer(max(time.Until(until), leastWait))
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// Close is CloseBy without a Shutdown.
func (c *Client) Close() { c.CloseBy(CloseTime(context.Background())) }

// CloseBy ends waiting calls, makes every held lease count as lost, and returns when no goroutine
// is left, or at a time: see WaitUntil. The keys of those leases stay until their TTL: their
// holders may still be at work. A second call waits once more.
func (c *Client) CloseBy(until time.Time) {
	c.mu.Lock()
	first := !c.closed
	if first {
		c.enter()
	}
	c.closed = true
	c.stop()
	c.mu.Unlock()
	if first {
		all := c.all()
		for _, w := range all {
			w.mu.Lock()
			w.apply(core.Event{Kind: core.Close})
			w.mu.Unlock()
		}
		close(c.lost)
		c.mu.Lock()
		if c.clock != nil {
			c.clock.Stop()
		}
		c.mu.Unlock()
		c.start(func() { // a call to a node may lead to an Observer, which may block
			for _, w := range all {
				w.mu.Lock()
				w.flush()
			}
			c.subscriptions.close()
			c.forgetRedisson(true)
			c.dropPending()
		})
		c.End()
	}
	if WaitUntil(until, c.gone) {
		_ = c.group.Wait() // its functions return no error
	}
}

// Stopping returns a channel that is closed when Shutdown or Close begins.
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

// all returns the waiting and holding calls, the oldest first.
func (c *Client) all() []*session { return c.liveCalls(true) }

// waiting returns the waiting calls, the oldest first.
func (c *Client) waiting() []*session { return c.liveCalls(false) }

func (c *Client) liveCalls(holding bool) []*session {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*session
	for _, w := range c.live {
		if holding || !w.holds {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *session) int { return cmp.Compare(a.order, b.order) })
	return all
}

// stop closes stopping. The caller holds mu.
func (c *Client) stop() {
	if !c.stops {
		c.stops = true
		close(c.stopping)
	}
}

// Shutdown refuses new calls of Lock and TryLock, and ends waiting calls, with ErrClosed. Stopping
// notifies the holders. Shutdown returns when every lease has been unlocked or lost, and every
// release is confirmed or its TTL has passed. It returns ctx's error when ctx is done, with the
// holds that are left. The error also matches ErrUnconfirmed if releases are unconfirmed. It closes nothing: call Close after it.
func (c *Client) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	c.stop()
	if c.idle == nil {
		c.idle = make(chan struct{})
		c.checkIdle()
	}
	idle := c.idle
	c.mu.Unlock()
	var late error
	select {
	case <-idle:
		late = c.pending.wait(ctx)
	case <-ctx.Done():
		late = errs.Join(ctx.Err(), c.stillHeld())
	}
	return errs.Join(late, c.pending.unconfirmedError())
}

// checkIdle closes gone and idle if their conditions hold. The caller holds mu.
func (c *Client) checkIdle() {
	if c.flight.Load() > 0 {
		return
	}
	if c.closed && c.telling.Load() == 0 {
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

// Begin begins an operation that may call the nodes, and End ends it. Begin returns ErrClosed once
// the client is closed. Close waits for every End, within its limit.
func (c *Client) Begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return quorumlock.ErrClosed
	}
	c.enter()
	return nil
}

// beginCall is Begin for a call of Lock or TryLock. It returns ErrClosed once Shutdown has begun.
// Shutdown waits for the calls that began before.
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

// enter is Begin for callers between Begin and End. So once the client is closed and flight is 0,
// no operation begins.
func (c *Client) enter() {
	c.flight.Add(1)
}

// send sends a request to a node. Call it between Begin and End. ctx has the values of the waiting
// caller. answer must call End.
func (c *Client) send(ctx context.Context, n Node, lane Lane, limit time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	c.enter()
	n.Do(ctx, lane, limit, calls, answer)
}

// Go runs f in a goroutine that Close waits for. It returns ErrClosed once the client is closed.
func (c *Client) Go(f func()) error {
	if err := c.Begin(); err != nil {
		return err
	}
	defer c.End()
	c.start(f)
	return nil
}

// Aside is Go for work of the client's own: Shutdown does not wait for it.
func (c *Client) Aside(f func()) error {
	if err := c.Begin(); err != nil {
		return err
	}
	defer c.End()
	c.tell(f)
	return nil
}

// start is Go for callers between Begin and End.
func (c *Client) start(f func()) {
	c.enter()
	c.group.Go(func() error {
		defer c.End()
		f()
		return nil
	})
}

// tell runs f, which calls the user's Logger or Observer, in a goroutine of its own. So a log that
// is slow, blocks or uses a lock delays nothing. Shutdown does not wait for f. Call tell between
// Begin and End.
func (c *Client) tell(f func()) {
	c.telling.Add(1)
	c.group.Go(func() error {
		defer func() {
			if c.telling.Add(-1) == 0 {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.checkIdle()
			}
		}()
		f()
		return nil
	})
}

// Hint returns the wall clock in µs: the least token to ask for.
func (c *Client) Hint() uint64 { return uint64(max(c.now().UnixMicro(), 0)) }

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
