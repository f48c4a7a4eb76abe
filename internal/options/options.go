// Package options resolves the options of a lock: it applies them to the defaults, and checks them.
package options

import (
	"fmt"
	"log/slog"
	"math"
	"time"
	"unicode/utf8"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// The retention of a latch without WithRetention, and the least.
const (
	defaultRetention = 24 * time.Hour
	minRetention     = time.Minute
)

// maxDuration keeps the arithmetic of leases, of the restart guard and of nodes from overflowing.
const maxDuration = 100 * 365 * 24 * time.Hour

// maxData is the maximum length of the data of a hold, in bytes.
const maxData = 1024

// unset marks a missing option, which gets its default. An explicit 0 is checked like other values.
const unset = math.MinInt

// Settings has the resolved options of a lock.
type Settings = settings.Of[quorumlock.Owner, quorumlock.Drift, quorumlock.Observer]

// Resolve applies the options in their order to the defaults and checks the result. The error names
// the wrong option and a valid value.
func Resolve(opts ...quorumlock.Option) (Settings, error) {
	s := Settings{
		TTL: quorumlock.DefaultTTL, Renew: true, Drift: quorumlock.DefaultDrift(),
		Label: settings.DefaultLabel(), Retention: defaultRetention,
		Wait: unset, NodeTimeout: unset, Quorum: unset, MaxTTL: unset, MaxHold: unset,
	}
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	err := check(&s)
	if s.NodeTimeout == unset {
		s.NodeTimeout = min(max(s.TTL/20, 50*time.Millisecond), time.Second)
	}
	if s.Quorum == unset {
		s.Quorum = 0
	}
	if s.MaxTTL == unset {
		s.MaxTTL = 0
	}
	if s.MaxHold == unset {
		s.MaxHold = 0
	}
	return s, err
}

// Reentry is the error of a call under WithoutReentry with the context of a lease of its own lock.
func Reentry(name string) error {
	return fmt.Errorf("%w: the context descends from a lease of %q, and WithoutReentry does not enter it again: take the lock once, before the goroutines that share it, or start those that take turns with a context that does not descend from the lease",
		quorumlock.ErrDeadlock, name)
}

// NoData returns the error of WithData for a kind that has no data of its holds.
func NoData(kind string) error {
	return errs.Misusef("quorumlock: WithData is for a Mutex or an RWMutex, and not for %s: leave the option out", kind)
}

// Quarantine is how long after its start a node grants nothing: the restart guard's maxTTL and its
// drift, or 0 without a guard.
func Quarantine(s *Settings) time.Duration {
	if s.MaxTTL == 0 {
		return 0
	}
	return s.MaxTTL + (s.MaxTTL - s.Drift.Validity(s.MaxTTL, 0))
}

func check(s *Settings) error {
	if s.NodeOptions != nil {
		return errs.Misuse("quorumlock: WithNodeOptions is for redlock.Dial and redlock.DialEnv: give the options to node.Dial")
	}
	if s.TTL < quorumlock.MinTTL {
		return errs.Misusef("quorumlock: WithTTL(%v) is too short: use at least %v", s.TTL, quorumlock.MinTTL)
	}
	if s.TTL > maxDuration {
		return errs.Misusef("quorumlock: WithTTL(%v) is too long: use at most %v", s.TTL, maxDuration)
	}
	if err := settings.CheckDrift(s.Drift.Rate, s.Drift.Floor); err != nil {
		return fmt.Errorf("quorumlock: WithDrift: %w", err)
	}
	if s.Drift.Validity(s.TTL, 0) <= 0 {
		return errs.Misusef("quorumlock: WithTTL(%v) leaves no validity after a drift of %v × TTL + %v: use a longer TTL or a smaller drift",
			s.TTL, s.Drift.Rate, s.Drift.Floor)
	}
	if s.NodeTimeout <= 0 && s.NodeTimeout != unset {
		return errs.Misusef("quorumlock: WithNodeTimeout(%v) gives no node time to answer: use a positive duration, or leave the option out for the default", s.NodeTimeout)
	}
	if s.NodeTimeout > s.TTL {
		return errs.Misusef("quorumlock: WithNodeTimeout(%v) is longer than WithTTL(%v), so that a node could answer after the lease is over: use a shorter node timeout or a longer TTL",
			s.NodeTimeout, s.TTL)
	}
	if s.NoReentry && s.Owner != "" {
		return errs.Misuse("quorumlock: WithoutReentry and WithOwner are both given: use WithOwner to enter a hold, or WithoutReentry to enter none")
	}
	if s.MaxHold <= 0 && s.MaxHold != unset {
		return errs.Misusef("quorumlock: WithMaxHold(%v) allows no hold: use a positive duration, or leave the option out for no limit", s.MaxHold)
	}
	if err := settings.CheckPrefix(s.Prefix); err != nil {
		return err
	}
	if !settings.IsLabel(s.Label) {
		return errs.Misusef("quorumlock: WithLabel(%.80q): use 1 to %d letters, digits, dots, underscores and hyphens, or leave the option out", s.Label, settings.MaxLabel)
	}
	if len(s.Data) > maxData {
		return errs.Misusef("quorumlock: WithData has %d bytes: use at most %d, such as the ID of a job, and keep longer data elsewhere", len(s.Data), maxData)
	}
	if !utf8.ValidString(s.Data) {
		return errs.Misusef("quorumlock: WithData(%.80q) is not valid UTF-8: use text, such as base64 of other bytes", s.Data)
	}
	if (s.MaxTTL <= 0 || s.MaxTTL > maxDuration) && s.MaxTTL != unset {
		return errs.Misusef("quorumlock: WithRestartGuard(%v): use the longest TTL of any client, or leave the option out for no guard", s.MaxTTL)
	}
	if s.TTL > s.MaxTTL && s.MaxTTL != unset {
		return errs.Misusef("quorumlock: WithTTL(%v) is longer than WithRestartGuard(%v) expects of any client: use a shorter TTL, or a longer guard at all clients",
			s.TTL, s.MaxTTL)
	}
	if s.Retention < minRetention || s.Retention > maxDuration {
		return errs.Misusef("quorumlock: WithRetention(%v): use %v to %v, or leave the option out for %v", s.Retention, minRetention, maxDuration, defaultRetention)
	}
	if s.Quorum <= 0 && s.Quorum != unset {
		return errs.Misusef("quorumlock: WithQuorum(%d): use a majority of the nodes or more, or leave the option out for a majority", s.Quorum)
	}
	return nil
}
