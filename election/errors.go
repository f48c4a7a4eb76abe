package election

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
)

var (
	// ErrNoLeader is the error of an election without a leader at a quorum.
	ErrNoLeader = errors.New("quorumlock: no leader")

	// ErrNotLeader is the error of Resign without a term of this Election.
	ErrNotLeader = errors.New("quorumlock: this election does not lead")

	// ErrResigned is the [context.Cause] of a term's context after Resign, or after the start of the client's Shutdown. Later
	// calls of the term return it.
	ErrResigned = errors.New("quorumlock: the leader has resigned")

	// ErrNotDrained is the error of a release before the end of the leader's work: within a TTL after the end of the term's
	// context, the lead function of Run did not return, or nobody called Resign.
	ErrNotDrained = errors.New("quorumlock: released before the end of the leader's work")
)

// MaxValue is the longest value of a leader, in bytes.
const MaxValue = 64 << 10

// checkValue refuses a value that is too long.
func checkValue(value string) error {
	if len(value) > MaxValue {
		return errs.Misusef("quorumlock: election: the value has %d bytes: use at most %d, such as an address, and keep what is longer elsewhere", len(value), MaxValue)
	}
	return nil
}

// isFinal reports whether another round cannot bring the value to need of the cells: too many nodes refuse it for good. If
// fewer refuse, it is not final: others may be down, and come back.
func isFinal(err error, need, cells int) bool {
	e, ok := errors.AsType[*quorumlock.QuorumError](err)
	if !ok {
		return false
	}
	refused := 0
	for _, n := range e.Nodes {
		if isIncurable(n) {
			refused++
		}
	}
	return refused > cells-need
}

// isIncurable reports whether an error of a node will not go away by itself: the user may not use the key of the value,
// or something else is kept there.
func isIncurable(err error) bool {
	said, ok := errors.AsType[redis.Error](err)
	return errors.Is(err, quorumlock.ErrNotALock) || ok && isForbidden(said.Error())
}

// isForbidden reports whether a server said that the user may not do something. For a command within a script, Redis 7 and the
// versions before it each say something else.
func isForbidden(said string) bool {
	return strings.HasPrefix(said, "NOPERM") || strings.Contains(said, "ACL failure in script") || strings.Contains(said, "The user executing the script can't")
}

// isEndOfContext reports whether an error says only that a context is done: one that is joined of several does if each of
// them does.
func isEndOfContext(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it looks at each error of the tree
	case *quorumlock.LostError:
		return true
	case *quorumlock.QuorumError:
		return false
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !isEndOfContext(err) })
	case interface{ Unwrap() error }:
		return isEndOfContext(e.Unwrap())
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, quorumlock.ErrLost) || errors.Is(err, ErrResigned)
}
