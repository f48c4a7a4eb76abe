package node

import (
	"context"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// Answer is a node's answer to [Node.Acquire].
type Answer struct {
	Granted bool
	Again   bool             // granted, and the owner had the lock already
	Token   uint64           // if granted: the fencing token of this hold at this node
	Shared  bool             // refused by readers or holders of slots, of whom Holder is one
	Holder  quorumlock.Owner // if refused: who holds the lock; the first in the queue if the lock is free
	TTL     time.Duration    // if refused: until the holder's key expires; 0 if unknown
}

// Acquire makes owner the holder of the lock name for ttl, without waiting and without renewal: it is
// the re-entrant primitive on which all locks of this module are built. hold is the number of
// entries that the owner wants to have: 1 acquires, and 2, 3 and so on enter again what the owner
// holds. Counts are absolute, so the same call twice enters once. The owner must pass
// [quorumlock.Owner.Validate], as those of [quorumlock.NewOwner] do. The name is the key:
// [quorumlock.WithPrefix] does not apply.
//
// After an error, the node may have granted the lock, or may still grant it: use a new owner for the
// next try, and let the key end at its TTL. Acquire returns when ctx is done, or after the node's
// timeout. A grant whose reply arrives after that is released.
func (n *Node) Acquire(ctx context.Context, name string, owner quorumlock.Owner, ttl time.Duration, hold int) (Answer, error) {
	a, err := transport.Of(n).Acquire(ctx, name, owner, ttl, hold)
	return Answer{a.Granted, a.Again, a.Token, a.Shared, a.Holder, a.TTL}, err
}

// Renew gives the lock a fresh ttl and reports whether owner holds it: if not, nothing is changed. It
// refuses the owner of a lease. ctx and the node's timeout bound it as they do Acquire.
func (n *Node) Renew(ctx context.Context, name string, owner quorumlock.Owner, ttl time.Duration) (bool, error) {
	if err := checkOwner(owner); err != nil {
		return false, err
	}
	return transport.Of(n).Renew(ctx, name, owner, ttl)
}

// Release leaves entry number hold of owner and returns how many are left: hold−1. With hold 1, the
// lock is free. It returns [quorumlock.ErrNotHeld] if owner does not have that entry. It refuses the
// owner of a lease. ctx and the node's timeout bound it as they do Acquire.
func (n *Node) Release(ctx context.Context, name string, owner quorumlock.Owner, hold int) (left int, err error) {
	if err := checkOwner(owner); err != nil {
		return 0, err
	}
	return transport.Of(n).Release(ctx, name, owner, hold)
}

// checkOwner refuses the owner of a lease, which only the lease may renew and release.
func checkOwner(owner quorumlock.Owner) error {
	if number := owner[strings.LastIndexByte(string(owner), ':')+1:]; strings.ContainsAny(string(number), "./") {
		return errs.Misusef("quorumlock: the owner %q is that of a lease: use the methods of the lease", owner)
	}
	return nil
}
