package election

import (
	"context"
	"errors"
	"slices"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/errs"
)

var (
	// ErrNoLeader is the error of an election without a leader at a quorum.
	ErrNoLeader = errors.New("quorumlock: no leader")

	// ErrNotLeader is the error of Resign without a term of this Election, or of a nil term.
	ErrNotLeader = errors.New("quorumlock: this election does not lead")

	// ErrResigned is the [context.Cause] of a term's context after Resign, or after the start of
	// the client's Shutdown. Later calls of the term return it.
	ErrResigned = errors.New("quorumlock: the leader has resigned")

	// ErrNotDrained is the error of a release before the end of the leader's work. The lead
	// function of Run did not return, or the holder of the term did not call Resign, within a TTL
	// after the end of the term's context.
	ErrNotDrained = errors.New("quorumlock: released before the end of the leader's work")
)

// maxValue is the maximum length of a leader's value, in bytes.
const maxValue = 64 << 10

// checkValue refuses a value that is too long.
func checkValue(value string) error {
	if len(value) > maxValue {
		return errs.Misusef("quorumlock: election: the value has %d bytes: use at most %d, such as an address, and keep longer data elsewhere", len(value), maxValue)
	}
	return nil
}

// isFinal reports whether another round cannot bring the value to need of the cells: too many nodes
// refuse it for good. Fewer refusals are not final, because the other nodes may come back.
func isFinal(err error, need, cells int) bool {
	e, ok := errors.AsType[*quorumlock.QuorumError](err)
	if !ok {
		return false
	}
	refused := 0
	for _, n := range e.Nodes {
		if client.IsIncurable(n) {
			refused++
		}
	}
	return refused > cells-need
}

// isEndOfContext reports whether err means only that a context is done. A joined error does if all
// of its parts do.
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
