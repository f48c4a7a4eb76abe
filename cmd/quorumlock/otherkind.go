package main

import (
	"errors"

	"github.com/quorumlock/quorumlock"
)

// otherKindError is the error for a name that does not belong to a lock of the requested kind.
type otherKindError struct {
	first error // the error of the first such node
	all   error
}

func (e *otherKindError) Error() string { return "no lock of this kind: " + e.first.Error() }

func (e *otherKindError) Unwrap() error { return e.all }

// otherKind returns an *otherKindError if most of the failed nodes have another kind, or no lock,
// under the name. It returns nil for all other errors: one such node, while others are down, is an
// outage.
func otherKind(err error) error {
	if errors.Is(err, quorumlock.ErrHeld) || !errors.Is(err, quorumlock.ErrNotALock) && !errors.Is(err, quorumlock.ErrWrongKind) {
		return nil
	}
	few, ok := errors.AsType[*quorumlock.QuorumError](err)
	if !ok {
		return &otherKindError{err, err}
	}
	var first error
	count := 0
	for _, n := range few.Nodes {
		if otherKind(n.Err) == nil {
			continue
		}
		if count++; first == nil {
			first = n
		}
	}
	if count <= len(few.Nodes)-count {
		return nil
	}
	return &otherKindError{first, err}
}
