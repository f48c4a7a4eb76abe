package core

import (
	"time"

	"github.com/quorumlock/quorumlock"
)

// Time is a moment by both clocks of a client, each as the time since any fixed moment.
type Time struct {
	Mono time.Duration // never steps; may stand still during a suspend
	Boot time.Duration // goes on during a suspend; may step where it is the wall clock
}

// Since returns the time from u to t by the clock that shows more. A step forward ends a lease
// early; a step back changes nothing.
func (t Time) Since(u Time) time.Duration { return max(t.Mono-u.Mono, t.Boot-u.Boot) }

// Latest returns the later of two readings of the same clocks.
func (t Time) Latest(u Time) Time { return Time{max(t.Mono, u.Mono), max(t.Boot, u.Boot)} }

// Add returns the moment d later.
func (t Time) Add(d time.Duration) Time { return Time{t.Mono + d, t.Boot + d} }

// Do is the operation of a Call.
type Do uint8

const (
	Acquire         Do = iota + 1 // acquires the lock for the attempt's owner, or queues the waiter
	Raise                         // raises the token counter from From to Token
	Yield                         // releases the attempt's grant, and queues the waiter again
	Release                       // releases the owner's hold
	ReleaseAndLeave               // releases the owner's hold, and leaves the queue
	Leave                         // leaves the queue
	Renew                         // renews the owner's hold for the TTL, as shared if Shared
	Restore                       // grants the hold again, with its token, where the node lost it
	Keep                          // lets the owner's hold expire after For
	Park                          // passes the hold to the parked owner; it expires after For
	Attach                        // passes the hold from the former owner to the attempt's
	Return                        // passes the hold back to the former owner
)

// IsRelease reports whether the call removes something that would stay at the node until its TTL.
// The shell repeats a failed one as soon as the node answers: see Machine.Retry.
func (d Do) IsRelease() bool {
	return d == Yield || d == Release || d == ReleaseAndLeave || d == Leave || d == Park || d == Return
}

// Queues reports whether the call may queue the waiter.
func (d Do) Queues() bool { return d == Acquire || d == Yield }

// Frees reports whether the call only gives back: no answer to it begins or prolongs a hold.
func (d Do) Frees() bool { return d == Release || d == ReleaseAndLeave || d == Leave }

// Renews reports whether the call renews a hold. The shell may send such calls apart from the
// others, which may overtake them.
func (d Do) Renews() bool { return d == Renew }

// Call is one call to one cell. The shell returns it with the reply.
type Call struct {
	Do        Do
	Successor bool // the owner is the attempt's successor, not the attempt's own
	All       bool // of ReleaseAndLeave and Leave: also release the waiter's successors
	Shared    bool // the owner shares the lock after a Downgrade, or is about to
	Contends  bool // of a TryLock: see tries
	Whose     Whose
	Cell      int32
	Attempt   int32 // the attempt of the owner
	Of        int32 // of an Attach, a Return or Whose Former: the former owner's cell
	Round     int32 // of a Renew
	Slot      int32 // of a semaphore: the slot of the hold, or the preferred one
	// of an Acquire or a Yield of a semaphore: 1 + the slot from which the node searches for a free
	// one to name; 0 if the node may grant any free slot
	Other int32
	From  uint64        // of a Raise
	Token uint64        // of a Raise or Restore; of an Attach: the most the cell may have counted
	For   time.Duration // of a Keep or a Park; of a Renew: the TTL, if longer than the lock's
}

// Reply is the outcome of a Call.
type Reply struct {
	Err         error // no answer: the call may have run, or may run later
	Unsent      bool  // with Err: the call has not run, and never will
	Broken      bool  // with Err: the connection has ended, though not for silence
	WrongUse    bool  // with Err: the key is not a lock of this kind and size
	Quarantined bool  // with Err: the restart guard keeps the node from granting

	OK    bool // granted, raised, renewed or passed on; of a release: the owner had the lock
	Again bool // of a grant or a refusal: the owner had the lock before the call
	Rival bool // of an Attach: another owner has the lock, and Token is a later token, or 0
	Moved bool // of an Attach: the former owner has the hold there, as the cell Of
	Of    int32
	Left  time.Duration // of an Attach, with OK: the remaining TTL of the key; negative if it has none
	Token uint64        // of a grant: its token; of a Park: the last token that the cell has counted
	Slot  int32         // of a semaphore: the granted slot; with Elsewhere or First, a free one
	First bool          // of a Yield: the lock is free there, and the waiter is first in the queue

	// Of a refused Acquire:
	Holder    quorumlock.Owner // the holder there; if the lock is free, the first in the queue
	Shared    bool             // Holder is one of several sharers
	Free      bool
	Elsewhere bool          // of a semaphore: the slot is taken, another is free for the waiter
	Ours      bool          // Holder is this attempt's own owner
	Ended     bool          // Holder is of this client, and its release is on the way
	TTL       time.Duration // how long the refusal may last; 0 if unknown
	Position  int           // in the queue, from 0
}

// sharers stands for all owners that share a lock.
const sharers quorumlock.Owner = "*"

// holder returns the owner in the way. Sharers count as one, because each node names another one.
func (r *Reply) holder() quorumlock.Owner {
	if r.Shared {
		return sharers
	}
	return r.Holder
}

// Event is the input of a step. The zero value is invalid.
type Event struct {
	Kind    EventKind
	Cell    int32
	Attempt int32  // of a Handoff
	Token   uint64 // of a Handoff
	Slot    int32  // of a Handoff of a semaphore, and of a TurnForSlot
	// of an Unlock or a Detach: how long the nodes keep the lock; of an Extend: the TTL, if longer
	// than the lock's
	Keep  time.Duration
	Call  Call // of a Replied
	Reply Reply
}

// cell returns the cell of the event, -1 if it has none.
func (e *Event) cell() int32 {
	switch e.Kind {
	case Replied:
		return e.Call.Cell
	case Turn, TurnForSlot, Taken, Handoff:
		return e.Cell
	}
	return -1
}

// EventKind is the kind of an Event.
type EventKind uint8

const (
	Start       EventKind = iota + 1 // the call begins
	Replied                          // Call has an outcome: Reply
	Turn                             // a cell has called the waiter
	TurnForSlot                      // a cell has called the waiter, because Slot was released
	// a cell that called, or was free, is most likely taken again, by a client that takes the cells
	// one after another
	Taken
	Handoff   // a cell has handed the lock to the successor of Attempt
	Next      // those before the waiter are few: it refreshes as often as the first
	Tick      // the time of Machine.Wake has come
	Cancel    // the caller gave up
	Extend    // renew at once
	Downgrade // renew the hold at once, as a shared one from now on
	Unlock    // the holder is done
	Detach    // the holder is done, and another process goes on with the hold
	GiveBack  // nobody wants the hold that an Attach has just won: pass it back
	Close     // the client is closed: a hold counts as lost
)

// Outcome is the end of a call.
type Outcome uint8

const (
	Undecided Outcome = iota
	Acquired          // the machine holds the lock
	Failed            // see Effects.Reason
)

// Reason is why an attempt or a call failed, or why a hold was lost.
type Reason uint8

const (
	NoReason        Reason = iota
	Held                   // another owner has the lock, or is about to take it
	NoQuorum               // too few nodes answered
	HeldAndNoQuorum        // of a MultiLock: one member is held, and another has no quorum
	HeldOrNone             // Held or NoQuorum, not known yet: see refusal
	NoToken                // granted, but too few cells confirmed the token: see disagree
	WrongUse               // the key is not a lock of this kind and size at too many nodes
	TooLate                // granted, but without any validity left
	Cancelled              // by Cancel or Close
	NotRenewed             // a loss: no renewal in time
	Gone                   // too many nodes no longer have the key: a loss, or the end of an Attach
	OverMaxHold            // a loss: not renewed after MaxHold
	Closed                 // a loss: by Close
	Confused               // a loss: see Effects.Bug
)

// lacksQuorum reports whether too many cells failed.
func (r Reason) lacksQuorum() bool { return r == NoQuorum || r == HeldAndNoQuorum }

// isHeld reports whether another owner is in the way for certain.
func (r Reason) isHeld() bool { return r == Held || r == HeldAndNoQuorum }

// Effects is the result of a step. Calls are sent in order; those to one node may go together.
type Effects struct {
	Calls    []Call
	Outcome  Outcome
	Reason   Reason  // why the call, or its last attempt, failed
	Listen   bool    // the waiter waits: subscribe to the messages of the nodes
	Waiting  bool    // an attempt failed for Reason; set again when late answers change it
	Lost     Reason  // why the hold is lost; NoReason if it is not
	Bug      string  // an entry into a phase that must not follow the last one; empty if none
	Late     bool    // the first renewal in a row without a quorum
	Won      int     // with Late: the number of members that it renewed
	Rounds   []Round // renewals that the step has decided
	Released bool    // an Unlock is decided: see Machine.Released
}

// Round is a decided renewal.
type Round struct {
	ID      int32
	Won     bool
	Members int           // the number of renewed members
	Lag     time.Duration // of a won renewal: the time since it was due
}
