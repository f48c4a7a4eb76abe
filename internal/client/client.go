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
//	client.go         the state that the locks of one client share, Shutdown, Close
//	identity.go       the names of a client, its calls and their owners
//	clocks.go         its clocks
//	life.go           its operations and goroutines, which Shutdown and Close wait for
//	registry.go       its waiting and holding calls
//	alarms.go         the time at which each hold wakes
//	renewals.go       the renewals of a client's holds
//	pending.go        pending releases
//	health.go         which nodes are down; each change is logged once
//	ask.go            calls beside a lock, for elections
//	follow.go         the loop that watches the value beside a lock
//	kind.go           the Lock of a kind
//	boottime_linux.go the clock that counts suspends
//
// The mutexes have four levels. A goroutine that holds a mutex may lock only those of later levels.
// Package lockorder has the same levels, and a test of the simulation checks them:
//
//	subscriptions.mu  while a caller starts or stops listening
//	hub.mu            of package transport, while a caller starts or stops listening, and while a
//	                  hub passes on messages
//	session.mu        during a step
//	all others        those of Client, pendingReleases, renewals, redisson, health, admission, Latch,
//	                  the hints of a Lock, and the others of package transport
//
// No node is called while a mutex of the last two levels is held. subscriptions.mu and hub.mu may
// be held, since a message may lead to calls. So a Node's Do must not wait, and must lock neither
// of these two mutexes. No answer is delivered while the mutex of a lane is held.
package client

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
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
	identity
	clocks
	life

	observer quorumlock.Observer // gets the events of nodes; nil: the lock's Observer does
	logger   *slog.Logger        // for events of nodes; nil: the lock's Logger
	defaults []quorumlock.Option // inherited by a MultiLock

	registry
	nodeClocks engine.Clocks[Node]      // guarded by mu, as the next two
	paces      paces                    // the locks with a caller that has given up since the last grant
	queues     map[string][]*localQueue // local queues, by the names of their lock

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
		identity: identity{id: id, wake: wire.WakeChannel(id), place: quorumlock.Owner(id + ":0")}, // numbers of calls are never 0
		life:     life{stopping: make(chan struct{}), lost: make(chan struct{}), gone: make(chan struct{})},
		registry: registry{live: make(map[uint64]*session), holders: make(index), waiters: make(index)},
		queues:   make(map[string][]*localQueue),
	}
	c.set(time.Now, bootClock())
	// No monotonic reading: a testing/synctest bubble, whose time the kernel does not know.
	if c.base == c.base.Round(0) {
		c.boot = nil
	}
	return c
}

// SetDefaults sets the options that a MultiLock inherits from the client. Call it before c is used.
func (c *Client) SetDefaults(opts []quorumlock.Option) { c.defaults = opts }

// Defaults returns the options of SetDefaults.
func (c *Client) Defaults() []quorumlock.Option { return c.defaults }

// Simulate replaces the clocks and the random pauses of c: a simulation gives every client its own
// clocks, and the same pauses in every run. boot is nil for a system without a clock that counts
// suspends. Call Simulate before c is used.
func (c *Client) Simulate(now func() time.Time, boot func() time.Duration, jitter func(time.Duration) time.Duration) {
	c.jitter = jitter
	c.set(now, boot)
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
			w.close()
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

// send sends a request to a node. Call it between Begin and End. ctx has the values of the waiting
// caller. answer must call End.
func (c *Client) send(ctx context.Context, n Node, lane Lane, limit time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	c.enter()
	n.Do(ctx, lane, limit, calls, answer)
}
