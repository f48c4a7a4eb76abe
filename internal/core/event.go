package core

import (
	"time"

	"github.com/quorumlock/quorumlock"
)

// Time is a moment by both clocks of a client, each as the time since any fixed moment.
type Time struct {
	Mono time.Duration // never steps, but may stand still while the machine is suspended
	Boot time.Duration // goes on while the machine is suspended; may step on a system whose only such clock is the wall clock
}

// Since returns the time from u to t by the clock that shows more. A step forward ends a lease
// early; a step back changes nothing.
func (t Time) Since(u Time) time.Duration { return max(t.Mono-u.Mono, t.Boot-u.Boot) }

// Add returns the moment d later.
func (t Time) Add(d time.Duration) Time { return Time{t.Mono + d, t.Boot + d} }

// Do is what a Call asks of a node.
type Do uint8

const (
	Acquire         Do = iota + 1 // the lock for the attempt's owner; otherwise queue the waiter
	Raise                         // the token counter from From to Token
	Yield                         // what the attempt has got, and queue the waiter again
	Release                       // the owner's hold
	ReleaseAndLeave               // the owner's hold, and take the waiter out of the queue
	Leave                         // take the waiter out of the queue
	Renew                         // the owner's hold, for the whole TTL; if Shared is set, let others share it from now on
	Restore                       // the hold, with its token, where the node has lost it
	Keep                          // the owner's hold for that long, and then let it expire
	Park                          // pass the hold to an owner who is nobody, and keep it for that long
	Attach                        // take the hold from the former owner
	Return                        // pass the hold back to the former owner
)

// IsRelease reports whether the call takes away something that would stay at the node until its TTL. If such a call
// fails, the shell sends it again as soon as the node answers: see Machine.Retry.
func (d Do) IsRelease() bool {
	return d == Yield || d == Release || d == ReleaseAndLeave || d == Leave || d == Park || d == Return
}

// Queues reports whether the call may queue the waiter.
func (d Do) Queues() bool { return d == Acquire || d == Yield }

// Renews reports whether the call renews a hold. Such calls may be sent apart from the others, and be overtaken by them.
func (d Do) Renews() bool { return d == Renew }

// Call is one call to one cell. The shell returns it with the reply.
type Call struct {
	Do        Do
	Successor bool // the owner is the attempt's successor, not the attempt's own
	All       bool // for the two that leave: also release what the waiter's successors have got
	Shared    bool // the owner shares the lock since a Downgrade, or is about to
	Contends  bool // of a TryLock: it has met others that lack a part of the lock, too
	Whose     Whose
	Cell      int32
	Attempt   int32         // whose owner it is
	Of        int32         // of an Attach, a Return, and what is about the former owner: which cell he has the hold as
	Round     int32         // of a Renew
	Slot      int32         // of a semaphore: which one the hold has, or the machine would like
	Other     int32         // of an Acquire or a Yield of a semaphore: one more than the slot from which on the node looks for a free one to name; 0 if it may grant another one than Slot
	From      uint64        // of a Raise
	Token     uint64        // of a Raise, a Restore; of an Attach: the highest that the cell may have counted
	For       time.Duration // of a Keep or a Park
}

// Reply is what came of a Call.
type Reply struct {
	Err         error // there is no answer: the call may have run, or may run later
	Unsent      bool  // with Err: the call has not run and never will
	NotALock    bool  // with Err: the key is something else
	Quarantined bool  // with Err: the restart guard keeps the node from granting

	OK    bool // granted, raised, renewed, passed on; for a release: the owner had it
	Again bool // the owner had the lock before the call; set for grants and refusals
	Rival bool // of an Attach: another owner has taken the hold over
	Moved bool // of an Attach: the former owner has the hold there, but as the cell Of
	Of    int32
	Token uint64 // granted: its token; of a Park: the last one that the cell has counted
	Slot  int32  // of a semaphore: the slot that was granted; or one that is free, if Elsewhere or First
	First bool   // of a Yield: the lock is free there and the waiter is the first

	// Of an Acquire that was refused:
	Holder    quorumlock.Owner // who has the lock there, or is the first in the queue if it is free
	Shared    bool             // Holder is one of the owners that share the lock there
	Free      bool
	Elsewhere bool          // of a semaphore: the slot is taken, and another one is free for the waiter
	Ours      bool          // Holder is this attempt's own owner
	Ended     bool          // Holder is of this client, and its hold has ended: its release is on its way
	TTL       time.Duration // how long the refusal may last; 0 if unknown
	Position  int           // in the queue, from 0
}

// sharers stands for all owners that share a lock.
const sharers quorumlock.Owner = "*"

// holder returns the owner in the way. Sharing owners count as one, because each node names another one of them.
func (r *Reply) holder() quorumlock.Owner {
	if r.Shared {
		return sharers
	}
	return r.Holder
}

// Event is something that has happened. Its zero value has no meaning.
type Event struct {
	Kind    EventKind
	Cell    int32
	Attempt int32         // of a Handoff
	Token   uint64        // of a Handoff
	Slot    int32         // of a Handoff of a semaphore, and of a TurnForSlot
	Keep    time.Duration // of an Unlock or a Detach: how long the nodes keep the lock
	Call    Call          // of a Replied
	Reply   Reply
}

// cell returns the cell that the event is about, -1 if none.
func (e *Event) cell() int32 {
	switch e.Kind {
	case Replied:
		return e.Call.Cell
	case Turn, TurnForSlot, Taken, Handoff:
		return e.Cell
	}
	return -1
}

// EventKind says what has happened.
type EventKind uint8

const (
	Start       EventKind = iota + 1 // the call begins
	Replied                          // a node has answered Call
	Turn                             // a cell has called the waiter
	TurnForSlot                      // a cell of a semaphore has called the waiter, because Slot has been released there
	Taken                            // a cell that called, or was free, is most likely taken again, by a client that has the cells one after another
	Handoff                          // a cell has handed the lock to the successor of Attempt
	Next                             // the waiter is the second in some queue
	Tick                             // the time of Machine.Wake has come
	Cancel                           // the caller has gone
	Extend                           // renew at once
	Downgrade                        // from now on the hold is shared with others: renew it so, at once
	Unlock                           // the holder is done
	Detach                           // the holder is done, and another process will go on with the hold
	GiveBack                         // nobody wants the hold that an Attach has won just now: pass it back
	Close                            // the client is closed: a hold counts as lost
)

// Outcome is how a call ends.
type Outcome uint8

const (
	Undecided Outcome = iota
	Acquired          // the machine holds the lock
	Failed            // see Effects.Reason
)

// Reason says why an attempt, or a call, has failed.
type Reason uint8

const (
	NoReason        Reason = iota
	Held                   // somebody else has the lock, or is just taking it
	NoQuorum               // too few nodes answered
	HeldAndNoQuorum        // of a MultiLock: somebody else has a member, and too few nodes answered for another
	HeldOrNone             // too few nodes have answered to tell which
	NotALock               // the keys are something else at too many nodes
	TooLate                // it was granted, but nothing is left of its validity
	Cancelled              // by Cancel or Close
	NotRenewed             // a loss: no renewal in time
	Gone                   // a loss: too many nodes no longer have its key
	OverMaxHold            // a loss: it was held for longer than MaxHold
	Closed                 // a loss: by Close
)

// isHeld reports whether somebody else is in the way for certain.
func (r Reason) isHeld() bool { return r == Held || r == HeldAndNoQuorum }

// Effects is what the shell does after a step. Calls are sent in this order; those to one node may go together.
type Effects struct {
	Calls    []Call
	Outcome  Outcome
	Reason   Reason  // why the call failed, or why the last attempt did
	Listen   bool    // the waiter waits now: subscribe to the messages of the nodes
	Waiting  bool    // an attempt failed for Reason, and the machine waits; set again when an unknown reason becomes known
	Lost     Reason  // the hold is lost
	Late     bool    // the first renewal in a row that found no quorum
	Won      int     // with Late: how many members it found
	Rounds   []Round // renewals that are decided
	Released bool    // an Unlock is decided: see Machine.Release
}

// Round is a renewal that is decided.
type Round struct {
	ID      int32
	Won     bool
	Members int           // that were renewed
	Lag     time.Duration // of one that was won: how much later that is than the renewal was due
}
