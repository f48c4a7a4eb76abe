// Package core decides everything in the life of one call of Lock: from its first attempt, through waiting in the queues
// of the nodes, to the hold that it leads to, its renewals, its loss and its release. It is a pure state machine: it has
// no goroutine, no mutex, no context, no clock and no I/O. The shell, package quorum, tells it what has happened and
// does what it says.
//
//	machine.go   the machine, Step
//	phase.go     its phases, and which follows which
//	event.go     what goes in and comes out
//	attempt.go   one attempt: votes, validity, the reason of a failure
//	agree.go     the fencing token of an attempt that has won
//	wait.go      giving way, waiting, handoffs
//	attach.go    taking over a hold that another process has detached
//	hold.go      renewal, deadline, loss
//	release.go   giving back
//	tree.go      which votes win
//	tally.go     how the cells stand, counted as they change
//	slots.go     which slot of a semaphore
//
// The phases, and the steps from one to another, are in phase.go.
//
// A machine that is over still gives back what late answers have got.
//
// Calls of one machine to one node are run in the order in which they are sent, but for renewals, as long as its
// connection stands. So a call can be sent to give back what an unanswered call before it will have got. If the answer is
// lost, or comes later than those to later calls, the order is lost, too: then the machine gives back once more.
package core

import (
	"time"

	"github.com/quorumlock/quorumlock"
)

// Config is what all calls on one lock have in common. It is immutable.
type Config struct {
	Tree        Tree
	TTL         time.Duration
	HandTTL     time.Duration // of a handoff; 0 if nothing may be handed over
	NodeTimeout time.Duration // within which every call is answered, be it with an error
	MaxHold     time.Duration // how long a hold is renewed; 0 for as long as it lasts
	Drift       quorumlock.Drift
	Renew       bool
	Tries       bool // a TryLock: it waits for nobody
	Slots       []Slots
	Source      *Source // of an Attach; nil for other calls
}

// State is what a cell last said to the current attempt.
type State uint8

const (
	Asked     State = iota // it has not answered
	Granted                // the owner has the lock there
	Queued                 // it refused, and the waiter is in its queue
	Free                   // the lock is free there, and the waiter is the first in the queue
	Unknown                // it failed: the call may have run, or may run later
	Untouched              // the call was not sent, or the restart guard keeps the cell from granting
	Left                   // the waiter has left it
	Foreign                // the owner had the lock there before the call: a copy uses the same owner
)

// Cell is what the machine knows of one cell.
type Cell struct {
	State     State
	Won       bool          // it granted the current attempt, though that may be given back since
	Duplicate bool          // another cell of this lock is on the same server: this one never votes
	NotALock  bool          // its key is something else
	Called    bool          // it has called the waiter since the attempt began
	Handed    uint64        // the token with which the attempt's successor has the lock there; 0 if it has not
	former    int32         // an earlier attempt whose successor has the lock there; 0 if none is known
	Token     uint64        // the owner's token there, if granted
	Refused   bool          // it refused the current attempt
	Refusal   Reply         // if it refused
	Position  int           // in its queue
	Err       error         // what went wrong there last
	expires   time.Duration // when the key that made it refuse should expire, by the monotonic clock; 0 if unknown
	bare      bool          // it was released while Asked, without leaving its queue
	pending   int16         // calls without an answer that may queue the waiter there
	overtaken bool          // a release may have run before the attempt, or was sent once more for that reason
	renewed   bool          // a renewal may have overtaken the Keep, before it was decided whether the lock is kept
	stray     bool          // an answer of an earlier attempt was lost: the waiter may be queued there, or hold a part
	restored  bool          // a Restore was sent, and may have run before the attempt
	awaited   bool          // the release waits for the answer to the attempt: see awaits
	reached   bool          // an attempt has run there, or may have: never reset
	unsure    bool          // an acquire or a queueing call was lost, and may still run from an old connection: never reset
	failed    bool          // a call to the cell has failed since the attempt began

	slot       int32 // of a semaphore: what it granted
	handedSlot int32 // which one it handed over
	vacant     int32 // a slot that was free there, or released, since the attempt began; valid if named
	named      bool
	apart      bool // it granted, or handed over, another slot than most

	vote    Vote   // on what is being asked: the raise, or the release
	counted uint64 // the last token that it has counted, if it has parked the hold
	gone    bool   // it did not have the key when it was released
	of      int32  // of an Attach: which cell the former owner has the hold as
}

// Machine is one call of Lock or TryLock, from its first attempt to its last, and the hold it leads to. Its zero value is
// not usable: see New. It is not safe for concurrent use.
type Machine struct {
	cfg   *Config
	trip  func(cell int) time.Duration
	rand  uint64
	phase Phase
	Cells []Cell

	tally      tally // of the cells, by their facts; see tallies
	current    int32 // the cell that the step is about, whose facts may have changed; -1 if none
	changed    int   // how often the facts of other cells may have changed, too
	counted    int   // the same, when the facts of all cells were counted last
	nextLook   int   // when at most so many cells have yet to answer the attempt, it is time to look at all: see looksAgain
	ownRefused bool  // a TryLock was refused only for the sake of holds of this client that have ended

	attempt           int32
	began             Time // the call
	asked             Time // before the last attempt was sent: what the validity counts from
	successor         bool // the hold, or what is about to be one, is the successor's of the last attempt
	contestedAttempts int  // attempts that were refused somewhere, or granted different slots
	shortWaits        int  // attempts that did not wait for slow nodes
	lastHolder        quorumlock.Owner
	sameHolderCount   int    // consecutive meetings with the same owner
	undecided         bool   // a TryLock: it is not certain that somebody has the lock
	refusedByOthers   bool   // a cell has refused in favor of a holder or of an earlier waiter
	contends          bool   // a TryLock: the last contender that it met has no whole lock, or member, either
	takenInOrder      bool   // some other client takes and releases the cells one after another: see Taken
	refreshOften      bool   // the waiter is second in a queue, and refreshes as often as the first
	lastPosition      int    // the last position in a queue; negative: it has to be looked for
	reason            Reason // of the last attempt's failure
	unconfirmedYields int    // cells with a grant whose release is unconfirmed

	giveUpAt        time.Duration // when nodes that do not answer are no longer waited for; 0 if there is no such moment
	nextAttemptAt   time.Duration // of the next attempt
	handoffDeadline time.Duration // when missing wake-ups are no longer waited for; 0 if none is
	waitingSince    time.Duration // when waiting began
	refresh         time.Duration // how soon the entries of the last attempt need a refresh, as the machine told the nodes

	token      uint64
	since      Time          // when the hold began
	start      Time          // before the attempt or renewal was sent that the validity counts from
	suspended  time.Duration // how much more time had passed since start by Boot, when the clocks were last compared
	ttl        time.Duration
	renew      time.Duration // when the next renewal is due
	renewalDue time.Duration // when the renewal was due that is not won yet
	late       bool          // the last renewal found no quorum
	shared     bool          // by a Downgrade
	slots      []int32       // of each semaphore, the slot of the hold, or that the machine would like
	oneSlot    bool          // the attempt takes these slots and no other
	searchFrom uint64        // random, of each attempt: from which slot on the cells look for a free one
	rounds     []*round
	last       int32 // the number of the last round

	keep     bool          // Unlock left the key for a while
	park     bool          // it was a Detach
	parked   bool          // a quorum has confirmed it while the hold was valid
	returns  bool          // an Attach has failed, and another one may take the hold over
	kept     time.Duration // until when, by the monotonic clock
	released Vote          // Yes when a quorum of every member has confirmed, No when it cannot

	fx Effects
}

// New returns a machine that has done nothing yet. trip says how long round trips to a cell's node took lately; seed
// makes its pauses differ from those of others.
func New(c *Config, trip func(cell int) time.Duration, seed uint64) *Machine {
	m := &Machine{cfg: c, trip: trip, rand: seed | 1, current: -1}
	m.Cells = make([]Cell, c.Tree.Cells())
	m.tally.init(c.Tree)
	m.changed++
	m.fx.Calls = make([]Call, 0, len(m.Cells))
	return m
}

// Phase returns where the machine is.
func (m *Machine) Phase() Phase { return m.phase }

// Attempt returns the number of the last attempt, from 1, and whether its successor has the lock.
func (m *Machine) Attempt() (n int32, successor bool) { return m.attempt, m.successor }

// Token returns the fencing token of the hold.
func (m *Machine) Token() uint64 { return m.token }

// Tree returns the tree of the lock.
func (m *Machine) Tree() Tree { return m.cfg.Tree }

// Remaining is how much validity the hold has left.
func (m *Machine) Remaining(now Time) time.Duration {
	return m.cfg.Drift.Validity(m.ttl, now.Since(m.start))
}

// Held is how long ago the hold began.
func (m *Machine) Held(now Time) time.Duration { return now.Since(m.since) }

// Until is the end of the hold's validity by the monotonic clock, unless that clock stands still before then.
func (m *Machine) Until() time.Duration { return m.start.Mono + m.cfg.Drift.Validity(m.ttl, 0) }

// Step tells the machine what has happened, and returns what to do. What it returns is valid until the next step.
func (m *Machine) Step(now Time, e Event) *Effects {
	m.fx = Effects{Calls: m.fx.Calls[:0], Rounds: m.fx.Rounds[:0]}
	m.tallies()
	m.current = e.cell()
	if m.phase == Holding {
		m.checkDeadline(now)
	}
	switch e.Kind {
	case Start:
		m.began = now
		m.ask(now)
	case Replied:
		m.replied(now, e.Call, e.Reply)
	case Turn:
		m.Cells[e.Cell].Called = true
		if m.takenInOrder {
			m.handoffDeadline = 0 // another cell may follow
		}
		m.review(now)
	case TurnForSlot:
		c := &m.Cells[e.Cell]
		c.Called = true
		m.name(int(e.Cell), e.Slot)
		m.review(now)
	case Taken:
		m.takenInOrder = true
		if c := &m.Cells[e.Cell]; c.State == Free || c.State == Queued {
			c.State, c.Called = Queued, false
		}
	case Handoff:
		m.handed(now, int(e.Cell), e.Attempt, e.Token, e.Slot)
	case Next:
		m.next(now)
	case Tick:
		m.tick(now)
	case Cancel:
		m.cancel()
	case Extend, Downgrade:
		if m.phase == Holding {
			m.shared = m.shared || e.Kind == Downgrade
			m.renewAll(now)
		}
	case Unlock:
		m.unlock(now, e.Keep)
	case Detach:
		m.detach(now, e.Keep)
	case GiveBack:
		m.returnHold(now)
	case Close:
		if m.phase == Holding {
			m.lose(Closed)
		} else {
			m.cancel()
		}
	}
	return &m.fx
}

// Wake returns when the next Tick is due, by the monotonic clock; 0 if none is.
func (m *Machine) Wake() time.Duration {
	switch m.phase {
	case Asking:
		return earlier(m.giveUpAt, m.lastTry())
	case Agreeing:
		return m.giveUpAt
	case Waiting:
		return earlier(m.nextAttemptAt, m.handoffDeadline)
	case Holding:
		return earlier(m.Until()-m.suspended, m.renew)
	}
	return 0
}

// earlier returns the lesser of two moments, of which 0 is none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (m *Machine) tick(now Time) {
	switch m.phase {
	case Asking:
		if at := m.Wake(); at != 0 && now.Mono >= at {
			m.abandonAttempt(now, m.refusal())
		}
	case Agreeing:
		if m.giveUpAt != 0 && now.Mono >= m.giveUpAt {
			m.disagree(now)
		}
	case Waiting:
		if at := m.Wake(); now.Mono >= at {
			m.ask(now)
		}
	case Holding:
		if m.renew != 0 && now.Mono >= m.renew {
			m.renew = 0
			if !m.isOverMaxHold(now) {
				m.renewAll(now)
			}
		}
	}
}

// review looks whether what the nodes have said makes it time to do something.
func (m *Machine) review(now Time) {
	switch m.phase {
	case Asking:
		m.count(now)
	case Yielding:
		if m.handedOver() {
			m.inherit(now)
		}
	case Waiting:
		m.lookAround(now)
	}
}

func (m *Machine) replied(now Time, c Call, r Reply) {
	if d := &m.Cells[c.Cell]; r.Err != nil && (c.Do == Acquire || c.Do == Attach || !d.NotALock) { // only an acquire looks at all keys
		d.Err = r.Err
	}
	m.Cells[c.Cell].track(c.Do, r)
	switch c.Do {
	case Acquire:
		m.acquired(now, c, r)
	case Raise:
		m.raised(now, c, r)
	case Yield:
		m.yielded(now, c, r)
	case Renew:
		m.renewed(now, c, r)
	case Restore:
		m.restored(now, c, r)
	case Attach:
		m.attached(now, c, r)
	case Release, ReleaseAndLeave, Keep, Park, Return:
		m.releaseReplied(now, c, r)
	}
}

// track notes whether the cell has, or may still get, a key or an entry of the waiter's. A call that finds a foreign hold adds
// none.
func (c *Cell) track(do Do, r Reply) {
	if do == Park {
		c.unsure = c.unsure || r.Err != nil && !r.Unsent
	}
	if r.Unsent || r.Quarantined || do != Acquire && do != Yield && do != Restore && do != Attach || r.Again && !c.restored {
		return
	}
	c.reached = true
	c.unsure = c.unsure || r.Err != nil
}

// call adds a call to what is to be sent.
func (m *Machine) call(c Call) {
	c.Contends = m.contends
	c.Shared = m.shared && c.Attempt == m.attempt && c.Successor == m.successor
	c.Slot, c.Other = m.slotAt(int(c.Cell)), m.otherAt(c.Do, int(c.Cell))
	m.fx.Calls = append(m.fx.Calls, c)
}

// jitter returns a random duration between half of d and one and a half times d.
func (m *Machine) jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(m.random()%uint64(d))
}

// Draw returns a random number below n.
func (m *Machine) Draw(n int) int { return int(m.random() % uint64(n)) }

func (m *Machine) random() uint64 {
	m.rand ^= m.rand << 13
	m.rand ^= m.rand >> 7
	m.rand ^= m.rand << 17
	return m.rand
}
