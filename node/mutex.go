package node

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// member makes a lock known to package multilock.
type member = quorum.Member

// Mutex is a lock on a single node: as safe as that node is. It is a [quorumlock.Locker], safe for
// concurrent use; its zero value is not usable.
//
// An RLock of Redisson, the Java client, with the same name on the same server is the same lock. docs/redisson.md says which
// call replaces which.
type Mutex struct {
	member
	node *Node
	key  string
	lock *quorum.Lock
}

var _ quorumlock.Locker = (*Mutex)(nil)

// Mutex returns the lock of that name. If the name or an option is bad, its calls return an error that says so.
func (n *Node) Mutex(name string, opts ...quorumlock.Option) *Mutex {
	return n.mutex(name, quorum.Cell{}, nil, opts)
}

// mutex returns a lock over a cell that is like cell. A non-nil bad is what is wrong with it.
func (n *Node) mutex(name string, cell quorum.Cell, bad error, opts []quorumlock.Option) *Mutex {
	set, err := n.resolve(opts)
	if err == nil {
		err = bad
	}
	cell.Node, cell.Name = transport.Of(n), set.Prefix+name
	lock := quorum.New(transport.Of(n).Locks(), name, core.Tree{}, []quorum.Cell{cell}, set, err)
	return &Mutex{quorum.NewMember(lock), n, cell.Name, lock}
}

// resolve returns what the options of a Mutex or a Latch come to, and what is wrong with them or with the node.
func (n *Node) resolve(opts []quorumlock.Option) (options.Settings, error) {
	set, err := options.Resolve(opts...)
	switch {
	case transport.Of(n).Err() != nil:
		err = transport.Of(n).Err()
	case err != nil:
	case set.Quorum != 0:
		err = errs.Misuse("quorumlock: WithQuorum is for package redlock: a node's Mutex has one node")
	case set.Label != quorumlock.DefaultLabel():
		err = errs.Misuse("quorumlock: WithLabel is for redlock.New: a node's Mutex has the default label: leave the option out, or use a client of package redlock")
	}
	return set, err
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.lock.Name() }

// Lock acquires the lock, as [quorumlock.Locker] says.
func (m *Mutex) Lock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.Lock(ctx) }

// TryLock acquires the lock without waiting, as [quorumlock.Locker] says.
func (m *Mutex) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.TryLock(ctx) }

// Inspect returns who holds the lock.
func (m *Mutex) Inspect(ctx context.Context) (quorumlock.State, error) {
	if err := m.lock.Err(); err != nil {
		return quorumlock.State{}, err
	}
	return transport.Of(m.node).Inspect(ctx, m.key)
}

// ForceUnlock frees the lock, whoever holds it. The holder learns of it when it next renews.
func (m *Mutex) ForceUnlock(ctx context.Context) error {
	if err := m.lock.Err(); err != nil {
		return err
	}
	_, err := transport.Of(m.node).ForceRelease(ctx, m.key)
	return err
}

// ForceUnlockOwner frees the lock only if that owner holds or shares it, as Inspect shows the owner, and returns
// [quorumlock.ErrNotHeld] otherwise. Its rules are those of redlock's.
func (m *Mutex) ForceUnlockOwner(ctx context.Context, owner quorumlock.Owner) error {
	return m.forceOwner(ctx, owner, false)
}

func (m *Mutex) forceOwner(ctx context.Context, owner quorumlock.Owner, semaphore bool) error {
	if err := m.lock.Err(); err != nil {
		return err
	}
	found, err := transport.Of(m.node).ReleaseOwner(ctx, m.key, owner, semaphore)
	if err == nil && !found {
		return quorumlock.ErrNotHeld
	}
	return err
}
