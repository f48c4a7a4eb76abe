package core

import "time"

// Cell is the knowledge about one cell, in two records. Only the methods in this file change them.
type Cell struct {
	answers
	ledger
}

// Standing is where a cell stands in the current attempt.
type Standing uint8

const (
	Asked     Standing = iota // no answer yet
	Granted                   // the owner has the lock there
	Queued                    // it refused, and the waiter is in its queue
	Free                      // free for the waiter: it is first in the queue, or another slot is free
	Unknown                   // the owner may have the lock there: a call failed, or is unanswered
	Untouched                 // the attempt was not sent, or the restart guard refused it
	Left                      // not queued there, and nothing granted
	Spared                    // not asked until members without a quorum have one: see Machine.spare
	Foreign                   // a copy of the call has the lock there, under the same owner
)

// answers is the knowledge since the attempt began. Each attempt starts anew.
type answers struct {
	Standing Standing
	response
	turn
	handed handover // to the successor
	ownHold
	place
	vote Vote // on the raise, or on the release
	release
	origin
}

// response is what a cell has answered to the attempt, or why it has not.
type response struct {
	Refusal  *Reply        // nil if it has not refused
	expires  time.Duration // when the key that refused should expire, by Mono; 0 if unknown
	Won      bool          // granted; may have been released since
	WrongUse bool          // its key is not a lock of this kind and size
	copied   bool          // has no vote on the attempt: on another cell's server, or Foreign
	failed   bool          // a call failed; reset by an answer to the attempt or its raise
	broken   bool          // the connection of the attempt, or of the release, has ended
}

// turn is whether a cell has called the waiter.
type turn struct {
	called   bool
	summoned bool // the same, also if it has most likely been taken since
}

// ownHold is the hold of the owner.
type ownHold struct {
	token       uint64 // if Granted; after a Park, the last one counted
	lostRenewal bool   // a lost Renew may still run, from an old connection
	restored    bool   // a Restore was sent, and may have run before the attempt
}

// place has the slots of a semaphore.
type place struct {
	slot   int32 // the granted one; valid if Won
	vacant int32 // 1 + one that was free there; 0: none known
	apart  bool  // granted or handed over a different one than most: see compareSlots
}

// origin is what an Attach takes over.
type origin struct {
	of   int32         // the cell in the former owner's name
	left time.Duration // if Granted: the key's remaining TTL; cfg.TTL if it has none
}

// handover is a handoff to the successor of the attempt. The zero value is none.
type handover struct {
	token uint64
	slot  int32
	apart bool // handed over a different slot than most
}

// release is what may happen, or have happened, to the release of the attempt.
type release struct {
	early         bool // it may have run before the attempt, or was repeated for that
	awaits        bool // it waits for the answer to the attempt: see setAwaits
	mayStayQueued bool // it was sent while Asked, and does not leave the queue
	renewed       bool // it was a Keep, and a renewal may have run behind it while it was undecided
	gone          bool // the cell had no key; of an Attach: it has nothing to pass on
}

// ledger is the knowledge since the call began.
type ledger struct {
	Position int   // the last known one in its queue
	Err      error // the last failure
	former   int32 // an earlier attempt; its successor has the lock there; 0: none known
	lacking  bool  // its member had no quorum of votes when it was last asked: see noteLacking
	traces
}

// traces are what the calls may have left at a cell.
type traces struct {
	unanswered int16 // calls of Acquire, Yield and Attach
	leftover   bool  // an entry or a grant may be left: an answer was lost or out of order
	reached    bool  // an attempt has run there, or may have
	unsure     bool  // a lost call may still run, from an old connection
}

// HandedOver reports whether the cell has handed the lock to the attempt's successor.
func (c *Cell) HandedOver() bool { return c.handed.token > 0 }

// isOpen reports whether the next attempt should win the cell. A cell on another cell's server
// repeats that cell's answers, and has no vote.
func (c *Cell) isOpen() bool {
	return c.HandedOver() || !c.copied && (c.Standing == Free || c.Standing == Queued && c.called)
}

// isClear reports whether the cell has no key and no entry of the waiter's, and gets none: no
// attempt has reached it.
func (c *Cell) isClear() bool { return !c.reached && c.unanswered == 0 }

// mayHold reports whether an owner of the waiter has the lock there, or may get it.
func (c *Cell) mayHold() bool {
	return c.Standing == Granted || c.Standing == Unknown || c.unanswered > 0 && c.Standing != Foreign
}

// begin begins the attempt after last.
func (c *Cell) begin(cell int, last int32) {
	if c.HandedOver() {
		c.former = last
	}
	c.answers = answers{origin: origin{of: int32(cell)}}
}

// spare leaves the cell out of an attempt. The cell keeps its last answer, for the reason of a
// failure.
func (c *Cell) spare(cell int) {
	if c.Refusal != nil {
		c.Refusal.TTL = 0 // unknown from now on
	}
	c.answers = answers{Standing: Spared, response: response{Won: c.Won, Refusal: c.Refusal}, place: place{slot: c.slot}, origin: origin{of: int32(cell)}}
	c.former, c.lacking = 0, false
}

// sent notes a call to the cell.
func (c *Cell) sent(do Do) {
	if do.Queues() || do == Attach {
		c.unanswered++
	}
	c.restored = c.restored || do == Restore
}

// answered notes the outcome of a call, whatever it is for: whether the cell has a key or an entry
// of the waiter's, or may still get one. A call that finds a foreign hold adds none.
func (c *Cell) answered(do Do, r Reply) {
	takes := do.Queues() || do == Attach
	if takes {
		c.unanswered--
	}
	// Only Acquire and Attach read all keys. No other answer shows that the key is a lock again.
	if r.Err != nil && (do == Acquire || do == Attach || !c.WrongUse) {
		c.Err = r.Err
	}
	lost := r.Err != nil && !r.Unsent
	switch do {
	case Park:
		c.unsure = c.unsure || lost
	case Renew:
		c.lostRenewal = c.lostRenewal || lost
	}
	if r.Unsent || r.Quarantined || !takes && do != Restore || r.Again && !c.restored {
		return
	}
	c.reached = true
	c.unsure = c.unsure || r.Err != nil
}

// acquired records the answer to the attempt.
func (c *Cell) acquired(now Time, r Reply) {
	c.failed, c.broken = r.Err != nil, r.Broken
	switch {
	case r.Quarantined, r.Unsent:
		c.Standing = Untouched
	case r.Err != nil:
		c.Standing, c.WrongUse, c.leftover = Unknown, r.WrongUse, true
	case r.Again && !c.restored:
		// Each owner is used once, and its request is sent once. So either a proxy repeats
		// requests, or a copy of this process makes the same call. The lock of the copy must not be
		// released.
		c.Standing, c.copied, c.Err = Foreign, true, ErrForeign
	case r.OK && r.Again, !r.OK && r.Ours: // the server was asked at another address
		c.Standing, c.copied, c.Err = Unknown, true, ErrDuplicate
	case r.OK:
		c.win(r.Token)
		c.slot = r.Slot
	default:
		c.refuse(Queued, r)
		c.Position = r.Position
		if r.TTL > 0 {
			c.expires = now.Mono + r.TTL
		}
		if r.Elsewhere {
			c.Standing = Free
		}
	}
}

// attached records the answer to an Attach. another means that another cell has already passed on
// the same hold.
func (c *Cell) attached(r Reply, s *Source, another, asking bool) {
	c.failed = r.Err != nil
	switch {
	case r.Quarantined, r.Unsent:
		c.Standing = Untouched
	case r.Err != nil:
		c.Standing, c.WrongUse = Unknown, r.WrongUse
	case r.Again && asking: // a copy of this process makes the same call
		c.Standing, c.Err = Left, ErrForeign
	case r.OK && another:
		c.Standing, c.Err = Left, ErrDuplicate
	case r.OK:
		c.win(s.Token)
		c.left = r.Left
	case c.Standing == Asked:
		c.refuse(Left, r)
		c.gone = !r.Rival && asking
	}
}

func (c *Cell) win(token uint64) { c.Standing, c.Won, c.token, c.Err = Granted, true, token, nil }

func (c *Cell) refuse(s Standing, r Reply) { c.Standing, c.Refusal, c.Err = s, &r, nil }

// yielded records the answer to the Yield of the attempt.
func (c *Cell) yielded(r Reply) {
	switch {
	case r.Err != nil:
		c.Standing, c.failed = Unknown, true
	case r.First:
		c.Standing = Free
	default:
		c.Standing = Queued
	}
}

// raised records the answer to a Raise.
func (c *Cell) raised(r Reply) {
	if c.failed, c.vote = r.Err != nil, No; r.Err == nil && r.OK {
		c.vote = Yes
	}
}

// confirm makes the cell a part of the hold, after a renewal or a handoff has shown that it is.
// Leftovers of an earlier attempt may be there, too.
func (c *Cell) confirm() {
	c.leftover = c.leftover || c.Standing != Granted && c.Standing != Queued
	c.Standing = Granted
}

// released records the answer to a release, which was a Keep or a Park if kept. It confirms a
// release if the others are kept, too, or none is.
func (c *Cell) released(r Reply, kept, others bool) {
	if c.vote, c.gone = No, r.WrongUse; r.Err != nil { // gone: another program has overwritten the key
		return
	}
	c.Err, c.gone = nil, !r.OK && !c.broken && (!kept || c.Standing == Granted) // broken: the first release may have run
	if others == kept && (r.OK || !kept) {
		c.vote = Yes
		c.count(r.Token)
	}
}

// taken notes that another client has most likely taken a free cell.
func (c *Cell) taken() {
	if c.Standing == Free || c.Standing == Queued {
		c.Standing, c.called = Queued, false
	}
}

// expect notes a handoff to the successor of an earlier attempt: the next one should win the cell.
func (c *Cell) expect(attempt int32) {
	c.former, c.called = attempt, c.called || c.Standing == Queued
}

// Facts of one kind.
func (c *Cell) doubt()                            { c.Standing = Unknown }
func (c *Cell) leave()                            { c.Standing = Left }
func (c *Cell) inherit()                          { c.Standing, c.token = Granted, c.handed.token }
func (c *Cell) move()                             { c.Standing, c.apart = Unknown, false }
func (c *Cell) cast(v Vote)                       { c.vote = v }
func (c *Cell) count(token uint64)                { c.token = max(c.token, token) }
func (c *Cell) summon()                           { c.called, c.summoned = true, true }
func (c *Cell) handOver(token uint64, slot int32) { c.handed.token, c.handed.slot = token, slot }
func (c *Cell) compare(apart, handed bool)        { c.apart, c.handed.apart = apart, handed }
func (c *Cell) name(slot int32)                   { c.vacant = 1 + slot }
func (c *Cell) moved(of int32)                    { c.of = of }
func (c *Cell) keep()                             { c.gone = false }
func (c *Cell) miss()                             { c.failed = true }
func (c *Cell) lack(is bool)                      { c.lacking = is }
func (c *Cell) works()                            { c.Err = nil }
func (c *Cell) litter()                           { c.leftover = true }
func (c *Cell) duplicate()                        { c.copied = true }
func (c *Cell) disconnect()                       { c.broken = true }
func (c *Cell) beginRelease()                     { c.vote, c.gone, c.broken = Unanswered, false, false }
func (c *Cell) await()                            { c.awaits = true }
func (c *Cell) stayQueued()                       { c.mayStayQueued = true }
func (c *Cell) overtake()                         { c.early = true }
func (c *Cell) renewKept()                        { c.renewed = true }
