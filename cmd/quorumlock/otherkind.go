package main

import (
	"errors"

	"github.com/quorumlock/quorumlock"
)

// otherKindError says that the name belongs to something else than a lock of the kind that was asked for.
type otherKindError struct {
	first error // what the first node that has it said
	all   error
}

func (e *otherKindError) Error() string { return "no lock of this kind: " + e.first.Error() }

func (e *otherKindError) Unwrap() error { return e.all }

// otherKind returns an *otherKindError if most of the nodes that failed have something else under the name. It returns nil for
// all other errors: one node that has something else, while others are down, is an outage.
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
