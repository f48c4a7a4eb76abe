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

// Locker is a lock: a lock of one node, a RedLock or a MultiLock. It is safe for concurrent use. A
// Locker is a name without state: every call acquires the lock again, unless its ctx descends from
// a lease of the same lock.
type Locker interface {
	// Name returns the name of the lock, without its prefix.
	Name() string

	// Lock acquires the lock. It waits for its turn, also during an outage of the nodes, until ctx
	// is done. The lease's context descends from ctx.
	//
	// When ctx is done, Lock returns ctx's error joined with the error of the last failed attempt.
	// That is a *HeldError or a *QuorumError, or neither if too few nodes have answered so far.
	// Lock returns ErrNotALock at once. When nodes are slow and another call in this process has
	// just given up, a Lock with less than 250 ms left may send no request. It then waits until ctx
	// is done, and returns the reason of the other call.
	//
	// A failed Lock leaves only token counters on the nodes. An unreachable node is sent the
	// release as soon as it answers. If the client ends first, the key expires with its TTL.
	Lock(ctx context.Context) (*Lease, error)

	// TryLock acquires the lock without waiting for its turn. Of several callers that try a free
	// lock at the same time, one acquires it. That may take a few round trips, and three node
	// timeouts at most.
	//
	// TryLock returns a *HeldError (errors.Is ErrHeld) if a quorum of the nodes answered and
	// another caller holds or is acquiring the lock. It returns a *QuorumError if too few nodes
	// answered: the holder is then unknown, even if one node names a holder. For a MultiLock, each
	// may be true of a different member: then the error matches both. TryLock returns ErrNotALock
	// if the key is not a lock, ErrTooLate if the TTL or TryLock's time ended before a quorum
	// confirmed the grant, and ctx's error if ctx is done first. A failed TryLock leaves the same
	// as a failed Lock.
	TryLock(ctx context.Context) (*Lease, error)
}

// Do calls fn while it holds l. The ctx of fn is the lease's context: it is cancelled when the
// lease is lost. Do returns fn's error, joined with an error that matches [ErrLost], usually a
// *[LostError], if the lease was lost before fn returned. Do does not return the *[QuorumError] of
// a release: the keys end with their TTL. If fn was not called, Do returns the error of l.Lock. Do
// releases the lock even if fn panics. If ctx, l or fn is nil, Do returns an error that matches
// [ErrMisuse], and takes no lock. [LeaseOf] returns the lease to fn, for example for its fencing
// token.
//
// If fn runs until its ctx is done, fn should also end at a Shutdown of the client: see [Stopping].
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
		// A release without a quorum is no failure of fn: the keys expire with their TTL.
		if e := lease.Unlock(ctx); errors.Is(e, ErrLost) {
			err = errs.Join(err, e)
		}
	}()
	return fn(lease.Context())
}

// Hold is one owner's time with a lock, from the grant to the release or the loss. A [Lease] is a
// handle on a Hold. Each kind of lock implements Hold. Programs need it only to write a [Locker] of
// their own, such as a fake for their tests. Its methods must be safe for concurrent use.
type Hold interface {
	Name() string
	Owner() Owner
	Token() uint64
	ValidUntil() time.Time
	HoldCount() int

	// Extend implements Lease.Extend, with a ttl of 0, and Lease.ExtendTo.
	Extend(ctx context.Context, ttl time.Duration) error

	// EndLease removes l, a lease from NewLease, from the hold, and ends a hold without leases. It
	// is called once for each lease, for any of its copies. If keep is positive, the nodes keep the
	// lock for that long after the call, even if the hold ends sooner.
	EndLease(ctx context.Context, l *Lease, keep time.Duration) error
}

// Lease is a handle on a hold, which is bounded in time. Every successful call of Lock or TryLock
// returns a Lease of its own, and its Unlock leaves the hold. A Lease is safe for concurrent use. A
// copy of a Lease is the same lease, and compares equal to it. A nil or zero Lease holds nothing:
// its context is done, and its methods return [ErrNotHeld] or zero values. So an Unlock may be
// deferred before the error of Lock is known.
type Lease struct{ *lease }

// lease is the state that all copies of a Lease share.
type lease struct {
	hold   Hold
	ctx    context.Context
	cancel context.CancelCauseFunc
	left   atomic.Bool
	first  Lease // the argument of Hold.EndLease, for every copy
	within within
}

// within is the parent of a lease's context, with the lease as a value. It is part of the lease, so
// it costs no allocation.
type within struct {
	context.Context
	lease *Lease
}

// leaseKey is the key of the lease in its context.
type leaseKey struct{}

func (w *within) Value(key any) any {
	if key == (leaseKey{}) {
		return w.lease
	}
	return w.Context.Value(key)
}

// LeaseOf returns the lease that ctx descends from, as in a function of [Do] or [Once]. Of several
// leases, it returns the innermost. For the lease of an outer lock, call LeaseOf before the inner
// Lock. ok is false if ctx descends from no lease.
//
// The lease stays in ctx after its end: then [Lease.Context] is done, Extend and Unlock return an
// error, and [Lease.Token] is the token that it had. Do and Once unlock the lease themselves.
func LeaseOf(ctx context.Context) (l *Lease, ok bool) {
	if ctx == nil {
		return nil, false
	}
	l, ok = ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// NewLease returns a lease of h with a context that descends from parent. The function that it
// returns cancels that context with a cause, [ErrLost], when h is lost. [LeaseOf] finds the lease in
// the context. NewLease is for packages that implement [Locker].
func NewLease(parent context.Context, h Hold) (*Lease, context.CancelCauseFunc) {
	l := &lease{hold: h}
	l.first.lease = l
	l.within = within{parent, &l.first}
	l.ctx, l.cancel = context.WithCancelCause(&l.within)
	return &l.first, l.cancel
}

// none reports whether l was never granted.
func (l *Lease) none() bool { return l == nil || l.lease == nil }

// named returns an error of the hold with the name of the lock, and a loss with its reason.
func (l *Lease) named(err error) error {
	switch {
	case l.none():
	case err == ErrNotHeld: //nolint:errorlint // an error that wraps it says more
		return fmt.Errorf("%w: the lease of %s was unlocked or detached before", ErrNotHeld, lockName(l.Name()))
	case err == ErrLost: //nolint:errorlint // an error that wraps it says more
		if e, ok := errors.AsType[*LostError](context.Cause(l.ctx)); ok {
			return e
		}
		return &LostError{Name: l.Name(), Owner: l.Owner()}
	}
	return err
}

// held returns the hold, or one of nobody.
func (l *Lease) held() Hold {
	if l.none() {
		return noHold{}
	}
	return l.hold
}

// noHold is the hold of a lease that was never granted.
type noHold struct{}

func (noHold) Name() string                                          { return "" }
func (noHold) Owner() Owner                                          { return "" }
func (noHold) Token() uint64                                         { return 0 }
func (noHold) ValidUntil() time.Time                                 { return time.Time{} }
func (noHold) HoldCount() int                                        { return 0 }
func (noHold) Extend(context.Context, time.Duration) error           { return ErrNotHeld }
func (noHold) EndLease(context.Context, *Lease, time.Duration) error { return ErrNotHeld }

// notHeld is the context of a lease that was never granted.
var notHeld = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotHeld)
	return ctx
}()

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.held().Name() }

// Owner returns the owner of the hold, as in Inspect. On the nodes, the number of a cell follows,
// see [Owner].
func (l *Lease) Owner() Owner { return l.held().Owner() }

// Token returns the fencing token: a number that is unique among the grants of a lock and higher
// than the token of every earlier grant. It is constant for the whole lease. Send the token with
// every write to the resource that the lock protects. The resource must refuse a write with a lower
// token than the highest so far: see package fence. (Kleppmann, "How to do distributed locking",
// 2016.)
//
// A lease of several permits has the token of its lowest slot. For the other slots, use
// [Lease.Slots].
func (l *Lease) Token() uint64 { return l.held().Token() }

// ValidUntil returns the end of the lease's validity without further renewals, on this process's
// clock. Every renewal moves it. After a loss, or a release by the last Unlock, it is no later than
// that event. After a handoff by the previous holder, the first validity is 1.8 s at most; some 50
// ms later the lease is renewed for its whole TTL.
func (l *Lease) ValidUntil() time.Time { return l.held().ValidUntil() }

// Slot returns the number of the lease's slot in a semaphore, from 0. It is constant for the whole
// lease. For a MultiLock it is the slot of the first semaphore among the members. For other locks
// it is 0.
func (l *Lease) Slot() int {
	if h, ok := l.held().(interface{ Slot() int }); ok {
		return h.Slot()
	}
	return 0
}

// Slots returns the slots of the lease, by number, each with its owner, its time and its fencing
// token. A lease of LockN has several slots; the first is that of [Lease.Slot], [Lease.Owner] and
// [Lease.Token]. For any other lease it returns one element, and for a nil lease nil.
func (l *Lease) Slots() []Slot {
	if l.none() {
		return nil
	}
	if h, ok := l.hold.(interface{ Slots() []Slot }); ok {
		return h.Slots()
	}
	return []Slot{{Number: l.Slot(), Owner: l.Owner(), TTL: max(time.Until(l.ValidUntil()), 0), Token: l.Token()}}
}

// HoldCount returns the number of leases of the hold that were not unlocked.
func (l *Lease) HoldCount() int { return l.held().HoldCount() }

// Context returns a context for the work that the lock protects. It is done when the lease is lost,
// when the lease is unlocked, or when its parent, the ctx given to Lock, is done. After a loss, its
// [context.Cause] matches [ErrLost]. The context is cancelled no later than the lease's deadline,
// without waiting for a network call.
func (l *Lease) Context() context.Context {
	if l.none() {
		return notHeld
	}
	return l.ctx
}

// Extend gives the lease a new TTL at a quorum of the nodes. It returns [ErrLost] if the lease is
// lost, and [ErrNotHeld] if it was unlocked. It returns a *[QuorumError] if too few nodes answered:
// then the lease lasts until its old deadline. If ctx is done first, Extend returns ctx's error,
// and the TTL may or may not be extended. With the lease's own context, that is so after a loss,
// too. With a nil ctx it returns [ErrNilContext], and extends nothing.
func (l *Lease) Extend(ctx context.Context) error { return l.extend(ctx, 0) }

// ExtendTo is [Lease.Extend] to a TTL of the caller's choice, from now on, as for [WithTTL]. It is
// for a lease without renewal, or for one that must outlast a pause of its process. ExtendTo never
// shortens a lease, neither below the deadline of an earlier ExtendTo nor below the TTL of the
// lock. Renewal, if it is on, does not shorten the lease, either. The new deadline counts for all
// leases of the hold. If the process dies, the lock stays taken for the rest of ttl.
//
// The ttl is at least [MinTTL] and at most a year; with [WithRestartGuard] it is at most the guard's
// maxTTL. Otherwise ExtendTo returns an error that matches [ErrMisuse]. If ttl is longer than the
// lock's, a node that left an earlier call of the hold unanswered does not count: that call may
// still run, and set its own expiry. If too few others remain, ExtendTo returns a *[QuorumError],
// and the lease has its old deadline, or one set by the lock's TTL.
func (l *Lease) ExtendTo(ctx context.Context, ttl time.Duration) error {
	if ctx != nil && (ttl < MinTTL || ttl > maxExtend) {
		return errs.Misusef("quorumlock: ExtendTo(%v): use a TTL of %v to %v", ttl, MinTTL, maxExtend)
	}
	return l.extend(ctx, ttl)
}

// maxExtend is the longest TTL of ExtendTo.
const maxExtend = 365 * 24 * time.Hour

func (l *Lease) extend(ctx context.Context, ttl time.Duration) error {
	if ctx == nil {
		return ErrNilContext
	}
	if l.none() || l.left.Load() {
		return l.named(ErrNotHeld)
	}
	return l.named(l.hold.Extend(ctx, ttl))
}

// Unlock leaves the lock; the last lease of a hold to leave releases it. Unlock cancels the lease's
// context, then waits until a quorum of the nodes has released, or until all nodes have answered or
// failed. A node has failed once it was silent for the node timeout. A node that was never sent a
// request counts as released if it answered the last call. A ctx that is done does not stop Unlock,
// so Unlock is safe to defer.
//
// Unlock returns [ErrLost] if the lease was lost before, and [ErrNotHeld] if it was unlocked
// before. It returns a *[QuorumError] if fewer nodes than the quorum confirmed: the others expire
// the key with its TTL. With a nil ctx, Unlock releases the lock and returns [ErrNilContext],
// joined with the error of the release, if any.
func (l *Lease) Unlock(ctx context.Context) error { return l.UnlockAfter(ctx, 0) }

// UnlockAfter is [Lease.Unlock], but the nodes keep the lock taken, without a holder, for another
// d. The lock is not renewed, and expires by itself. If d is 0 or less, UnlockAfter is Unlock.
//
// UnlockAfter returns when a quorum of the nodes has confirmed. If too few confirm, it returns a
// *[QuorumError] when all nodes have answered or failed, as for Unlock. The nodes that have
// confirmed keep the lock for d. At the others the lock ends with its TTL, unless only the answer
// was lost: the request is not repeated. A frozen node may execute the request after it thaws; then
// it keeps the lock for d from that time on.
//
// If the hold has other leases, UnlockAfter returns at once. The last lease to leave keeps the lock
// for the rest of d.
func (l *Lease) UnlockAfter(ctx context.Context, d time.Duration) error {
	if ctx == nil {
		return errs.Join(ErrNilContext, l.UnlockAfter(context.Background(), d))
	}
	if l.none() || l.left.Swap(true) {
		return l.named(ErrNotHeld)
	}
	l.cancel(nil)
	return l.named(l.hold.EndLease(ctx, &l.first, max(d, 0)))
}

// Detach ends the lease in this process, and keeps the hold for another process. It returns a text,
// which Attach of redlock's Client converts into a lease with the same fencing token. Detach
// cancels the lease's context, with [ErrDetached] as its cause, and stops its renewal. The other
// process has d minus the drift, from the call of Detach, to attach. Until then the nodes grant the
// lock to nobody else; later it is free, if nobody has attached. Any holder of the text can attach,
// once: treat the text as a password of the lock. It is printable ASCII without spaces, usually
// less than 300 bytes. Without the text, Inspect shows the hold, and ForceUnlockOwner frees it. A
// detached hold survives the Shutdown of its client.
//
// The duration d is at least [MinTTL]; with [WithRestartGuard] it is at most the guard's maxTTL.
// Otherwise it may be up to a year: choose it as short as the queue allows. Detach works for a
// Mutex of package redlock and for the writer of its RWMutex, if the lock was not entered again.
// For other leases, an invalid d or a nil ctx, Detach returns an error that matches [ErrMisuse],
// and the lease goes on. A deferred [Lease.Unlock] does nothing after a Detach but return
// [ErrNotHeld].
//
// Detach needs a quorum of the nodes. It waits until each node has answered or failed, as Unlock
// does, even if ctx is done. With a d below four node timeouts, it waits for a quorum only. After
// an error other than ErrMisuse the lease is over, and cannot be attached. The lock is released, as
// by [Lease.Unlock], or ends with d if this process ends first. Detach returns [ErrLost] if the
// lease was lost before or during the call, and [ErrNotHeld] if it was unlocked or detached before.
// It returns a *[QuorumError] if fewer nodes than the quorum confirmed.
func (l *Lease) Detach(ctx context.Context, d time.Duration) (text string, err error) {
	h, ok := l.held().(interface {
		Detach(ctx context.Context, l *Lease, d time.Duration, leave func() bool) (string, error)
	})
	switch {
	case ctx == nil:
		return "", ErrNilContext
	case l.none() || l.left.Load():
		return "", l.named(ErrNotHeld)
	case !ok:
		return "", errs.Misusef("quorumlock: Detach: the lease of %q cannot be detached: use a Mutex, or the writer of an RWMutex, of package redlock", l.Name())
	}
	text, err = h.Detach(ctx, &l.first, d, func() bool {
		if l.left.Swap(true) {
			return false
		}
		l.cancel(ErrDetached)
		return true
	})
	return text, l.named(err)
}

// String returns the lock, the owner, the fencing token and the end of the validity in one line,
// for people.
func (l *Lease) String() string {
	if l.none() {
		return "no lease"
	}
	return fmt.Sprintf("lease of %q by %s, token %d, valid until %s", l.Name(), l.Owner().name(), l.Token(), l.ValidUntil().Format(time.RFC3339Nano))
}

// LogValue returns a group of the lock, the owner, the fencing token and the end of the validity.
// It makes a Lease a [slog.LogValuer].
func (l *Lease) LogValue() slog.Value {
	if l.none() {
		return slog.StringValue(l.String())
	}
	return slog.GroupValue(
		slog.String("lock", l.Name()),
		slog.String("owner", l.Owner().name()),
		slog.Uint64("token", l.Token()),
		slog.Time("valid_until", l.ValidUntil()),
	)
}

// Stopping returns a channel that is closed when the client of a lease begins its Shutdown, or is
// closed. The argument is the lease's context, or a descendant, as in a function of [Do]. Of
// several leases, the innermost counts. If ctx descends from no lease, or the lock has no client,
// Stopping returns nil, a channel on which a receive blocks forever.
//
// A Shutdown waits for leases without cancelling their contexts, so that current work can finish. A
// function that runs until its context is done should therefore also return when this channel is
// closed. It keeps the lock until its return.
func Stopping(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	if h, ok := ctx.Value(settings.HeldKey{}).(interface{ Stopping() <-chan struct{} }); ok {
		return h.Stopping()
	}
	return nil
}
