package quorumlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/internal/errs"
)

var (
	// ErrHeld says that somebody else holds the lock, or is just taking it. A *[HeldError] says who.
	ErrHeld = errors.New("quorumlock: the lock is held by somebody else")

	// ErrNoQuorum: too few members of a lock gave a valid answer. It is returned as a *[QuorumError], which has the error
	// of each node.
	ErrNoQuorum = errors.New("quorumlock: no quorum")

	// ErrTooLate: a quorum granted the lock too late, with nothing left of its TTL. The grant is released.
	ErrTooLate = errors.New("quorumlock: granted too late")

	// ErrLost says that a lease ended before it was unlocked: it could not be renewed in time, or
	// its keys were taken away. It is also the [context.Cause] of the lease's context then. A *[LostError] says why.
	ErrLost = errors.New("quorumlock: the lease was lost")

	// ErrNotHeld says that the lease was unlocked already.
	ErrNotHeld = errors.New("quorumlock: the lease is not held")

	// ErrQuarantined says that a node grants nothing, under [WithRestartGuard], because it may have lost
	// locks that are still held. It is found in a [NodeError], which says for how long.
	ErrQuarantined = errors.New("quorumlock: recently restarted or promoted: granting is paused because it may have lost locks")

	// ErrSeveralServers says that a node grants nothing because its address leads to several
	// servers: two of them could grant one lock to two clients. It is found in a [NodeError], which
	// has the run IDs of two of the servers.
	ErrSeveralServers = errors.New("quorumlock: the address leads to several servers: give each server its own")

	// ErrNotALock says that the lock's key, or a key of its queue, holds another kind of value, which something else
	// wrote. No call changes or deletes it. The error says so if it is a key of the queue.
	ErrNotALock = errors.New("quorumlock: the key is not a lock but another kind of value: use another name, or delete the key")

	// ErrWrongKind says that the name belongs to something of another kind: a mutex was used as a latch, for example, or
	// a semaphore as a mutex. The error names both. No call changes or deletes it.
	ErrWrongKind = errors.New("quorumlock: the name belongs to another kind")

	// ErrLatchMismatch says that the nodes have a latch of that name which opens with another number of ids. The
	// error names both numbers. The call has counted nothing there.
	ErrLatchMismatch = errors.New("quorumlock: the latch of that name opens with another number of ids")

	// ErrLatchForgotten says that a latch was there, and that too many nodes no longer have it, or lack ids that it
	// had: it was not used for longer than [WithRetention], or more nodes forgot it than may. What is done cannot be
	// counted on: use a latch of another name.
	ErrLatchForgotten = errors.New("quorumlock: the latch is forgotten: use another name")

	// ErrMisuse says that a call, an argument or an option is wrong: for example, a bad name, a
	// negative TTL, a zero Node or a repeated server. The error names the fault and the fix. No
	// request was sent. ErrDeadlock, ErrUpgrade and ErrNilContext also match ErrMisuse. Errors that
	// depend on the contents of the nodes, such as ErrNotALock, do not.
	ErrMisuse = errs.ErrMisuse

	// ErrDeadlock says that a call would wait for a lease of its own context: a lease of another
	// lock with the same name at the same node, or of the same lock under [WithoutReentry]. It
	// matches ErrMisuse.
	ErrDeadlock = errs.Misuse("quorumlock: deadlock")

	// ErrUpgrade says that a reader of an RWMutex called Lock, with a context or an owner that shares the lock: it would
	// wait for its own share to end. Two readers that did so would wait for each other for ever. It matches ErrMisuse.
	ErrUpgrade = errs.Misuse("quorumlock: a reader cannot become the writer, since it would wait for itself: unlock the reader's lease first, and expect that others write before you")

	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("quorumlock: the client is closed")

	// ErrNilContext says that a call was given a nil context. The call took no lock and kept none. It matches ErrMisuse.
	ErrNilContext = errs.Misuse("quorumlock: the context is nil: use context.Background()")
)

// NodeError is what went wrong at one node. A refusal is a vote and no error: it is never in one.
type NodeError struct {
	Node string // the node's name: its address, without user and password
	Err  error
}

// Error returns one line, even for a server's error of several lines.
func (e *NodeError) Error() string { return "quorumlock: " + e.text() }

func (e *NodeError) text() string { return "node " + e.Node + ": " + errs.Line(e.Err) }

// Unwrap returns what the client library or the server said.
func (e *NodeError) Unwrap() error { return e.Err }

// QuorumError says that too few members of a lock answered as they had to. For a RedLock a member is
// a node; for a MultiLock it is one of its locks. errors.Is(err, [ErrNoQuorum]) is true for it.
type QuorumError struct {
	Granted int          // the members that did
	Needed  int          // the members it takes
	Nodes   []*NodeError // what went wrong, node by node; a node that refused is not among them
}

func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "quorumlock: no quorum: %d of the %d needed", e.Granted, e.Needed)
	writeNodes(&b, e.Nodes)
	return b.String()
}

// Is reports whether target is [ErrNoQuorum].
func (e *QuorumError) Is(target error) bool { return target == ErrNoQuorum }

// Unwrap returns the errors of the nodes, for [errors.Is] and [errors.As].
func (e *QuorumError) Unwrap() []error {
	failed := make([]error, len(e.Nodes))
	for i, n := range e.Nodes {
		failed[i] = n
	}
	return failed
}
