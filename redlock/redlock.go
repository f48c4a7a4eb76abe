// Package redlock locks over a majority of independent Redis nodes: the Redlock algorithm, with
// fencing tokens, renewal, and told loss.
//
// A [Client] is made once, from its nodes, and hands out a [Mutex] for any name:
//
//	client, err := redlock.New(nodes)
//	lease, err := client.Mutex("invoice:1042").Lock(ctx)
//	defer lease.Unlock(ctx)
//
// See package quorumlock for what is promised.
package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/node"
)

// Client makes locks over a fixed set of nodes. It is safe for concurrent use; its zero value is not
// usable. A program needs one, for as many locks as it likes.
type Client struct {
	nodes []*node.Node
	opts  []quorumlock.Option
	set   quorumlock.Settings // what opts come to
	locks *quorum.Client
}

// New returns a client over nodes that fail independently of each other: no replicas of one another,
// and an odd number, since an even one tolerates no more failures than the odd one below it. All
// clients of a lock must be given the same nodes and the same quorum. The nodes belong to the client,
// which closes them. The options are the defaults of its locks. New does no I/O.
func New(nodes []*node.Node, opts ...quorumlock.Option) (*Client, error) {
	if len(nodes) == 0 {
		return nil, errors.New("quorumlock: redlock.New: no nodes: give at least one, and three or five for a lock that survives failures")
	}
	names := make(map[string]bool)
	for i, n := range nodes {
		if n == nil {
			return nil, fmt.Errorf("quorumlock: redlock.New: node %d is nil: look at the error of node.Dial", i+1)
		}
		if err := n.Err(); err != nil {
			return nil, fmt.Errorf("quorumlock: redlock.New: node %d: %w", i+1, err)
		}
		if names[n.String()] {
			return nil, fmt.Errorf("quorumlock: redlock.New: node %d, %s, is given twice: give each node once, or node.WithName to nodes that only look the same", i+1, n)
		}
		names[n.String()] = true
	}
	c := &Client{nodes: slices.Clone(nodes), opts: slices.Clone(opts), locks: quorum.NewClient()}
	var err error
	if c.set, err = c.resolve(nil); err != nil {
		return nil, err
	}
	return c, nil
}

// resolve returns the client's options with those of a lock over them, and checks the quorum.
func (c *Client) resolve(opts []quorumlock.Option) (quorumlock.Settings, error) {
	set, err := quorumlock.Resolve(slices.Concat(c.opts, opts)...)
	if err != nil {
		return set, err
	}
	majority := len(c.nodes)/2 + 1
	if set.Quorum == 0 {
		set.Quorum = majority
	}
	if set.Quorum < majority || set.Quorum > len(c.nodes) {
		return set, fmt.Errorf("quorumlock: WithQuorum(%d) cannot work over %d nodes: use %d to %d, or 0 for a majority",
			set.Quorum, len(c.nodes), majority, len(c.nodes))
	}
	for _, n := range c.nodes {
		if err := n.Guardable(); err != nil && set.MaxTTL > 0 {
			return set, err
		}
	}
	return set, nil
}

// Mutex returns the lock of that name. It costs nothing and starts nothing. A bad name or option is
// told by its calls.
func (c *Client) Mutex(name string, opts ...quorumlock.Option) *Mutex {
	set, err := c.set, error(nil)
	if len(opts) > 0 {
		set, err = c.resolve(opts)
	}
	cells := make([]quorum.Cell, len(c.nodes))
	for i, n := range c.nodes {
		cells[i] = quorum.Cell{Node: n, Name: name}
	}
	lock := quorum.New(c.locks, name, quorum.Majority(set.Quorum, len(c.nodes)), cells, set, err)
	return &Mutex{client: c, lock: lock, quorum: set.Quorum, err: err}
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

// Mutex is a lock over a majority of the client's nodes. It is a [quorumlock.Locker], safe for
// concurrent use; its zero value is not usable.
type Mutex struct {
	client *Client
	lock   *quorum.Lock
	quorum int
	err    error // what is wrong with its options
}

var _ quorumlock.Locker = (*Mutex)(nil)

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.lock.Name() }

// Lock acquires the lock, as [quorumlock.Locker] says.
func (m *Mutex) Lock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.Lock(ctx) }

// TryLock makes one attempt, as [quorumlock.Locker] says.
func (m *Mutex) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.TryLock(ctx) }

// Member is how package multilock takes the lock as a member. It is not for use elsewhere.
func (m *Mutex) Member() *quorum.Lock {
	if m == nil {
		return nil
	}
	return m.lock
}
