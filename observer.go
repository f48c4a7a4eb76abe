package quorumlock

import (
	"context"
	"time"
)

// An Observer learns what happens to locks, for traces and metrics: see [WithObserver]. Its methods are called from many
// goroutines at the same time. They must return at once, must call no lock, and must not panic: locks wait for some of
// them. Events of different goroutines may overtake each other.
type Observer interface {
	// Begin is called with its ctx when Lock or TryLock is called, unless its arguments are bad or its client is closed. It returns ctx or a context that descends from it. The
	// events of this call and of the hold that it leads to come with the returned context, and the lease's context descends
	// from it. One Acquired or one Refused follows.
	Begin(ctx context.Context, lock string) context.Context

	// Observe is called after an event. The kinds of events say which ctx they come with.
	Observe(ctx context.Context, e Event)
}

// Event is what an [Observer] learns. Fields that a kind does not name are zero there. Later versions may add kinds and fields.
type Event struct {
	Kind EventKind
	Lock string // the name of the lock, without its prefix; empty for events of nodes

	// Of Acquired, Refused, Released and NodeAnswered: how long the call took.
	Took time.Duration

	// Of Acquired and Refused.
	Try      bool          // it was TryLock
	Waited   time.Duration // since somebody else was in the way, or the nodes were no quorum; 0 if there was no need to wait
	Attempts int           // how often the nodes were asked; 0 for a lease that enters a hold of the caller's own, or if it was never its turn
	Handed   bool          // the holder before has handed the lock over
	Steps    []Step        // the first 64, in order

	// Of Acquired and Released. Its context has what Begin has put there.
	Lease *Lease

	// Of Released and Lost: whether it ends the hold, and how long that has lasted. A Released does not if other leases are in
	// the hold, or if it was lost: so each hold ends once.
	Ended bool
	Held  time.Duration

	// Of Renewed: how much later the renewal was confirmed than it was due.
	Lag time.Duration

	// Of Lost.
	Reason LossReason

	// Of the events of nodes: its address, or the name of node.WithName.
	Node string

	// Why, for Refused, RenewalLate, Lost (a *LostError), NodeDown, and for a Released or a NodeAnswered that failed.
	Err error
}

// EventKind says what has happened.
type EventKind int

const (
	Acquired     EventKind = iota + 1 // Lock or TryLock returns a lease; with the context of its Begin
	Refused                           // Lock or TryLock returns an error; with the context of its Begin
	Renewed                           // the watchdog, or Extend beside it, has renewed a hold; with the context of the Begin that led to the hold
	RenewalLate                       // the first renewal in a row found no quorum; likewise
	Lost                              // a hold is lost; likewise, and once for all its leases
	Released                          // Unlock returns; with the ctx of Unlock
	NodeAnswered                      // a node has answered, or failed to: a round trip; with context.Background
	NodeDown                          // a node that was up failed to answer; likewise
	NodeUp                            // a node that was down answers again; likewise
)

// LossReason says in one word why a lease was lost, for metrics. [LostError] has the whole story.
type LossReason string

const (
	LostNotRenewed  LossReason = "not_renewed"  // no quorum renewed it in time
	LostNotExtended LossReason = "not_extended" // it is not renewed, and nobody extended it in time
	LostKeysGone    LossReason = "keys_gone"    // too many nodes no longer have its key
	LostMaxHold     LossReason = "max_hold"     // WithMaxHold
	LostClosed      LossReason = "closed"       // the client was closed
)

// Step is a moment in a call of Lock or TryLock.
type Step struct {
	At   time.Time
	Kind StepKind
	Err  error // of a StepWaiting: why the attempt failed
}

// StepKind says what a Step is.
type StepKind int

const (
	StepAttempt StepKind = iota + 1 // an attempt began: all nodes are asked
	StepWaiting                     // an attempt failed, and the call waits for its turn
	StepQueued                      // the call waits behind others of its own process, and asks no node yet
)
