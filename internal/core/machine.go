// Package core decides everything about one call of Lock: its attempts, its wait in the queues of
// the nodes, and its hold with the renewals, the loss and the release. It is a pure state machine,
// without goroutine, mutex, context, clock or I/O. The shell, package client, passes events to Step
// and carries out the effects.
//
//	machine.go   the machine, Step, the end of the validity
//	phase.go     the phases and their transitions
//	cell.go      the knowledge about one cell
//	event.go     events, calls, replies, effects
//	attempt.go   one attempt: votes, the reason of a failure
//	agree.go     the fencing token of a won attempt
//	wait.go      waiting, handoffs
//	attach.go    taking over a detached hold
//	hold.go      the beginning of a hold, renewal, loss
//	release.go   release
//	tree.go      quorums
//	tally.go     counts of the cells' facts
//	slots.go     the slots of semaphores
//	try.go       further attempts of a TryLock
//	spare.go     members that wait until another one has a quorum
//	pace.go      pauses of callers with little time left
//
// A machine that is over still releases the grants that late answers report.
//
// While a connection stands, its node runs the calls of one machine in the order in which they are
// sent, except renewals. So a release may follow an acquire before the acquire is answered. A lost
// answer, or one that comes after that of a later call, shows that the order is lost. Then the
// machine releases once more.
package core

import (
	"time"

	"github.com/quorumlock/quorumlock"
)

// Config has the settings shared by all calls on one lock. It is immutable.
type Config struct {
	Tree        Tree
	TTL         time.Duration
	HandTTL     time.Duration // of a handoff; 0 if handoffs are off
	NodeTimeout time.Duration // a call has an outcome once its node has been silent for this time
	MaxHold     time.Duration // renewals stop this long after the grant; 0: no limit
	Drift       quorumlock.Drift
	Renew       bool
	Tries       bool // a TryLock: it waits for no release
	Unclaimed   bool // see Machine.Unclaimed
	Slots       []Slots
	Source      *Source // of an Attach; nil for other calls
}

// Machine is one call of Lock or TryLock, with all of its attempts, and its hold. The zero value is
// not usable: see New. A Machine is not safe for concurrent use.
type Machine struct {
	cfg   *Config
	trip  func(cell int) time.Duration
	rand  uint64
	phase Phase // see become
	Cells []Cell
	fx    Effects

	census
	choice
	past
	trial
	tenure
	ending
}

// census has the facts of the cells: see tallies.
type census struct {
	tally   tally // the facts of the cells: see tallies
	current int32 // the cell of the step: its facts may have changed; -1 if none
	changed int32 // counts changes to the facts of other cells
	counted int32 // the value of changed at the last count of all cells
}

// choice is the choice of the slots of semaphores.
type choice struct {
	slots      []int32 // of each semaphore: the slot of the hold, or the preferred one
	oneSlot    bool    // the attempt takes these slots and no others
	searchFrom uint64  // random, of each attempt: where cells search for a free slot
	compared   slotOf  // the kind of the last comparison of slots: see compareSlots
}

// past is what a call has learned from its attempts so far.
type past struct {
	streaks
	began           Time          // the call
	reason          Reason        // of the last failed attempt
	tries           tries         // of a TryLock
	refusedByOthers bool          // a cell refused, and not for an ended hold of this client
	takenInOrder    bool          // another client takes the cells in order: see Taken
	refreshOften    bool          // the waiter refreshes like the first: see Next
	readySince      time.Duration // start of consecutive waits for free cells alone; 0: none
}

// streaks count consecutive attempts with the same outcome. A wait that doubles with each of them
// is bounded.
type streaks struct {
	expiredWaits int // attempts that ended with missing answers: see tolerance
	shortWaits   int // attempts that did not wait for slow nodes: see limitWait
	wokenInVain  int // the last attempts after handoffs and calls without a quorum
	failures     int // the last attempts without an answer or granted too late: see afterFailure
	rushed       int // the last attempts that followed handoffs within grace of the one before
}

// trial is the last attempt, and the wait after it. Each attempt starts with a new one.
type trial struct {
	attempt           int32
	asked             Time          // before it was sent; the validity counts from here
	successor         bool          // the last attempt's successor has the lock, or is about to
	nextLook          int           // looksAgain: true once at most so many answers are missing
	spares            bool          // some cells are Spared
	limited           bool          // the attempt's wait was limited by limitWait
	yields            int           // unanswered Yields of the attempt, including those of late grants
	unconfirmedYields int           // cells that granted and have yet to answer the Yield
	giveUpAt          time.Duration // when the attempt ends without the missing answers; 0: never
	refresh           time.Duration // refreshAfter at the last attempt, as the nodes were told
	waitingSince      time.Duration // when Waiting began
	nextAttemptAt     time.Duration // in Waiting: the time of the next attempt
	handoffDeadline   time.Duration // in Waiting: end of the wait for calls and handoffs; 0: none
	handoffWait       time.Duration // the length of that wait; 0: not chosen yet
}

// tenure is the hold.
type tenure struct {
	token      uint64        // chosen by agree; valid from then on
	since      Time          // when the hold began
	start      Time          // before the attempt or renewal that the validity counts from
	suspended  time.Duration // the lead of Boot over Mono since start: see noteSuspension
	ttl        time.Duration // counts from start; at most cfg.TTL before the first renewal, then at least
	promised   time.Duration // by Mono; no renewal lets the key expire earlier: see Extend
	renew      time.Duration // when the next renewal is due; 0: none
	renewalDue time.Duration // when the first renewal since the last won one was due
	late       bool          // the last decided renewal found no quorum
	shared     bool          // by a Downgrade; never reset
	rounds     []*round      // renewals with unanswered calls
	last       int32         // the number of the last round
}

// ending is the end of the hold, from Unlock or Detach on.
type ending struct {
	keep      bool          // an Unlock for which granted cells keep the key until kept
	park      bool          // the Unlock was a Detach
	awaitsAll bool          // the Detach waits for all nodes, and not for a quorum
	parked    bool          // a quorum confirmed the Park while the hold was valid
	returns   bool          // an Attach failed, or was given back: another may take the hold over
	kept      time.Duration // when the kept keys expire, by the monotonic clock
	released  Vote          // Yes when a quorum of every member has confirmed, No when it cannot
}

// New returns an idle machine. trip returns how long round trips to a cell's node took lately, 0 if
// none succeeded. seed makes the pauses of machines differ.
func New(c *Config, trip func(cell int) time.Duration, seed uint64) *Machine {
	m := &Machine{cfg: c, trip: trip, rand: seed | 1}
	m.current = -1
	m.Cells = make([]Cell, c.Tree.Cells())
	m.tally.init(&c.Tree)
	m.changed++
	return m
}

// Phase returns the phase of the machine.
func (m *Machine) Phase() Phase { return m.phase }

// Attempt returns the number of the last attempt, from 1, and whether its successor has the lock.
func (m *Machine) Attempt() (n int32, successor bool) { return m.attempt, m.successor }

// Token returns the fencing token of the hold.
func (m *Machine) Token() uint64 { return m.token }

// Tree returns the tree of the lock.
func (m *Machine) Tree() Tree { return m.cfg.Tree }

// Remaining is the validity that is left.
func (m *Machine) Remaining(now Time) time.Duration {
	return m.cfg.Drift.Validity(m.ttl, now.Since(m.start))
}

// Held is the time since the hold began.
func (m *Machine) Held(now Time) time.Duration { return now.Since(m.since) }

// Until is the end of the validity by the monotonic clock. A suspend before then makes it earlier.
func (m *Machine) Until() time.Duration { return m.start.Mono + m.cfg.Drift.Validity(m.ttl, 0) }

// Step applies an event, and returns its effects. They are valid until the next step.
func (m *Machine) Step(now Time, e Event) *Effects { return m.StepAfter(m.fx.Calls[:0], now, e) }

// StepAfter is Step for a caller with calls that are not sent yet: it appends those of the step to
// them.
func (m *Machine) StepAfter(calls []Call, now Time, e Event) *Effects {
	m.fx = Effects{Calls: calls, Rounds: m.fx.Rounds[:0]}
	if m.changed == m.counted { // otherwise the next call counts all cells
		m.tallies()
	}
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
		m.summon(now, &m.Cells[e.Cell])
		if m.takenInOrder {
			m.handoffDeadline = 0 // another cell may follow
		}
		m.expectExpiry(now, true)
		m.review(now)
	case TurnForSlot:
		m.readySince = 0
		m.summon(now, &m.Cells[e.Cell])
		m.name(int(e.Cell), e.Slot)
		m.review(now)
	case Taken:
		if !m.takenInOrder {
			m.takenInOrder, m.handoffWait = true, 0
		}
		m.Cells[e.Cell].taken()
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
			m.promised = max(m.promised, now.Mono+e.Keep)
			m.renewAll(now, max(e.Keep, m.cfg.TTL))
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
		return earlier(m.giveUpAt, m.lastAgreement())
	case Yielding:
		return m.lastAgreement()
	case Waiting:
		return earlier(m.nextAttemptAt, m.handoffDeadline)
	case Holding:
		return earlier(m.Until()-m.suspended, m.renew)
	}
	return 0
}

// earlier returns the lesser of two moments; 0 is none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (m *Machine) tick(now Time) {
	at := m.Wake()
	if at == 0 || now.Mono < at || m.phase < Waiting && m.isLate(now, at) {
		return
	}
	switch m.phase {
	case Asking:
		why := m.refusal()
		if !why.lacksQuorum() { // see countsOn
			m.expiredWaits++
		}
		m.abandonAttempt(now, why)
	case Agreeing:
		m.expiredWaits++
		m.disagree(now)
	case Yielding:
		m.fail(m.reason)
	case Waiting:
		if now.Mono >= m.nextAttemptAt || m.tallies().holds(isWanted) {
			m.wokenInVain = 0
		} else if !m.takenInOrder {
			m.wokenInVain++
		}
		m.ask(now)
	case Holding:
		if m.renew != 0 && now.Mono >= m.renew {
			m.renew = 0
			if !m.isOverMaxHold(now) {
				m.renewAll(now, m.cfg.TTL)
			}
		}
	}
}

// review acts on new facts: it decides the attempt, or ends the wait.
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
	m.Cells[c.Cell].answered(c.Do, r)
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

// call adds a call to the effects.
func (m *Machine) call(c Call) {
	c.Contends = m.tries.contends
	c.Shared = m.shared && c.Attempt == m.attempt && c.Successor == m.successor
	c.Slot, c.Other = m.slotAt(int(c.Cell)), m.otherAt(c.Do, int(c.Cell))
	m.Cells[c.Cell].sent(c.Do)
	if m.fx.Calls == nil {
		m.fx.Calls = make([]Call, 0, len(m.Cells))
	}
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
