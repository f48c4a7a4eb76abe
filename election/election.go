package election

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/redlock"
)

// Election is one candidate, or an observer, in the election with the name of a lock. It is safe
// for concurrent use; its zero value is not usable. It starts no goroutine and sends no request
// before its first call.
type Election struct {
	mutex *redlock.Mutex
	lock  *client.Lock
	set   options.Settings
	value string // of a new term
	err   error  // if not nil, all calls return it

	mu       sync.Mutex
	term     *Term // the latest of this Election; nil if there was none
	answered *Term // the latest term whose result Resign has returned
}

// New returns a candidate with the lock m. The others read its value while it leads: for example,
// its address. The value has at most 65,536 bytes, and is empty for an observer. All candidates
// and observers of an election must have the same nodes, name, prefix and quorum, as with any lock.
// Another user of the lock m excludes the leader, but does not lead.
//
// They must also have the same [quorumlock.WithTTL] and [quorumlock.WithDrift]. Leader and Observe
// compute the validity of the leader's lease from their own options. With other options than the
// leader's, they may be sure of a leader with an expired lease, or never be sure of the leader.
// There is still at most one leader at a time.
//
// The options of m work as on a Mutex. [quorumlock.WithTTL] bounds how long a dead leader blocks
// others. [quorumlock.WithWait] bounds a Campaign; Run then campaigns again.
// [quorumlock.WithMaxHold] and [quorumlock.WithoutRenewal] bound a term, which is then lost.
// [quorumlock.WithOwner] and [quorumlock.WithData] are refused.
//
// If m, one of its options or the value is invalid, all calls return an error that names the fault.
func New(m *redlock.Mutex, value string) *Election {
	e := &Election{mutex: m, value: value}
	if m == nil {
		e.err = errs.Misuse("quorumlock: election.New: the mutex is nil: use client.Mutex of a redlock.Client")
		return e
	}
	e.lock, _ = client.Of(m)
	e.set = e.lock.Settings()
	switch {
	case e.lock.Err() != nil:
		e.err = e.lock.Err()
	case e.set.Owner != "":
		e.err = errs.Misuse("quorumlock: election.New: the mutex has WithOwner, under which two campaigns of this process could lead at once: leave the option out")
	case e.set.Data != "":
		e.err = options.NoData("an election, whose leader has a value")
	default:
		e.err = checkValue(value)
	}
	return e
}

// Name returns the name of the lock, without its prefix.
func (e *Election) Name() string {
	if e.mutex == nil {
		return ""
	}
	return e.mutex.Name()
}

// Campaign waits until this candidate leads, in the order of the candidates' calls in all
// processes. It returns the term when the value is at a quorum of the nodes. The context of the
// term descends from ctx, like the context of a lease; [quorumlock.WithWait] bounds only the wait.
// The caller must call [Term.Resign] when the work or the term's context is done.
//
// Campaign waits during an outage of the nodes. If ctx is done first, it returns ctx's error,
// joined with the last error of writing the value, if any. It also returns the errors of Lock, see
// [quorumlock.Locker]. It returns [quorumlock.ErrDeadlock] if ctx descends from a term of this
// election or a lease of its lock. It returns a *[quorumlock.QuorumError] if too many nodes refuse
// the value for good. The user then lacks the permission to write the value, or its key has a value
// of another program.
//
// A failed Campaign leaves only token counters on the nodes. An unreachable node expires the other
// keys within the TTL.
func (e *Election) Campaign(ctx context.Context) (*Term, error) {
	t, _, err := e.campaign(ctx, false)
	return t, err
}

// campaign is Campaign. locked reports whether it acquired the lock, even if it failed later.
func (e *Election) campaign(ctx context.Context, serves bool) (t *Term, locked bool, err error) {
	if err := e.check(ctx); err != nil {
		return nil, false, err
	}
	for {
		lease, err := e.mutex.Lock(ctx)
		if err != nil {
			return nil, false, err
		}
		if lease.HoldCount() > 1 {
			_ = lease.Unlock(ctx) // an inner lease: it releases nothing
			return nil, true, fmt.Errorf("%w: the context of the campaign already holds %q: use one that does not descend from the hold", quorumlock.ErrDeadlock, e.Name())
		}
		t := newTerm(ctx, e, lease, serves)
		if err = t.begin(ctx); err == nil {
			e.mu.Lock()
			e.term = t
			e.mu.Unlock()
			return t, true, nil
		}
		if !errors.Is(err, quorumlock.ErrLost) || ctx.Err() != nil {
			return nil, true, err
		}
		e.set.Logger.Warn("quorumlock: leadership lost before its value was known, campaigning again", "lock", e.Name(), "error", err)
	}
}

// check refuses a nil ctx and a wrong candidate.
func (e *Election) check(ctx context.Context) error {
	switch {
	case e.err != nil:
		return e.err
	case ctx == nil:
		return quorumlock.ErrNilContext
	}
	return nil
}

// Leading returns the present term of this Election. ok is false if this Election does not lead.
func (e *Election) Leading() (*Term, bool) {
	t := e.latest()
	if t == nil || t.Err() != nil {
		return nil, false
	}
	return t, true
}

// latest returns the last term of this Election, or nil.
func (e *Election) latest() *Term {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}

// Resign is [Term.Resign] for the term of this Election. It returns [ErrNotLeader] if there is
// none, or if an earlier Resign of the Election has returned the result of that term. A Run
// continues: it campaigns again, behind the other waiters. To end a Run, cancel its ctx.
func (e *Election) Resign(ctx context.Context) error {
	if e.err != nil {
		return e.err
	}
	e.mu.Lock()
	t, answered := e.term, e.answered
	e.mu.Unlock()
	if t == nil || t == answered {
		return ErrNotLeader
	}
	over, err := t.resign(ctx)
	if over {
		e.mu.Lock()
		e.answered = t
		e.mu.Unlock()
	}
	return err
}
