package node

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// member makes a lock known to package multilock.
type member = client.Member

// Mutex is a lock on a single node, and as safe as that node. It is a [quorumlock.Locker], safe for
// concurrent use; its zero value is not usable.
//
// An RLock of Redisson, the Java client, with the same name on the same server is the same lock.
// docs/redisson.md maps its calls.
type Mutex struct {
	member
	node *Node
	key  string
	lock *client.Lock
}

var _ quorumlock.Locker = (*Mutex)(nil)

// Mutex returns the lock of that name. It does no I/O. If the name or an option is invalid, the
// methods of the Mutex return an error.
func (n *Node) Mutex(name string, opts ...quorumlock.Option) *Mutex {
	set, err := n.resolve(opts)
	cell := client.Cell{Node: transport.Of(n), Name: set.Prefix + name}
	lock := client.New(transport.Of(n).Locks(), name, client.NewForm(core.Tree{}, set), []client.Cell{cell}, err)
	return &Mutex{client.NewMember(lock), n, cell.Name, lock}
}

// resolve returns the settings of a Mutex, and the error of its options or of the node.
func (n *Node) resolve(opts []quorumlock.Option) (options.Settings, error) {
	set, err := options.Resolve(opts...)
	switch {
	case transport.Of(n).Err() != nil:
		err = transport.Of(n).Err()
	case err != nil:
	case set.Quorum != 0:
		err = errs.Misuse("quorumlock: WithQuorum is for package redlock: a node's Mutex has one node")
	case set.Label != settings.DefaultLabel():
		err = errs.Misuse("quorumlock: WithLabel is for redlock.New: a node's Mutex has the default label: leave the option out, or use a client of package redlock")
	}
	return set, err
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.lock.Name() }

// Lock acquires the lock. It waits for its turn until ctx is done. See [quorumlock.Locker] for its
// errors, and for the state of the node after a failure.
func (m *Mutex) Lock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.Lock(ctx) }

// TryLock acquires the lock without waiting for its turn. See [quorumlock.Locker] for its errors.
func (m *Mutex) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.TryLock(ctx) }

// Inspect returns the state of the lock of that name: the owner, the remaining TTL, the last fencing
// token, and the queue with its first 100 waiters. Each request ends with ctx, or after the node's
// timeout. Inspect changes nothing. Pass the options with which the lock was made.
func (n *Node) Inspect(ctx context.Context, name string, opts ...quorumlock.Option) (quorumlock.State, error) {
	m := n.Mutex(name, opts...)
	if err := m.lock.Err(); err != nil {
		return quorumlock.State{}, err
	}
	return transport.Of(n).Inspect(ctx, m.key)
}

// ForceUnlock releases the lock of that name for all its owners. An owner loses its lease when it
// next renews. Each request ends with ctx, or after the node's timeout. After an error, the lock may
// be released. Pass the options with which the lock was made.
func (n *Node) ForceUnlock(ctx context.Context, name string, opts ...quorumlock.Option) error {
	m := n.Mutex(name, opts...)
	if err := m.lock.Err(); err != nil {
		return err
	}
	_, err := transport.Of(n).ForceRelease(ctx, m.key)
	return err
}

// ForceUnlockOwner releases the lock only if that owner, as Inspect shows it, holds or shares it,
// and returns [quorumlock.ErrNotHeld] otherwise. The rules are those of package redlock.
func (n *Node) ForceUnlockOwner(ctx context.Context, name string, owner quorumlock.Owner, opts ...quorumlock.Option) error {
	m := n.Mutex(name, opts...)
	if err := m.lock.Err(); err != nil {
		return err
	}
	found, err := transport.Of(n).ReleaseOwner(ctx, m.key, owner)
	if err == nil && !found {
		return quorumlock.ErrNotHeld
	}
	return err
}
