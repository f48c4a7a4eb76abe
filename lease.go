package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Locker is a lock: a node's, a RedLock, or a MultiLock. It is safe for concurrent use, and only a
// name for the lock: every call acquires it again, unless its ctx descends from a lease of the same lock.
type Locker interface {
	// Name returns the name the lock was made with.
	Name() string

	// Lock acquires the lock, waiting for its turn until ctx is done. It rides out an outage of the nodes. When ctx
	// is done, Lock returns ctx's error joined with the reason of the last failed attempt: a *HeldError or a
	// *QuorumError, or neither if too few nodes have answered so far. It returns ErrNotALock at once. When
	// nodes are slow and another caller in this process has just given up, a Lock with less than 250 ms left may skip
	// asking the nodes. It waits until ctx is done, and returns the reason of that caller. The lease's context descends from ctx. A failed
	// Lock leaves only token counters on the nodes. An unreachable node gets the release as soon as it answers; if
	// the client ends first, the key ends with its TTL.
	Lock(ctx context.Context) (*Lease, error)

	// TryLock does not wait for its turn. If several callers try a free lock at the same time, one
	// of them gets it; for that it may take a few round trips, and three node timeouts at most. It
	// returns a *HeldError (errors.Is ErrHeld) when a quorum of the nodes answered and another
	// caller holds or is acquiring the lock. It returns a *QuorumError when too few nodes answered:
	// then the holder is unknown, even if one node names a holder. For a MultiLock, each may be
	// true of a different member: then the error matches both. It returns ErrNotALock when the key
	// is not a lock, ErrTooLate when the grant left nothing of the TTL, and ctx's error when ctx is
	// done first.
	TryLock(ctx context.Context) (*Lease, error)
}

// Do runs fn while holding l. fn's ctx is the lease's: it is cancelled when the lease is lost. Do
// returns fn's error, joined with a *[LostError] when the lease was lost before fn returned, or the error
// of l.Lock if fn never ran. The lock is released even if fn panics. If fn runs until its ctx is done, it should also end
// at a Shutdown of the client: see [Stopping]. If ctx, l or fn is nil, Do returns an error and takes no lock.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error) (err error) {
	switch {
	case ctx == nil:
		return fmt.Errorf("quorumlock: Do: %w", ErrNilContext)
	case settings.IsNil(l):
		return errs.Misuse("quorumlock: Do: the Locker is nil: use a Mutex of package redlock, multilock or node")
	case fn == nil:
		return errs.Misuse("quorumlock: Do: the function is nil: use the work that the lock protects")
	}
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// A release that no quorum confirmed is no failure of fn: the keys are gone at their TTL.
		if e := lease.Unlock(ctx); errors.Is(e, ErrLost) {
			err = errs.Join(err, e)
		}
	}()
	return fn(lease.Context())
}

// Hold is one owner's time with a lock, from the grant to the release or the loss. Each kind of lock implements
// it. A [Lease] is a handle on a Hold. Programs need Hold only to write a [Locker] of their own, such as a fake
// for their tests.
type Hold interface {
	Name() string
	Owner() Owner
	Token() uint64
	ValidUntil() time.Time
	HoldCount() int

	// Extend is Lease.Extend.
	Extend(ctx context.Context) error

	// Leave removes l, a lease from NewLease, from the hold, and ends a hold without leases. It is called once for each
	// lease, whichever copy is unlocked. If keep is positive, the lock stays taken for that long, even if the hold ends sooner.
	Leave(ctx context.Context, l *Lease, keep time.Duration) error
}

// Lease is a handle on a hold, which is bounded in time. Every successful call of Lock or TryLock returns
// a Lease of its own, and its Unlock leaves the hold. A Lease is safe for concurrent use; its zero
// value is not usable. A copy of a Lease is the same lease, and compares equal to it.
type Lease struct{ *lease }

// lease is the state shared by the copies of a Lease.
type lease struct {
	hold   Hold
	ctx    context.Context
	cancel context.CancelCauseFunc
	left   atomic.Bool
	first  Lease // of all copies
}

// NewLease returns a lease of h whose context descends from parent, and the function that cancels
// that context with a cause, [ErrLost], when h is lost. It is for packages that implement [Locker].
func NewLease(parent context.Context, h Hold) (*Lease, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	l := &lease{hold: h, ctx: ctx, cancel: cancel}
	l.first.lease = l
	return &l.first, cancel
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.hold.Name() }

// Owner returns the owner of the hold, as Inspect shows it. On the nodes it ends in the number of a cell, see [Owner].
func (l *Lease) Owner() Owner { return l.hold.Owner() }

// Token returns the fencing token: a number that is unique among the grants of a lock and higher than
// that of every earlier one. Send it along with every write, and let the resource that the lock
// protects refuse a write whose token is lower than one it has seen, see package fence. (Kleppmann, "How to do
// distributed locking", 2016.) It stays the same for as long as the lease lasts.
func (l *Lease) Token() uint64 { return l.hold.Token() }

// ValidUntil returns the time until which the lease is good if it is not extended again, on this
// process's clock. It moves with every renewal. Once the lock is
// lost, or released by the last Unlock, it is not later than that. A lock that was handed over by the holder before is good for
// 1.8 s at most at first, and renewed for its whole TTL some 50 ms later.
func (l *Lease) ValidUntil() time.Time { return l.hold.ValidUntil() }

// Slot returns the number of the slot that the lease has of a semaphore, from 0. It stays the same for as long as the lease lasts.
// For a MultiLock it is that of the first semaphore among the members. For other locks it is 0.
func (l *Lease) Slot() int {
	if h, ok := l.hold.(interface{ Slot() int }); ok {
		return h.Slot()
	}
	return 0
}

// HoldCount returns how many leases of the same hold have been entered and not left.
func (l *Lease) HoldCount() int { return l.hold.HoldCount() }

// Context returns a context for the work that the lock protects. It is done when the lease is lost,
// and [context.Cause] is [ErrLost] then; when it is unlocked; or when its parent, the ctx given to
// Lock, is. You learn of the loss by the lease's own deadline: no network call is waited for.
func (l *Lease) Context() context.Context { return l.ctx }

// Extend gives the lease a fresh TTL at a quorum of the nodes. It returns [ErrLost] if the lease is
// lost, [ErrNotHeld] if it was unlocked, and a *[QuorumError] if too few nodes answered: then the
// lease lasts until its old deadline. When ctx is done first it returns ctx's error, and the TTL may
// or may not be extended. With a nil ctx it returns [ErrNilContext], and extends nothing.
func (l *Lease) Extend(ctx context.Context) error {
	if ctx == nil {
		return ErrNilContext
	}
	if l.left.Load() {
		return ErrNotHeld
	}
	return l.hold.Extend(ctx)
}

// Unlock leaves the lock; the last lease of a hold to leave releases it. It cancels the lease's
// context, then waits until a quorum of the nodes has released, for the node timeout at most. A node to which the lock's
// request was not sent yet has nothing to release: it counts as one that has, if it answered the last call. That ctx
// is done does not stop it, so it is safe to defer.
//
// It returns [ErrLost] if the lease was lost before, [ErrNotHeld] if it was unlocked before, and a
// *[QuorumError] if fewer nodes confirmed than the quorum: the others forget the key at its TTL. With a nil ctx it
// releases all the same, and returns [ErrNilContext], joined with the error of the release if there is one.
func (l *Lease) Unlock(ctx context.Context) error { return l.UnlockAfter(ctx, 0) }

// UnlockAfter is [Lease.Unlock], but the nodes keep the lock taken for d more, though nobody holds
// it. The lock is not renewed, and expires by itself. UnlockAfter returns when a quorum of the
// nodes has confirmed that. If too few do, it returns a *[QuorumError] when all nodes have
// answered, or after the node timeout. Those that have confirmed keep the lock all the same. At the
// others it ends with its TTL, unless only the answer was lost: none is asked to keep it later. A
// frozen node may execute the request after it thaws, and then keeps the lock for d from that time
// on. If other leases of the hold are still entered, UnlockAfter returns at once, and the last to
// leave keeps the lock for what is left of d. If d is 0 or less, it is Unlock.
func (l *Lease) UnlockAfter(ctx context.Context, d time.Duration) error {
	if ctx == nil {
		return errs.Join(ErrNilContext, l.UnlockAfter(context.Background(), d))
	}
	if l.left.Swap(true) {
		return ErrNotHeld
	}
	l.cancel(nil)
	return l.hold.Leave(ctx, &l.first, max(d, 0))
}

// Detach ends the lease in this process, and keeps the hold for another one. It returns a text, which Attach of redlock's Client turns back
// into a lease with the same fencing token. Detach cancels the lease's context, with [ErrDetached] as its cause, and nothing
// is renewed any more. Counted from the call, the nodes keep the hold for d minus the drift, and nobody else gets the lock in that
// time. Then it is free, unless somebody has attached. Whoever has the text can attach, once: treat it as a password of the lock.
//
// d is at least [MinTTL]; with [WithRestartGuard] it is not longer than the guard expects. Detach works for a Mutex of package redlock and
// for the writer of its RWMutex, if the hold has one lease. For other leases, a bad d or a nil ctx it returns an error that matches
// [ErrMisuse], and the lease goes on: defer [Lease.Unlock] as ever, which does nothing after a Detach but return [ErrNotHeld].
//
// Detach needs a quorum of the nodes, and waits for all of them, for the node timeout at most, even if ctx is done. After any other error the lease is over
// and nobody can attach. The lock is released, as by [Lease.Unlock], or ends with d if this process ends first. It returns [ErrLost] if
// the lease was lost before or while it was detached, [ErrNotHeld] if it was unlocked or detached before, and a *[QuorumError] if
// fewer nodes confirmed than the quorum.
func (l *Lease) Detach(ctx context.Context, d time.Duration) (text string, err error) {
	h, ok := l.hold.(interface {
		Detach(ctx context.Context, l *Lease, d time.Duration, leave func() bool) (string, error)
	})
	switch {
	case ctx == nil:
		return "", ErrNilContext
	case l.left.Load():
		return "", ErrNotHeld
	case !ok:
		return "", errs.Misusef("quorumlock: Detach: the lease of %q cannot be detached: use a Mutex, or the writer of an RWMutex, of package redlock", l.Name())
	}
	return h.Detach(ctx, &l.first, d, func() bool {
		if l.left.Swap(true) {
			return false
		}
		l.cancel(ErrDetached)
		return true
	})
}

// String describes the lease in one line, for people: the lock, the owner, the fencing token and until when the
// lease is valid.
func (l *Lease) String() string {
	if l == nil || l.lease == nil {
		return "no lease"
	}
	return fmt.Sprintf("lease of %q by %s, token %d, valid until %s", l.Name(), l.Owner().name(), l.Token(), l.ValidUntil().Format(time.RFC3339Nano))
}

// LogValue returns the lock, the owner, the fencing token and until when the lease is valid, as a group. It makes a
// Lease a [slog.LogValuer].
func (l *Lease) LogValue() slog.Value {
	if l == nil || l.lease == nil {
		return slog.StringValue(l.String())
	}
	return slog.GroupValue(
		slog.String("lock", l.Name()),
		slog.String("owner", l.Owner().name()),
		slog.Uint64("token", l.Token()),
		slog.Time("valid_until", l.ValidUntil()),
	)
}
