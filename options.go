package quorumlock

import (
	"fmt"
	"log/slog"
	"time"
)

// DefaultTTL is the TTL of a lease when no [WithTTL] is given.
const DefaultTTL = 10 * time.Second

// MinTTL is the smallest TTL that is accepted: nodes expire keys to the millisecond.
const MinTTL = 10 * time.Millisecond

// DefaultRetention is for how long a latch is kept when no [WithRetention] is given.
const DefaultRetention = 24 * time.Hour

// MinRetention is the smallest retention that is accepted: waiters refresh their latch every few seconds.
const MinRetention = time.Minute

// maxGuard keeps the arithmetic of the restart guard, and that of a node, from overflowing.
const maxGuard = 100 * 365 * 24 * time.Hour

// An Option changes how a lock behaves. Options given to a constructor are defaults; options given
// to a Mutex override them.
type Option func(*Settings)

// Settings is what a lock's options come to. Programs set it through Options; it is exported for
// packages that make lock kinds.
type Settings struct {
	TTL         time.Duration // the expiry set on the key at each node
	Renew       bool          // whether the watchdog extends the lease
	Wait        time.Duration // how long Lock may wait; 0: until its ctx is done
	NodeTimeout time.Duration // how long one node may take to answer
	Drift       Drift         // the allowance for clock rates
	Quorum      int           // the nodes that must agree; 0: a majority
	MaxTTL      time.Duration // the longest TTL of any client, for the restart guard; 0: there is no guard
	Owner       Owner         // whose hold Lock may enter; empty: decided by its ctx
	Prefix      string        // put before the lock's name in every key
	Label       string        // begins the owners of the client, so that people see who they are
	MaxHold     time.Duration // how long after the grant the watchdog renews; 0: for as long as the lock is held
	Retention   time.Duration // how long the nodes keep a latch that is not used
	Logger      *slog.Logger  // never nil once resolved
	Observer    Observer      // nil: nobody observes
}

// WithTTL sets for how long the nodes keep the lock without hearing from its holder. The watchdog
// extends it every third of that, so it bounds how long a dead holder keeps others out, not how
// long the work may take. Default [DefaultTTL], at least [MinTTL].
func WithTTL(ttl time.Duration) Option { return func(s *Settings) { s.TTL = ttl } }

// WithoutRenewal makes leases end when their TTL does, unless [Lease.Extend] is called.
func WithoutRenewal() Option { return func(s *Settings) { s.Renew = false } }

// WithWait bounds how long Lock waits, without bounding the context of the lease it returns. When it
// is over, Lock returns [context.DeadlineExceeded] joined with why the last attempt failed, such as
// [ErrHeld]. Default: Lock waits until its ctx is done.
func WithWait(limit time.Duration) Option { return func(s *Settings) { s.Wait = limit } }

// WithNodeTimeout sets how long one node may take to answer before it counts as unreachable for the
// call at hand. It is waited for only while the other nodes are no quorum. It must not be longer than the
// TTL: an answer that comes later grants nothing. Default: a twentieth of the TTL, but at least 50 ms and at
// most 1 s.
func WithNodeTimeout(limit time.Duration) Option { return func(s *Settings) { s.NodeTimeout = limit } }

// WithDrift sets the allowance for clocks that run at different rates. Default [DefaultDrift].
func WithDrift(d Drift) Option { return func(s *Settings) { s.Drift = d } }

// WithQuorum sets how many nodes of a RedLock must agree, from a majority (the default) to all of
// them. A quorum of Q of N nodes excludes others while at most 2Q−N−1 nodes forget.
func WithQuorum(nodes int) Option { return func(s *Settings) { s.Quorum = nodes } }

// WithRestartGuard keeps a node from granting locks for maxTTL, and the drift of it, after the node's
// start: a node that restarts without its data, or without its latest writes, hands out no lock that
// somebody still holds. Such restarts then do not count among the nodes that forget. Default: off. Where
// more nodes have lost their token counters than may forget, tokens rise as the clients' wall clocks do:
// keep these in step.
//
// maxTTL is the longest TTL that any client of the nodes uses for any lock, and it takes all clients to
// have the guard, with the same maxTTL. A MultiLock needs the option itself. The primitive of package node
// has no guard.
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
	return func(s *Settings) { s.MaxTTL = maxTTL }
}

// WithOwner makes Lock and TryLock enter the hold that o has of the same lock at the same client,
// whatever their ctx, and acquire it in o's name when there is none. o is a [NewOwner] that several
// calls share, or the [Lease.Owner] of a lease that is held. It has no meaning outside the process.
func WithOwner(o Owner) Option { return func(s *Settings) { s.Owner = o } }

// WithPrefix puts p before the name of the lock in every key and channel, for servers that several services
// share. Clients with different prefixes do not share locks. A Redisson client shares them if its NameMapper adds
// the same prefix. [CheckName] judges the name with its prefix. p must not contain spaces or control characters. If
// it contains a {, the } that ends the hash tag must follow within p, and not at once: a cluster would refuse the
// keys otherwise. Default: no prefix.
func WithPrefix(p string) Option { return func(s *Settings) { s.Prefix = p } }

// WithLabel sets what the owners of a client begin with, so that [HeldError], Inspect and the logs show people who
// holds a lock and who waits for it. It is given to the constructor of a client, see package redlock, and has 1 to 64
// letters, digits, dots, underscores and hyphens. Other locks refuse it. It need not be unique. Whoever may read the nodes can see it. Default:
// [DefaultLabel].
func WithLabel(l string) Option { return func(s *Settings) { s.Label = l } }

// WithMaxHold makes the watchdog stop d after the grant, even if the holder forgets to unlock. The lease is
// then lost at the end of its validity, at most one TTL later. [Lease.Extend] is not affected. Default, and with
// 0: there is no limit.
func WithMaxHold(d time.Duration) Option { return func(s *Settings) { s.MaxHold = d } }

// WithRetention sets for how long the nodes keep a latch after the last Done or Wait that reached them. It means nothing to
// locks. Default [DefaultRetention], at least [MinRetention].
func WithRetention(d time.Duration) Option { return func(s *Settings) { s.Retention = d } }

// WithLogger sets where events are logged, one line each: a node is down, and why; a node is up; a renewal is late; a
// lease is lost, why, and at which nodes; a call waits for a quorum. Default: nowhere.
func WithLogger(l *slog.Logger) Option { return func(s *Settings) { s.Logger = l } }

// WithObserver sets who learns what happens to locks and nodes, for traces and metrics; contrib/otel has one for
// OpenTelemetry. For latches it learns only what happens to the nodes. Give it to the client rather than to single locks: locks share
// round trips, and only one of them tells its Observer about the node. The default, also with nil, is nobody; this costs nothing.
func WithObserver(o Observer) Option { return func(s *Settings) { s.Observer = o } }

// Resolve applies the options in their order to the defaults and checks the outcome. The error names
// the option at fault and says what would do.
func Resolve(opts ...Option) (Settings, error) {
	s := Settings{TTL: DefaultTTL, Renew: true, Drift: DefaultDrift(), Label: DefaultLabel(), Retention: DefaultRetention}
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	err := s.check()
	if s.NodeTimeout == 0 {
		s.NodeTimeout = min(max(s.TTL/20, 50*time.Millisecond), time.Second)
	}
	return s, err
}

// Quarantine is for how long after its start a node must not grant: the restart guard's maxTTL and the
// drift of it, or 0 without a guard.
func (s *Settings) Quarantine() time.Duration {
	if s.MaxTTL == 0 {
		return 0
	}
	return s.MaxTTL + (s.MaxTTL - s.Drift.Validity(s.MaxTTL, 0))
}

func (s *Settings) check() error {
	if s.TTL < MinTTL {
		return fmt.Errorf("quorumlock: WithTTL(%v) is too short: use at least %v", s.TTL, MinTTL)
	}
	if err := s.Drift.Validate(); err != nil {
		return fmt.Errorf("quorumlock: WithDrift: %w", err)
	}
	if s.Drift.Validity(s.TTL, 0) <= 0 {
		return fmt.Errorf("quorumlock: WithTTL(%v) leaves no validity after a drift of %v × TTL + %v: use a longer TTL or a smaller drift",
			s.TTL, s.Drift.Rate, s.Drift.Floor)
	}
	if s.NodeTimeout < 0 {
		return fmt.Errorf("quorumlock: WithNodeTimeout(%v) is negative: use a positive duration, or 0 for the default", s.NodeTimeout)
	}
	if s.NodeTimeout > s.TTL {
		return fmt.Errorf("quorumlock: WithNodeTimeout(%v) is longer than WithTTL(%v), so that a node could answer after the lease is over: use a shorter node timeout or a longer TTL",
			s.NodeTimeout, s.TTL)
	}
	if s.Wait < 0 {
		return fmt.Errorf("quorumlock: WithWait(%v) is negative: use a positive duration, or 0 to wait until ctx is done", s.Wait)
	}
	if s.MaxHold < 0 {
		return fmt.Errorf("quorumlock: WithMaxHold(%v) is negative: use a positive duration, or 0 for no limit", s.MaxHold)
	}
	if err := checkPrefix(s.Prefix); err != nil {
		return err
	}
	if !isLabel(s.Label) {
		return fmt.Errorf("quorumlock: WithLabel(%.80q): use 1 to %d letters, digits, dots, underscores and hyphens, or leave the option out", s.Label, maxLabel)
	}
	if s.MaxTTL < 0 || s.MaxTTL > maxGuard {
		return fmt.Errorf("quorumlock: WithRestartGuard(%v): use the longest TTL of any client, or 0 for no guard", s.MaxTTL)
	}
	if s.MaxTTL > 0 && s.TTL > s.MaxTTL {
		return fmt.Errorf("quorumlock: WithTTL(%v) is longer than WithRestartGuard(%v) expects of any client: use a shorter TTL, or a longer guard at all clients",
			s.TTL, s.MaxTTL)
	}
	if s.Retention < MinRetention || s.Retention > maxGuard {
		return fmt.Errorf("quorumlock: WithRetention(%v): use %v to %v, or leave the option out for %v", s.Retention, MinRetention, maxGuard, DefaultRetention)
	}
	if s.Quorum < 0 {
		return fmt.Errorf("quorumlock: WithQuorum(%d) is negative: use a majority of the nodes or more, or 0 for a majority", s.Quorum)
	}
	return nil
}
