package quorumlock

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrHeld says that somebody else holds the lock, or is just taking it.
	ErrHeld = errors.New("quorumlock: the lock is held by somebody else")

	// ErrLost says that a lease ended before it was unlocked: it could not be renewed in time, or
	// its keys were taken away. It is also the [context.Cause] of the lease's context then.
	ErrLost = errors.New("quorumlock: the lease was lost")

	// ErrNotHeld says that the lease was unlocked already.
	ErrNotHeld = errors.New("quorumlock: the lease is not held")

	// ErrQuarantined says that a node grants nothing, under [WithRestartGuard], because it may have lost
	// locks that are still held. It is found in a [NodeError], which says for how long.
	ErrQuarantined = errors.New("quorumlock: restarted or promoted lately, so that it may lack locks that are held")

	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("quorumlock: the client is closed")
)

// NodeError is what went wrong at one node. A refusal is a vote and no error: it is never in one.
type NodeError struct {
	Node string // the node's name: its address, without user and password
	Err  error
}

func (e *NodeError) Error() string { return "quorumlock: node " + e.Node + ": " + e.Err.Error() }

// Unwrap returns what the client library or the server said.
func (e *NodeError) Unwrap() error { return e.Err }

// QuorumError says that too few members of a lock answered as they had to. For a RedLock a member is
// a node; for a MultiLock it is one of its locks.
type QuorumError struct {
	Granted int          // the members that did
	Needed  int          // the members it takes
	Nodes   []*NodeError // what went wrong, node by node; a node that refused is not among them
}

func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "quorumlock: no quorum: %d of the %d needed", e.Granted, e.Needed)
	for i, n := range e.Nodes {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		b.WriteString("node " + n.Node + ": " + n.Err.Error())
	}
	return b.String()
}

// Unwrap returns the errors of the nodes, for [errors.Is] and [errors.As].
func (e *QuorumError) Unwrap() []error {
	errs := make([]error, len(e.Nodes))
	for i, n := range e.Nodes {
		errs[i] = n
	}
	return errs
}
