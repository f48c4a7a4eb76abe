package quorumlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/errs"
)

var (
	// ErrHeld is the error of a lock that another owner holds or is about to acquire. The
	// *[HeldError] in it names the holder.
	ErrHeld = errors.New("quorumlock: lock is held")

	// ErrNoQuorum is the error of a lock with too few members that gave a valid answer. The
	// *[QuorumError] in it has the error of each node.
	ErrNoQuorum = errors.New("quorumlock: no quorum")

	// ErrUnsent is the error of a Lock or TryLock whose time ended while it waited in the process
	// for room at the nodes. Nothing was sent, so nobody knows whether the lock was free. If its
	// ctx ended, the returned error also matches the error of the ctx.
	ErrUnsent = errors.New("quorumlock: not sent: the nodes have yet to answer earlier calls of this process")

	// ErrTooLate is the error of a grant that came after the end of its validity, or of a TryLock
	// whose fencing token no quorum confirmed in time. The grant is released. Attach returns it for
	// a detached hold with too little time left; that hold is unchanged.
	ErrTooLate = errors.New("quorumlock: granted too late")

	// ErrLost is the error of a lease that ended before its Unlock: no renewal succeeded in time,
	// or its keys were removed. It is also the [context.Cause] of the lease's context. The
	// *[LostError] in it has the reason.
	ErrLost = errors.New("quorumlock: lease lost")

	// ErrNotHeld is the error of a lease that was unlocked or detached before, and of a
	// ForceUnlockOwner for an owner that does not hold the lock.
	ErrNotHeld = errors.New("quorumlock: lease not held")

	// ErrDetached is the [context.Cause] of the context of a detached lease: see [Lease.Detach].
	ErrDetached = errors.New("quorumlock: lease detached")

	// ErrQuarantined is the error of a node that grants no lock, under [WithRestartGuard], because
	// its restart or promotion may have lost locks that are still held. The [NodeError] around it
	// has the remaining time.
	ErrQuarantined = errors.New("quorumlock: granting is paused: a restart or promotion may have lost locks")

	// ErrSeveralServers is the error of a node with one address for several servers. It grants no
	// lock, because two of the servers could grant one lock to two clients. Give each server an
	// address of its own. The [NodeError] around it has the run IDs of two of the servers.
	ErrSeveralServers = errors.New("quorumlock: the address leads to several servers")

	// ErrNotALock is the error of a name with a key, or a key of its queue, that has a value of
	// another program. No call changes or deletes that key: use another name, or delete the key.
	// The error names the key if it is the queue's.
	ErrNotALock = errors.New("quorumlock: the key has a value of another program")

	// ErrWrongKind is the error of a name that belongs to another kind: for example, a mutex used
	// as a latch, or a semaphore used as a mutex. The error names both kinds. No call changes or
	// deletes the name's keys.
	ErrWrongKind = errors.New("quorumlock: the name belongs to another kind")

	// ErrMismatch is the error of a latch that has another number of ids at the nodes than in the
	// call, and of a semaphore that is in use with another number of permits. The error names both
	// numbers. At these nodes, the call counted no id and took no slot.
	ErrMismatch = errors.New("quorumlock: the nodes have another number of ids or permits")

	// ErrLatchForgotten is the error of a latch that too many nodes have forgotten, in whole or in
	// part. The latch was idle for longer than [WithRetention], or more nodes than allowed lost
	// their data. Its count is unreliable: use another name.
	ErrLatchForgotten = errors.New("quorumlock: the latch is forgotten")

	// ErrMisuse is the error of a wrong call, argument or option: for example, an invalid name, a
	// negative TTL, a zero Node or a repeated server. The error names the fault and the fix. No
	// request was sent. ErrDeadlock, ErrUpgrade and ErrNilContext also match ErrMisuse. Errors that
	// depend on the contents of the nodes, such as ErrNotALock, do not.
	ErrMisuse = errs.ErrMisuse

	// ErrDeadlock is the error of a call that would wait for a lease of its own context. The lease
	// is of another lock with the same name at the same node, or of the same lock under
	// [WithoutReentry]. It matches ErrMisuse.
	ErrDeadlock = errs.Misuse("quorumlock: deadlock")

	// ErrUpgrade is the error of Lock with a context or an owner that shares the same RWMutex. The
	// call would wait for its own share to end, and two such readers for each other. Unlock the
	// reader's lease first; another writer may then come first. It matches ErrMisuse.
	ErrUpgrade = errs.Misuse("quorumlock: a reader cannot become the writer: unlock the reader's lease first")

	// ErrClosed is the error of every call after Close.
	ErrClosed = errors.New("quorumlock: client closed")

	// ErrUnconfirmed is the error of a Shutdown that ended before every node had confirmed every
	// release, for example because a node is frozen. The error names the nodes, with the number of
	// unconfirmed releases at each. The keys of these locks end with their TTL. A call that a
	// frozen node runs when it thaws counts for a whole TTL from then on.
	ErrUnconfirmed = errors.New("quorumlock: releases are unconfirmed")

	// ErrNilContext is the error of a nil context. The call took no lock and kept none. It matches
	// ErrMisuse.
	ErrNilContext = errs.Misuse("quorumlock: the context is nil: use context.Background()")
)

// NodeError is the failure of one node. A refusal is a vote, not a failure. It is immutable and
// safe for concurrent use.
type NodeError struct {
	// the name of the node: its address, without user and password, or the name from node.WithName
	Node string
	Err  error
}

// Error returns one line, also for a server's error of several lines.
func (e *NodeError) Error() string { return "quorumlock: " + e.text() }

func (e *NodeError) text() string { return "node " + e.Node + ": " + errs.Line(e.Err) }

// MarshalText returns the text of the error, for JSON.
func (e *NodeError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Unwrap returns the error of the client library or the server.
func (e *NodeError) Unwrap() error { return e.Err }

// QuorumError is the error of a call with too few confirmations. It matches [ErrNoQuorum]. The
// members of a RedLock are its nodes, those of a MultiLock its locks.
type QuorumError struct {
	Granted int          // members that confirmed the call
	Needed  int          // confirmations that the call needs
	Nodes   []*NodeError // the failed nodes; a refusal is no failure
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

// HeldError is a refusal, with the holder of the lock. It matches [ErrHeld]. Its fields are the
// state at one node at the time of the refusal. The zero value of a field means unknown.
type HeldError struct {
	Name     string        // the name of the lock
	Holder   Owner         // empty if unknown, as when the lock is free but has a queue
	Data     string        // of the holder, if the caller's lock also has [WithData]
	TTL      time.Duration // of the holder's key, which a renewal may prolong; 0 if unknown
	Position int           // the caller's position in the queue, from 1; 0 if it is not queued
	Own      bool          // the holder is another call of the caller's client
}

// Error returns the holder, the remaining time and the caller's position, as far as known.
func (e *HeldError) Error() string {
	var b strings.Builder
	b.WriteString("quorumlock: " + lockName(e.Name))
	switch {
	case e.Holder == "":
		b.WriteString(" is held or awaited by somebody else")
	case e.Own:
		b.WriteString(" is held by this process, as " + e.Holder.name())
	default:
		b.WriteString(" is held by " + e.Holder.name())
	}
	if e.Data != "" {
		fmt.Fprintf(&b, " (%.100q)", e.Data)
	}
	if e.TTL > 0 {
		fmt.Fprintf(&b, " for another %v", max(e.TTL.Round(time.Millisecond), time.Millisecond))
	}
	if e.Position > 0 {
		fmt.Fprintf(&b, "; this call is number %d in the queue", e.Position)
	}
	return b.String()
}

// Unwrap returns [ErrHeld].
func (e *HeldError) Unwrap() error { return ErrHeld }

// LostError is the loss of a lease, with its reason. It is the [context.Cause] of the lease's
// context. It matches [ErrLost].
type LostError struct {
	Name   string       // the name of the lock
	Owner  Owner        // of the lease; empty if unknown
	Reason string       // for example, "it was not renewed in time"; empty if unknown
	Nodes  []*NodeError // the nodes that failed to renew
}

// Error returns the reason and the failures of the nodes.
func (e *LostError) Error() string {
	var b strings.Builder
	b.WriteString("quorumlock: the lease of " + lockName(e.Name) + " was lost")
	if e.Reason != "" {
		b.WriteString(": " + e.Reason)
	}
	writeNodes(&b, e.Nodes)
	return b.String()
}

// Unwrap returns [ErrLost] and the errors of the nodes, for [errors.Is] and [errors.As].
func (e *LostError) Unwrap() []error {
	errs := make([]error, 1, 1+len(e.Nodes))
	errs[0] = ErrLost
	for _, n := range e.Nodes {
		errs = append(errs, n)
	}
	return errs
}

// lockName quotes the name of a lock for an error.
func lockName(name string) string {
	if name == "" {
		return "the lock"
	}
	return fmt.Sprintf("the lock %q", name)
}

// writeNodes appends the failures of the nodes, after a colon.
func writeNodes(b *strings.Builder, nodes []*NodeError) {
	for i, n := range nodes {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		b.WriteString(n.text())
	}
}
