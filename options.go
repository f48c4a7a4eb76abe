package quorumlock

import (
	"log/slog"
	"time"

	"github.com/quorumlock/quorumlock/internal/settings"
)

// DefaultTTL is the TTL of a lease when no [WithTTL] is given.
const DefaultTTL = 10 * time.Second

// MinTTL is the smallest TTL that is accepted: nodes expire keys to the millisecond.
const MinTTL = 10 * time.Millisecond

// DefaultRetention is for how long a latch is kept when no [WithRetention] is given.
const DefaultRetention = 24 * time.Hour

// MinRetention is the smallest retention that is accepted: waiters refresh their latch every few seconds.
const MinRetention = time.Minute

// An Option changes how a lock behaves. Options given to a constructor are defaults; options given
// to a Mutex override them.
type Option func(*resolved)

// resolved is what options write. Other packages of this module read it by package options.
type resolved = settings.Of[Owner, Drift, Observer]

// WithTTL sets for how long the nodes keep the lock without hearing from its holder. The watchdog
// extends it every TTL/3, and for the first time after TTL/6 to TTL/3, so it bounds how long a dead holder keeps others out,
// not how long the work may take. Default [DefaultTTL]; at least [MinTTL], at most 100 years.
func WithTTL(ttl time.Duration) Option { return func(s *resolved) { s.TTL = ttl } }

// WithoutRenewal makes leases end when their TTL does, unless [Lease.Extend] is called.
func WithoutRenewal() Option { return func(s *resolved) { s.Renew = false } }

// WithWait bounds how long Lock waits, without bounding the context of the lease it returns. When
// it is over, Lock returns [context.DeadlineExceeded] joined with why the last attempt failed, such
// as [ErrHeld]. With 0 or less, such as an exhausted time budget, Lock does not wait: it is a
// TryLock. A refusal that may end with time is also joined with [context.DeadlineExceeded]. A
// positive limit also bounds the first attempt, which takes one or two round trips, or up to a node
// timeout while nodes are silent. With a shorter limit, Lock fails even if the lock is free.
// Default: Lock waits until its ctx is done.
func WithWait(limit time.Duration) Option { return func(s *resolved) { s.Wait = max(limit, 0) } }

// WithNodeTimeout sets how long one node may take to answer before it counts as unreachable for the
// call at hand. Calls wait for a slow node only while the other nodes are no quorum. The timeout must be positive, and
// not longer than the TTL: a later answer grants nothing. Default: a twentieth of the TTL, but at least 50 ms and at
// most 1 s.
func WithNodeTimeout(limit time.Duration) Option { return func(s *resolved) { s.NodeTimeout = limit } }

// WithDrift sets the allowance for clocks that run at different rates. Default [DefaultDrift].
func WithDrift(d Drift) Option { return func(s *resolved) { s.Drift = d } }

// WithQuorum sets how many nodes of a RedLock must agree, from a majority (the default) to all of
// them. A quorum of Q of N nodes excludes others while at most 2Q−N−1 nodes forget.
func WithQuorum(nodes int) Option { return func(s *resolved) { s.Quorum = nodes } }

// WithRestartGuard keeps a node from granting locks for maxTTL, and the drift of it, after the node's
// start: a node that restarts without its data, or without its latest writes, hands out no lock that
// somebody still holds. Such restarts then do not count among the nodes that forget. Default: off. Where
// more nodes have lost their token counters than may forget, tokens rise as the clients' wall clocks do:
// keep these in step.
//
// maxTTL is the longest TTL that any client of the nodes uses for any lock, and it takes all clients to
// have the guard, with the same maxTTL. A MultiLock has the guard of its members' clients.
//
// Also a node that is started for the first time is out for that time; so is one that restarts with all its
// data, so that nodes that write every change to disk before they answer (appendfsync always) are better
// off without. Meanwhile the node fails with [ErrQuarantined], in a *[QuorumError] if too few others are left.
// A server that was promoted from replica, as in a sentinel group, is out from the first call after that; a
// cluster cannot be guarded. What a flush or an eviction takes from a running server is not noticed,
// and a server whose clock is stepped forward ends its quarantine that much earlier.
//
// The nodes' users need the permission for INFO, which every acquisition of a free lock asks for. A lock is not
// handed over under the guard: the next holder is called and asks the nodes, which takes a round trip more.
func WithRestartGuard(maxTTL time.Duration) Option {
	return func(s *resolved) { s.MaxTTL = maxTTL }
}

// WithOwner makes Lock and TryLock enter the hold that o has of the same lock at the same client,
// whatever their ctx, and acquire it in o's name when there is none. o is a [NewOwner] that several
// calls share, or the [Lease.Owner] of a lease that is held. It has no meaning outside the process.
func WithOwner(o Owner) Option { return func(s *resolved) { s.Owner = o } }

// WithoutReentry makes Lock and TryLock refuse a ctx that descends from a lease of the same lock, with [ErrDeadlock]. Without it,
// they enter the hold of that lease: so all goroutines that are started with a lease's context get in at the same time, also into one
// slot of a semaphore. It is for code that takes a lock so that such goroutines take turns; for this, their contexts must not descend
// from the lease. It cannot be combined with [WithOwner].
func WithoutReentry() Option { return func(s *resolved) { s.NoReentry = true } }

// WithPrefix puts p before the name of the lock in every key and channel, for servers that several services
// share. Clients with different prefixes do not share locks. A Redisson client shares them if its NameMapper adds
// the same prefix. [CheckName] judges the name with its prefix. p must not contain spaces or control characters. If
// it contains a {, the } that ends the hash tag must follow within p, and not at once: a cluster would refuse the
// keys otherwise. p must be shorter than [MaxName]. Default: no prefix.
func WithPrefix(p string) Option { return func(s *resolved) { s.Prefix = p } }

// WithLabel sets what the owners of a client begin with, so that [HeldError], Inspect and the logs show people who
// holds a lock and who waits for it. It is given to the constructor of a client, see package redlock, and has 1 to 64
// letters, digits, dots, underscores and hyphens. Other locks refuse it. It need not be unique. Whoever may read the nodes can see it. Default:
// [DefaultLabel].
func WithLabel(l string) Option { return func(s *resolved) { s.Label = l } }

// WithMaxHold makes the watchdog stop d after the grant, even if the holder forgets to unlock. The lease is
// then lost at the end of its validity, at most one TTL later. [Lease.Extend] is not affected. d must be
// positive. Default: there is no limit.
func WithMaxHold(d time.Duration) Option { return func(s *resolved) { s.MaxHold = d } }

// WithRetention sets for how long the nodes keep a latch after the last Done or Wait that reached them. It means nothing to
// locks. Default [DefaultRetention], at least [MinRetention].
func WithRetention(d time.Duration) Option { return func(s *resolved) { s.Retention = d } }

// WithLogger sets where events are logged, one line each: a node is down, and why; a node is up; a renewal is late; a
// lease is lost, why, and at which nodes; a call waits for a quorum. Lines about nodes go to the logger of redlock.New, if it was
// given one, and not to that of a single lock. Default: nowhere.
func WithLogger(l *slog.Logger) Option { return func(s *resolved) { s.Logger = l } }

// WithObserver sets who learns what happens to locks and nodes, for traces and metrics; contrib/otel has one for
// OpenTelemetry. For latches it learns only what happens to the nodes. The Observer of redlock.New always learns of the client's
// nodes. That of a single lock learns of them only if the client has none, and not always: locks share round trips, and one of them
// tells its Observer. What happens to nodes while a MultiLock asks them is told to the Observer of its first member's client. The default, also with
// nil, is nobody; this costs nothing.
func WithObserver(o Observer) Option { return func(s *resolved) { s.Observer = o } }
