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
	Shared  bool             // refused by readers or holders of slots; Holder is one of them
	Holder  quorumlock.Owner // if refused: the holder, or the first in the queue of a free lock
	TTL     time.Duration    // if refused: until the holder's key expires; 0 if unknown
}

// Acquire makes owner the holder of the lock name for ttl. It neither waits for a turn nor renews:
// it is the re-entrant primitive under all locks of this module. hold is the number of entries that
// the owner then has: 1 acquires, and 2, 3 and so on re-enter. Counts are absolute, so a repeated
// call enters once. The owner must pass [quorumlock.Owner.Validate], as those of
// [quorumlock.NewOwner] do. The name is the key: [quorumlock.WithPrefix] does not apply.
//
// Acquire returns when ctx is done, or after the node's timeout. After an error, the node may have
// granted the lock, or may still grant it: use a new owner for the next try, and let the key end
// with its TTL. A grant with a late reply is released.
func (n *Node) Acquire(ctx context.Context, name string, owner quorumlock.Owner, ttl time.Duration, hold int) (Answer, error) {
	a, err := transport.Of(n).Acquire(ctx, name, owner, ttl, hold)
	return Answer{a.Granted, a.Again, a.Token, a.Shared, a.Holder, a.TTL}, err
}

// Renew gives the lock a fresh ttl, and reports whether owner holds it; otherwise nothing changes.
// It refuses the owner of a lease. It returns when ctx is done, or after the node's timeout; after
// an error, the lock may have been renewed.
func (n *Node) Renew(ctx context.Context, name string, owner quorumlock.Owner, ttl time.Duration) (bool, error) {
	if err := checkOwner(owner); err != nil {
		return false, err
	}
	return transport.Of(n).Renew(ctx, name, owner, ttl)
}

// Release leaves entry number hold of owner, and returns the number of entries left, hold−1. With
// hold 1, it releases the lock. It returns [quorumlock.ErrNotHeld] if owner does not have that
// entry, and refuses the owner of a lease. It returns when ctx is done, or after the node's
// timeout. After an error, a repeated call with the same hold does no harm.
func (n *Node) Release(ctx context.Context, name string, owner quorumlock.Owner, hold int) (left int, err error) {
	if err := checkOwner(owner); err != nil {
		return 0, err
	}
	return transport.Of(n).Release(ctx, name, owner, hold)
}

// checkOwner refuses the owner of a lease: only the lease may renew and release its hold.
func checkOwner(owner quorumlock.Owner) error {
	if number := owner[strings.LastIndexByte(string(owner), ':')+1:]; strings.ContainsAny(string(number), "./") {
		return errs.Misusef("quorumlock: the owner %q is that of a lease: use the methods of the lease", owner)
	}
	return nil
}
