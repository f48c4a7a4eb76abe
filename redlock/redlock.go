// Package redlock implements locks over a majority of independent Redis nodes. It is the Redlock
// algorithm (redis.io, "Distributed Locks with Redis") with fencing tokens, renewal, a fair queue,
// and leases with a notice of loss.
//
// A program makes one [Client], which has a [Mutex], an [RWMutex], a [Semaphore] and a [Latch] for
// any name:
//
//	urls := []string{"redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"}
//	client, err := redlock.Dial(urls)
//	lease, err := client.Mutex("myapp:lock:invoice:1042").Lock(ctx)
//	defer lease.Unlock(ctx)
//
// [Dial] takes options. [DialEnv] takes the URLs from the environment, and [New] takes nodes of
// package node. [Client.Shutdown] and [Client.Close] end a Client.
//
// # Why a Mutex is sound
//
//  1. A node grants a lock to one owner at a time, in an atomic script. Every attempt has an owner
//     of its own.
//  2. An owner has the lock only while Q nodes have granted it. Two sets of Q nodes share 2Q − N
//     nodes. At most 2Q − N − 1 of these forget, so one that remembers the first owner refuses the
//     second.
//  3. The validity counts from before the first request, so it begins before the TTL of every node.
//     It ends earlier by the drift, so it is over before a node with another clock rate expires the
//     key.
//  4. A renewal is a new grant: the validity moves only if Q nodes renewed, and counts from before
//     the renewal was sent.
//  5. A release names its owner, which is used once. So a late release ends no other hold.
//  6. In a handoff, the nodes vote for a waiter without a new request. The owner and the validity
//     are those of an earlier attempt of the waiter.
//  7. The token is the highest counter among the nodes that granted, and Q nodes store it before
//     Lock returns. The next quorum shares a node with these, which continues from that token.
//  8. A detached hold changes its owner at each node in one script, and Attach is a vote like a
//     grant. So at most one process continues it. A node that has counted a token since votes no.
//
// The documentation of [RWMutex], [Semaphore] and [Latch] has their arguments. Package quorumlock
// has the promises.
package redlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// Client makes locks over a fixed set of nodes. It is safe for concurrent use; its zero value is
// not usable. A program needs one Client for all its locks.
type Client struct {
	nodes []*node.Node
	opts  []quorumlock.Option
	set   options.Settings // the resolved opts
	form  *client.Form     // of locks without options of their own
	locks *client.Client
}

// New returns a client over nodes that fail independently: no replicas of one another. Use an odd
// number of nodes: one more node tolerates no more failures. All clients of a lock must have the
// same nodes and the same quorum. The options are the defaults of the client's locks.
//
// The nodes belong to the client, which closes them; after an error they still belong to the
// caller. New does no I/O. It logs a warning for one node and for an even number of nodes, see
// [quorumlock.WithLogger].
func New(nodes []*node.Node, opts ...quorumlock.Option) (*Client, error) {
	if len(nodes) == 0 {
		return nil, errs.Misuse("quorumlock: redlock.New: no nodes: give at least one, and three or five for a lock that survives failures")
	}
	names := make(map[string]bool)
	for i, n := range nodes {
		if n == nil {
			return nil, errs.Misusef("quorumlock: redlock.New: node %d is nil: look at the error of node.Dial or node.New", i+1)
		}
		if err := transport.Of(n).Err(); err != nil {
			return nil, fmt.Errorf("quorumlock: redlock.New: node %d: %w", i+1, err)
		}
		if names[n.String()] {
			return nil, errs.Misusef("quorumlock: redlock.New: node %d, %s, is given twice: give each node once, or node.WithName to nodes that only look the same", i+1, n)
		}
		names[n.String()] = true
	}
	c := &Client{nodes: slices.Clone(nodes), opts: slices.Clone(opts)}
	var err error
	if c.set, err = c.resolve(nil); err != nil {
		return nil, err
	}
	if c.set.Data != "" {
		return nil, options.NoData("a client, whose name is WithLabel")
	}
	c.form, c.locks = c.formOf(c.set), client.NewClient(c.set.Label)
	c.locks.Tell(c.set.Observer, c.set.Logger)
	c.locks.SetDefaults(c.opts)
	c.publish()
	c.warn()
	if from, ok := c.set.Follow.(*options.Follow); ok {
		if err := c.follow(from); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// warn logs numbers of nodes that work, but tolerate fewer failures than they could.
func (c *Client) warn() {
	switch n := len(c.nodes); {
	case n == 1:
		c.set.Logger.Warn("quorumlock: redlock.New: a lock on one node is lost with that node: use three or five nodes", "nodes", n)
	case n%2 == 0:
		c.set.Logger.Warn("quorumlock: redlock.New: an even number of nodes survives no more failures than one node less: use one node more or less", "nodes", n)
	}
}

// resolve returns the client's options, overridden by those of a lock, and checks the quorum.
func (c *Client) resolve(opts []quorumlock.Option) (options.Settings, error) {
	set, err := options.Resolve(slices.Concat(c.opts, opts)...)
	if err != nil {
		return set, err
	}
	majority := len(c.nodes)/2 + 1
	if set.Quorum == 0 {
		set.Quorum = majority
	}
	if set.Quorum < majority || set.Quorum > len(c.nodes) {
		return set, errs.Misusef("quorumlock: WithQuorum(%d) cannot work over %d nodes: use %d to %d, or leave the option out for a majority",
			set.Quorum, len(c.nodes), majority, len(c.nodes))
	}
	for _, n := range c.nodes {
		if err := transport.Of(n).Guardable(); err != nil && set.MaxTTL > 0 {
			return set, err
		}
	}
	return set, nil
}

// Mutex returns the lock of that name. It does no I/O and starts no goroutine. If the name or an
// option is invalid, the methods of the Mutex return an error that matches [quorumlock.ErrMisuse].
func (c *Client) Mutex(name string, opts ...quorumlock.Option) *Mutex {
	return c.mutex(name, client.Cell{}, nil, opts)
}

// Lockers returns a function that returns the Mutex of prefix plus a name. It is for code that
// takes locks by name, such as adapters of schedulers. The tests of that code can use
// locktest.Locks instead. The options are those of each Mutex.
//
//	locker, err := gocronlock.NewLocker(client.Lockers("myapp:jobs:"), time.Hour)
func (c *Client) Lockers(prefix string, opts ...quorumlock.Option) func(name string) quorumlock.Locker {
	opts = slices.Clone(opts)
	return func(name string) quorumlock.Locker { return c.Mutex(prefix+name, opts...) }
}

// mutex returns a lock with one cell like cell at each node. Its methods return err if err is not
// nil.
func (c *Client) mutex(name string, cell client.Cell, err error, opts []quorumlock.Option) *Mutex {
	set, form := c.set, c.form
	if len(opts) > 0 {
		var bad error
		set, bad = c.resolve(opts)
		if form = c.formOf(set); bad == nil {
			bad = c.sameLabel(set)
		}
		if bad == nil && set.Data != "" && cell.Permits > 0 {
			bad = options.NoData("a Semaphore")
		}
		if bad != nil {
			err = bad
		}
	}
	cell.Name = set.Prefix + name
	lock := client.New(c.locks, name, form, c.cells(cell), err)
	lock.AllowDetach()
	return &Mutex{member: client.NewMember(lock), client: c, lock: lock, key: cell.Name, quorum: set.Quorum, err: lock.Err()}
}

func (c *Client) formOf(set options.Settings) *client.Form {
	return client.NewForm(core.Majority(set.Quorum, len(c.nodes)), set)
}

// sameLabel refuses options with another label than the client's.
func (c *Client) sameLabel(set options.Settings) error {
	if set.Label != c.set.Label {
		return errs.Misuse("quorumlock: WithLabel is for the whole client: give it to redlock.Dial or New")
	}
	return nil
}

// cells returns one cell like cell for each node.
func (c *Client) cells(cell client.Cell) []client.Cell {
	cells := make([]client.Cell, len(c.nodes))
	for i, n := range c.nodes {
		cell.Node = transport.Of(n)
		cells[i] = cell
	}
	return cells
}

// Shutdown closes the client without losing a lease. New and waiting calls of Lock and TryLock
// return [quorumlock.ErrClosed]. Leaders of package election resign, and [quorumlock.Stopping]
// notifies other work. Shutdown returns when all leases are unlocked or lost, every node has
// confirmed all releases, and the client is closed. It waits at most one TTL for an unreachable
// node, and then returns an error that matches [quorumlock.ErrUnconfirmed] and names the node.
//
// If ctx is done first, Shutdown returns ctx's error, with the locks that have been held longest.
// The client is closed anyway, and the remaining leases are lost. Callers' code cannot hold
// Shutdown up for longer than [Client.Close] says, nor beyond the end of ctx. With a nil ctx,
// Shutdown returns [quorumlock.ErrNilContext] and the client stays open.
func (c *Client) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("quorumlock: Shutdown: %w", quorumlock.ErrNilContext)
	}
	err := c.locks.Shutdown(ctx)
	return errs.Join(err, c.closeBy(client.CloseTime(ctx)))
}

// Close closes the client and its nodes. It returns when all goroutines of the client have ended.
// Leases that are still held are lost, and their keys stay until their TTL: unlock before, or use
// [Client.Shutdown].
//
// Close waits about a second at most for the answers of nodes, and for code that is not the
// library's: the Logger, the Observer, the dialer, the function of [node.WithCredentials], and the
// client of [node.New]. A goroutine in such code ends when that code returns.
func (c *Client) Close() error { return c.closeBy(client.CloseTime(context.Background())) }

func (c *Client) closeBy(until time.Time) error {
	c.locks.CloseBy(until)
	var g errgroup.Group
	for _, n := range c.nodes {
		g.Go(func() error { return transport.Of(n).CloseBy(until) })
	}
	err := g.Wait()
	c.locks.CloseBy(until) // the calls to a frozen node have failed since
	return err
}

// member gives packages multilock and election access to a lock.
type member = client.Member

// Mutex is a lock over a majority of the client's nodes. It is a [quorumlock.Locker], safe for
// concurrent use; its zero value is not usable. A Mutex is only a name: share it, or make one for
// each call.
//
// At each node it is an RLock of Redisson, the Java client, with the same name. Together these are
// a RedissonRedLock. For an RLock on a single server, use package node. docs/redisson.md has a
// table of the corresponding calls.
type Mutex struct {
	member
	client *Client
	lock   *client.Lock
	key    string // the name with its prefix
	quorum int
	err    error // if not nil, all methods return it
}

var _ quorumlock.Locker = (*Mutex)(nil)

// Name returns the name of the lock, without its prefix.
func (m *Mutex) Name() string { return m.lock.Name() }

// Lock acquires the lock. It waits for its turn until ctx is done, see [quorumlock.Locker].
func (m *Mutex) Lock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.Lock(ctx) }

// TryLock acquires the lock without waiting for its turn, see [quorumlock.Locker].
func (m *Mutex) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.TryLock(ctx) }
