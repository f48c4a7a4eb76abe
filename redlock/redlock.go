// Package redlock locks over a majority of independent Redis nodes. It is the Redlock algorithm with fencing
// tokens, renewal, a fair queue, and leases that say when they are lost.
//
// A program makes one [Client], which has a [Mutex], an [RWMutex], a [Semaphore] and a [Latch] for any name:
//
//	client, err := redlock.Dial([]string{"redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"})
//	lease, err := client.Mutex("myapp:lock:invoice:1042").Lock(ctx)
//	defer lease.Unlock(ctx)
//
// [Dial] takes options. [DialEnv] takes the URLs from the environment, and [New] takes nodes of package node. [Client.Shutdown] and
// [Client.Close] end a Client.
//
// # Why a Mutex is sound
//
//  1. A node gives a lock to one owner at a time, in a script that nothing interrupts, and every attempt has an owner of its own.
//  2. An owner has the lock only while Q nodes have given it. Two sets of Q nodes share 2Q − N. At most 2Q − N − 1 of
//     these forget, so one that remembers the first owner refuses the second.
//  3. The validity counts from before the first request was sent, so it began before the TTL of any node did. It ends by the
//     drift earlier, so it is over before a node that counts at another rate lets the lock go.
//  4. A renewal is a grant again: the validity moves only if Q nodes renewed, and counts from before that was sent.
//  5. A release names its owner, which is used once. However late it runs, it takes nothing from anybody else.
//  6. A handoff is an attempt that the nodes vote on without being asked: its owner and its validity are those of an attempt
//     that the waiter sent before.
//  7. The token is the highest counter among the nodes that granted, and Q nodes have it before Lock returns. The next Q share a
//     node with these, which counts on from there.
//  8. A hold that is detached changes its owner at each node in one script, and Attach is a vote like a grant. So one process at
//     most goes on with it. A node that has counted a token since votes no.
//
// [RWMutex], [Semaphore] and [Latch] say why they are sound.
//
// See package quorumlock for what is promised.
package redlock

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// Client makes locks over a fixed set of nodes. It is safe for concurrent use; its zero value is not
// usable. A program needs one, for as many locks as it likes.
type Client struct {
	nodes []*node.Node
	opts  []quorumlock.Option
	set   options.Settings // what opts come to
	locks *quorum.Client
}

// New returns a client over nodes that fail independently of each other: no replicas of one another,
// and an odd number, since an even one tolerates no more failures than the odd one below it. All
// clients of a lock must be given the same nodes and the same quorum. The nodes belong to the client,
// which closes them; after an error they are still the caller's. The options are the defaults of its locks. New does
// no I/O. It logs a warning for one node and for an even number of nodes, see [quorumlock.WithLogger].
func New(nodes []*node.Node, opts ...quorumlock.Option) (*Client, error) {
	if len(nodes) == 0 {
		return nil, errs.Misuse("quorumlock: redlock.New: no nodes: give at least one, and three or five for a lock that survives failures")
	}
	names := make(map[string]bool)
	for i, n := range nodes {
		if n == nil {
			return nil, errs.Misusef("quorumlock: redlock.New: node %d is nil: look at the error of node.Dial", i+1)
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
	c.locks = quorum.NewClient(c.set.Label)
	c.locks.Tell(c.set.Observer, c.set.Logger)
	c.locks.SetDefaults(c.opts)
	own := c.list()
	for _, n := range c.nodes {
		transport.Of(n).Introduce(own.in(c.locks.ID()))
	}
	c.warn()
	return c, nil
}

// warn says what can work, but not as well as its nodes would allow.
func (c *Client) warn() {
	switch n := len(c.nodes); {
	case n == 1:
		c.set.Logger.Warn("quorumlock: redlock.New: a lock on one node is lost with that node: use three or five nodes", "nodes", n)
	case n%2 == 0:
		c.set.Logger.Warn("quorumlock: redlock.New: an even number of nodes survives no more failures than one node less: use one node more or less", "nodes", n)
	}
}

// resolve returns the client's options with those of a lock over them, and checks the quorum.
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

// Mutex returns the lock of that name. It costs nothing and starts nothing. If the name or an option
// is bad, its calls return an error that says so.
func (c *Client) Mutex(name string, opts ...quorumlock.Option) *Mutex {
	return c.mutex(name, quorum.Cell{}, nil, opts)
}

// Lockers returns a function that returns the Mutex of prefix and a name. It is for code that takes locks by name, so that its tests
// can give it those of locktest.Locks: adapters of schedulers, for example. The options are those of each Mutex.
//
//	locker, err := gocronlock.NewLocker(client.Lockers("myapp:jobs:"), time.Hour)
func (c *Client) Lockers(prefix string, opts ...quorumlock.Option) func(name string) quorumlock.Locker {
	opts = slices.Clone(opts)
	return func(name string) quorumlock.Locker { return c.Mutex(prefix+name, opts...) }
}

// mutex returns a lock over cells that are like cell. A non-nil err is what is wrong with it.
func (c *Client) mutex(name string, cell quorum.Cell, err error, opts []quorumlock.Option) *Mutex {
	set := c.set
	if len(opts) > 0 {
		var bad error
		if set, bad = c.resolve(opts); bad == nil {
			bad = c.sameLabel(set)
		}
		if bad != nil {
			err = bad
		}
	}
	cell.Name = set.Prefix + name
	lock := quorum.New(c.locks, name, core.Majority(set.Quorum, len(c.nodes)), c.cells(cell), set, err)
	lock.AllowDetach()
	return &Mutex{member: quorum.NewMember(lock), client: c, lock: lock, key: cell.Name, quorum: set.Quorum, permits: cell.Permits, err: lock.Err()}
}

// sameLabel refuses options that would give one lock a label of its own.
func (c *Client) sameLabel(set options.Settings) error {
	if set.Label != c.set.Label {
		return errs.Misuse("quorumlock: WithLabel is for the whole client: give it to redlock.Dial or New")
	}
	return nil
}

// cells are those of a key: one like cell at each node.
func (c *Client) cells(cell quorum.Cell) []quorum.Cell {
	cells := make([]quorum.Cell, len(c.nodes))
	for i, n := range c.nodes {
		cell.Node = transport.Of(n)
		cells[i] = cell
	}
	return cells
}

// Shutdown closes the client without losing a lease. New calls of Lock and TryLock return [quorumlock.ErrClosed], and so
// do those that wait. Leaders of package election resign, and [quorumlock.Stopping] notifies other work. Shutdown returns when
// all leases are unlocked or lost, every node has confirmed all releases, and the client is closed. It waits at most one TTL for
// an unreachable node. When ctx is done first, Shutdown returns ctx's error: the client is closed anyway, and the remaining
// leases are lost. ctx must not be nil.
func (c *Client) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("quorumlock: Shutdown: %w", quorumlock.ErrNilContext)
	}
	return errs.Join(c.locks.Shutdown(ctx), c.Close())
}

// Close closes the client and its nodes, and returns when none of its goroutines is left. Leases that
// are still held are lost, and their keys stay until their TTL: unlock before.
func (c *Client) Close() error {
	c.locks.Close()
	var g errgroup.Group
	for _, n := range c.nodes {
		g.Go(n.Close)
	}
	return g.Wait()
}

// member makes a lock known to packages multilock and election.
type member = quorum.Member

// Mutex is a lock over a majority of the client's nodes. It is a [quorumlock.Locker], safe for
// concurrent use; its zero value is not usable.
//
// At each node it is the RLock of Redisson, the Java client, with the same name. Together they are a RedissonRedLock. For an RLock on a single
// server, use package node. docs/redisson.md says which call replaces which.
type Mutex struct {
	member
	client  *Client
	lock    *quorum.Lock
	key     string // the name with its prefix
	quorum  int
	permits int   // of a semaphore
	err     error // what is wrong with its name or options
}

var _ quorumlock.Locker = (*Mutex)(nil)

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.lock.Name() }

// Lock acquires the lock, as [quorumlock.Locker] says.
func (m *Mutex) Lock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.Lock(ctx) }

// TryLock acquires the lock without waiting, as [quorumlock.Locker] says.
func (m *Mutex) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.TryLock(ctx) }
