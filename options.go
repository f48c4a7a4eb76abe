package quorumlock

import (
	"log/slog"
	"time"

	"github.com/quorumlock/quorumlock/internal/settings"
)

// DefaultTTL is the TTL of a lease without [WithTTL].
const DefaultTTL = 10 * time.Second

// MinTTL is the smallest valid TTL. Nodes expire keys to the millisecond.
const MinTTL = 10 * time.Millisecond

// An Option configures a lock. Options of a client are the defaults of its locks; options of a lock
// override them.
type Option func(*resolved)

// resolved is the target of an Option. Other packages of this module read it through package
// options.
type resolved = settings.Of[Owner, Drift, Observer]

// WithTTL sets how long the nodes keep the lock after its last renewal. The watchdog renews the
// lock every TTL/3, and for the first time after TTL/6 to TTL/3. So the TTL bounds how long a dead
// holder blocks others; it does not bound the work. Default [DefaultTTL]; at least [MinTTL], at
// most 100 years.
func WithTTL(ttl time.Duration) Option { return func(s *resolved) { s.TTL = ttl } }

// WithoutRenewal turns the watchdog off: a lease ends with its TTL, unless [Lease.Extend] is
// called. Entering the hold again does not prolong it.
func WithoutRenewal() Option { return func(s *resolved) { s.Renew = false } }

// WithWait bounds how long Lock waits, without bounding the context of the lease. After the limit,
// Lock returns [context.DeadlineExceeded] joined with the error of the last attempt, such as
// [ErrHeld], or with [ErrUnsent] if it sent none.
//
// With a limit of 0 or less, such as an exhausted time budget, Lock does not wait: it is a TryLock.
// A refusal that may end with time is then also joined with [context.DeadlineExceeded].
//
// A positive limit also bounds the first attempt. An attempt takes one or two round trips, or up to
// a node timeout while nodes are silent. With a shorter limit, Lock fails even if the lock is free.
// Default: Lock waits until its ctx is done.
func WithWait(limit time.Duration) Option { return func(s *resolved) { s.Wait = max(limit, 0) } }

// WithNodeTimeout sets how long a node may be silent before its unanswered calls fail. The time
// begins when a call is sent, and begins again with each answer of the node: a busy node answers
// its calls in turn. Delays of the process itself do not count. Calls wait for a slow node only as
// long as the other nodes form no quorum. The timeout must be positive, and at most the TTL: a
// later answer grants nothing. Renewals sent together use the longest of their node timeouts.
// Default: a twentieth of the TTL, but at least 50 ms and at most 1 s.
func WithNodeTimeout(limit time.Duration) Option { return func(s *resolved) { s.NodeTimeout = limit } }

// WithDrift sets the allowance for clocks that run at different rates. Default [DefaultDrift].
func WithDrift(d Drift) Option { return func(s *resolved) { s.Drift = d } }

// WithQuorum sets how many nodes of a RedLock must agree, from a majority to all of them. A quorum
// of Q of N nodes guarantees mutual exclusion while at most 2Q−N−1 nodes forget. Default: a
// majority.
func WithQuorum(nodes int) Option { return func(s *resolved) { s.Quorum = nodes } }

// WithRestartGuard quarantines a node after its start: the node grants no lock for maxTTL plus the
// drift of maxTTL. A node that restarts without its data, or without its latest writes, then grants
// no lock that is still held. Such restarts do not count among the nodes that forget. Default: off.
//
// The clients measure the quarantine by their monotonic clocks, because a step of the node's clock
// moves its uptime. So the quarantine begins with the first call after the start by a client with
// the guard. When a client ends, other clients continue its measurement, and lose at most a second
// of it. The node keeps the result in the key quorumlock_age, so later clients do not wait.
//
// The argument is the longest TTL of any lock of any client of the nodes. All clients must have the
// guard, with the same maxTTL. A MultiLock has the guard of its members' clients.
//
// The quarantine also applies to a node's first start, and to a restart with all data. Nodes that
// write every change to disk before they answer (appendfsync always) are better off without the
// guard. A node in quarantine fails with [ErrQuarantined], in a *[QuorumError] if too few others
// are left. A server that was promoted from replica, as in a sentinel group, is in quarantine from
// the first call after the promotion. A cluster cannot be guarded. The guard does not notice a
// flush, an eviction or a step of the clock on a running server.
//
// Programs that end at once measure nothing. If all clients are such programs, let them wait in
// Lock for a few seconds.
//
// If more nodes have lost their token counters than may forget, token order depends on the clients'
// wall clocks: keep these in step.
//
// The nodes' users need the permissions for INFO, which every acquisition of a free lock calls, and
// for the key quorumlock_age.
// There are no handoffs under the guard: a release notifies the next waiter, which then acquires
// the lock. This takes one round trip more.
func WithRestartGuard(maxTTL time.Duration) Option {
	return func(s *resolved) { s.MaxTTL = maxTTL }
}

// WithOwner makes Lock and TryLock enter the hold of o on the same lock and client, for any ctx. If
// o has no hold, they acquire the lock for o. The owner is a [NewOwner] that several calls share,
// or the [Lease.Owner] of a lease that is held. An Owner has no meaning outside the process.
func WithOwner(o Owner) Option { return func(s *resolved) { s.Owner = o } }

// WithoutReentry makes Lock and TryLock return [ErrDeadlock] for a ctx that descends from a lease
// of the same lock. Without this option, they enter the hold of that lease. Then all goroutines
// with a context from that lease enter at the same time, even one slot of a semaphore.
//
// Use it where such goroutines must take turns; their contexts must then not descend from the
// lease. It cannot be combined with [WithOwner].
func WithoutReentry() Option { return func(s *resolved) { s.NoReentry = true } }

// WithPrefix puts p before the name of the lock in every key and channel, for servers that several
// services share. Clients with different prefixes do not share locks. A Redisson client with the
// same prefix in its NameMapper shares them. [ValidateName] checks the name with its prefix.
//
// A prefix has less than 1,024 bytes, and has no spaces or control characters. If it contains a {,
// then it must also contain the } that ends the hash tag, and the tag must not be empty. Otherwise
// a cluster would refuse the keys. Default: no prefix.
func WithPrefix(p string) Option { return func(s *resolved) { s.Prefix = p } }

// WithLabel sets the beginning of a client's owners. [HeldError], Inspect and the logs use it to
// identify holders and waiters to people. It is an option of the constructors of clients, see
// package redlock; the constructors of locks refuse it. A label has 1 to 64 letters, digits, dots,
// underscores and hyphens. It need not be unique. Every client with read access to the nodes can
// see it. Default: `<hostname>-<pid>`.
func WithLabel(l string) Option { return func(s *resolved) { s.Label = l } }

// WithMaxHold makes the watchdog stop d after the grant, even if the holder forgets to unlock. The
// lease is then lost at the end of its validity, at most one TTL later. [Lease.Extend] is not
// affected; entering the hold again does not prolong it. The duration must be positive. Default: no
// limit.
func WithMaxHold(d time.Duration) Option { return func(s *resolved) { s.MaxHold = d } }

// WithData gives each hold of a Mutex, or of the writer of an RWMutex, a text for people, such as
// the ID of a job: at most 1,024 bytes of valid UTF-8. An empty text is none. Inspect and the tool
// show the data of the holder. So does the [HeldError] of a caller that also has WithData, after
// one more round trip.
//
// The data is written right after the grant, and with each renewal where it is missing. No call
// waits for that, and a failure does not end the hold: the data is missing, or shown later. If a
// node refuses the data, as for a user who may not write its key, the client logs that once.
//
// A node shows the data only while its owner holds the lock there. So the data ends with the hold;
// [Lease.UnlockAfter] keeps both. A hold that becomes a reader's by a Downgrade has no data.
//
// The data costs one more script at each node for a grant, a renewal and an unlock. A Client, a
// Semaphore, a Latch, a MultiLock and an election refuse the option; [WithLabel] names a client.
func WithData(text string) Option { return func(s *resolved) { s.Data = text } }

// WithRetention sets how long the nodes keep a latch after the last Done or Wait that reached them.
// Locks ignore it. The default is 24 hours, and the minimum a minute,
// because waiters refresh their latch every few seconds.
func WithRetention(d time.Duration) Option { return func(s *resolved) { s.Retention = d } }

// WithLogger sets the logger for events, one line each:
//
//   - a node is down, with the reason, or up again;
//   - a renewal is late;
//   - a lease is lost, with the reason and the nodes;
//   - a call waits for a quorum, or has waited a whole TTL for one lease of its own process.
//
// Lines about nodes go to the logger of the client, if it has one, and not to that of a single
// lock. Default: no logging.
func WithLogger(l *slog.Logger) Option { return func(s *resolved) { s.Logger = l } }

// WithObserver sets the [Observer] of events, for traces and metrics. Package contrib/otel has one
// for OpenTelemetry. Latches report only the events of nodes.
//
// The Observer of a client gets all events of its nodes. The Observer of a single lock gets events
// of nodes only if the client has no Observer. It does not get all of them: locks share round
// trips, and one of these locks reports. A MultiLock reports events of nodes to the Observer of its
// first member's client. Default, also for nil: no Observer, at no cost.
func WithObserver(o Observer) Option { return func(s *resolved) { s.Observer = o } }

// ValidateName returns an error, which matches [ErrMisuse], if name is not valid for a lock. A name
// is invalid if it is empty, longer than 1,024 bytes with its prefix, or has the form of a key that this library or
// Redisson keeps beside a lock. Name includes the prefix of [WithPrefix]. The error has the reason
// and the fix.
//
// The methods of every lock check their names. A program that takes names from its users can call
// ValidateName earlier.
func ValidateName(name string) error { return settings.ValidateName(name) }
