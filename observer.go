package quorumlock

import (
	"context"
	"errors"
	"time"
)

// An Observer receives the events of locks, for traces and metrics: see [WithObserver]. Its methods
// must be safe for concurrent use. They must return at once, must not call a lock, and must not
// panic: locks wait for some of them. Events from different goroutines may arrive out of order.
type Observer interface {
	// Begin is called with the ctx of each call of Lock or TryLock, unless the call's arguments are
	// invalid or its client is closed. Begin returns ctx or a context that descends from it. The
	// events of the call, and of its hold, come with the returned context, and the lease's context
	// descends from it. One EventAcquired or one EventRefused follows.
	Begin(ctx context.Context, lock string) context.Context

	// Observe is called after an event. [EventKind] documents the ctx of each kind.
	Observe(ctx context.Context, e Event)
}

// Event is an event of a lock or a node. A field that names kinds in its comment is zero for all
// other kinds. Later versions may add kinds and fields.
type Event struct {
	Kind EventKind
	Lock string // the name of the lock, without its prefix; empty for events of nodes

	// For EventAcquired, EventRefused, EventReleased and EventNodeAsked: the duration of the call.
	Took time.Duration

	// For EventAcquired and EventRefused.
	Try      bool          // the call was TryLock, or Lock with a WithWait of 0
	Waited   time.Duration // since a holder, or a lack of a quorum or of room, delayed it; or 0
	Attempts int           // 0 if the call re-entered its own hold, or was never sent
	Handed   bool          // the previous holder handed the lock over
	Steps    []Step        // the first 64 steps, in order

	// For EventAcquired and EventReleased. The lease's context descends from the context that Begin
	// returned.
	Lease *Lease

	// For EventReleased and EventLost: whether the event ends the hold, and how long the hold
	// lasted. An EventReleased does not end the hold if the hold has other leases, or was lost
	// before. So each hold ends once.
	Ended bool
	Held  time.Duration

	// For EventRenewed: how much later the renewal was confirmed than it was due.
	Lag time.Duration

	// For EventLost.
	Reason LossReason

	// For the events of nodes: the node's address, or the name from node.WithName.
	Node string

	// For EventNodeAsked: the client's attempts in flight at the node after the round trip, their
	// limit, and the attempts that wait unsent in the process, for any nodes. Only first attempts
	// of calls count.
	InFlight, Limit, Unsent int

	// For EventRefused, EventRenewalLate, EventLost (a *LostError), EventNodeDown, and a failed
	// EventReleased or EventNodeAsked.
	Err error
}

// ErrorType returns the type of the error in one word, for metrics: held, no_quorum, timeout,
// unsent (a timeout with [ErrUnsent]), cancelled, closed, not_a_lock, wrong_kind, mismatch, misuse,
// lost (only for Unlock) or _OTHER. It returns "" if e has no error.
func (e Event) ErrorType() string {
	_, few := errors.AsType[*QuorumError](e.Err)
	switch {
	case e.Err == nil:
		return ""
	case errors.Is(e.Err, ErrLost): // first, since a loss wraps the errors of the nodes
		return "lost"
	case errors.Is(e.Err, ErrClosed):
		return "closed"
	case errors.Is(e.Err, context.Canceled):
		return "cancelled"
	case errors.Is(e.Err, ErrMisuse):
		return "misuse"
	case errors.Is(e.Err, ErrWrongKind):
		return "wrong_kind"
	case errors.Is(e.Err, ErrMismatch):
		return "mismatch"
	case errors.Is(e.Err, ErrNotALock):
		return "not_a_lock"
	case few:
		return "no_quorum"
	case errors.Is(e.Err, ErrUnsent):
		return "unsent"
	case errors.Is(e.Err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(e.Err, ErrHeld):
		return "held"
	}
	return "_OTHER"
}

// EventKind is the type of an [Event]. EventAcquired and EventRefused come with the ctx from Begin.
// EventRenewed, EventRenewalLate and EventLost come with the ctx from the Begin of the call that
// acquired the hold. EventReleased comes with the ctx of Unlock, and the events of nodes come with
// context.Background.
type EventKind int

const (
	EventAcquired    EventKind = iota + 1 // Lock or TryLock returns a lease
	EventRefused                          // Lock or TryLock returns an error
	EventRenewed                          // the hold has a watchdog, and it or Extend renewed the hold
	EventRenewalLate                      // a renewal found no quorum, as the first in a row
	EventLost                             // a hold is lost, once for all its leases
	EventReleased                         // Unlock returns
	EventNodeAsked                        // a round trip ended; Err is nil if the node answered
	EventNodeDown                         // a node that was up failed to answer
	EventNodeUp                           // a node that was down answers again
)

// LossReason is the reason of a loss in one word, for metrics. [LostError] has the details.
type LossReason string

const (
	LossNotRenewed  LossReason = "not_renewed"  // no quorum renewed it in time
	LossNotExtended LossReason = "not_extended" // there is no watchdog, and no Extend in time
	LossKeysGone    LossReason = "keys_gone"    // too many nodes no longer have its key
	LossMaxHold     LossReason = "max_hold"     // the limit of WithMaxHold is over
	LossClosed      LossReason = "closed"       // the client was closed
	LossResigned    LossReason = "resigned"     // a leader resigned, and its work had not unlocked
)

// Step is a moment in a call of Lock or TryLock.
type Step struct {
	At   time.Time
	Kind StepKind
	Err  error // for StepWaiting: the error of the failed attempt; nil if too few nodes answered
}

// StepKind is the type of a [Step].
type StepKind int

const (
	StepAttempt StepKind = iota + 1 // an attempt began: the call asks all nodes
	StepWaiting                     // an attempt failed; the call waits in the queue of the nodes
	// StepQueued: the call waits in the process, and asks no node. It waits behind other callers of
	// the lock, or for room at the nodes.
	StepQueued
)
