package core

import (
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
)

const (
	// betweenTries is the pause of a TryLock in which contenders yield. After eagerTries attempts
	// it doubles with each attempt, up to maxTryDoublings times: by then, most likely a node is
	// down.
	betweenTries    = time.Millisecond
	eagerTries      = 4
	maxTryDoublings = 3

	// maxTries limits the attempts of a TryLock after a NodeTimeout. Few attempts at distant nodes
	// fit into a NodeTimeout. A contender that gives up before the others yield leaves the lock to
	// nobody.
	maxTries = 8

	// maxLateTicks limits how often a TryLock waits once more because its process was late. In a
	// process with 64 computing goroutines for each processor, an answer is read after some seconds.
	maxLateTicks = 8
)

// tries is the state of a TryLock beside that of its attempts. A TryLock does not wait in the
// queues, and heeds no message, so it decides from refusals alone whether another attempt may help.
type tries struct {
	undecided       bool             // nobody is certain to have the lock
	contends        bool             // the last attempt met no owner of a whole member
	lastHolder      quorumlock.Owner // the contender that isUndecided met last
	sameHolderCount int              // consecutive attempts that met lastHolder
	ownRefused      bool             // refused, and only for ended holds of this client
	first           quorumlock.Owner // the waiter that firstWaiter met last
	sameFirstCount  int              // consecutive attempts that met first
	over            bool             // the last attempt only waits for answers to count: see countsOn
	lag             time.Duration    // how far lastTry and lastAgreement have moved: see isLate
	lateTicks       int              // that moved them
}

// triesAgain reports whether an undecided TryLock may make another attempt: any number within a
// NodeTimeout, and then up to maxTries in all until lastTry.
func (m *Machine) triesAgain(now Time) bool {
	spent := now.Since(m.began)
	return spent <= m.cfg.NodeTimeout || m.attempt < maxTries && spent < 2*m.cfg.NodeTimeout
}

// lastTry returns the time at which an attempt of a TryLock ends without the missing answers. It is
// needed since a node that answers other calls is not silent, however late its answer is.
// lastAgreement is the same for the agreement on the token and for the answers to the yields. So a
// TryLock ends within three NodeTimeouts, not counting the process's own delay (see isLate). Both
// are 0 for a Lock.
func (m *Machine) lastTry() time.Duration       { return m.sinceBegan(2) }
func (m *Machine) lastAgreement() time.Duration { return m.sinceBegan(3) }

func (m *Machine) sinceBegan(timeouts time.Duration) time.Duration {
	if !m.cfg.Tries {
		return 0
	}
	return m.began.Mono + timeouts*m.cfg.NodeTimeout + m.tries.lag
}

// Lag returns how much longer a TryLock has waited because its process was late.
func (m *Machine) Lag() time.Duration { return m.tries.lag }

// isLate reports whether a TryLock goes on waiting at a Tick that came late. The process was late,
// so answers may have arrived unread. The TryLock waits once more, for as long as the Tick was
// late, but no longer than a NodeTimeout. It does so maxLateTicks times at most.
func (m *Machine) isLate(now Time, due time.Duration) bool {
	late := now.Mono - due
	if !m.cfg.Tries || late <= m.cfg.NodeTimeout/16 || m.tries.lateTicks == maxLateTicks { // all timers are a little late
		return false
	}
	again := min(late, m.cfg.NodeTimeout)
	m.tries.lag += late + again
	m.tries.lateTicks++
	if m.giveUpAt != 0 {
		m.giveUpAt = max(m.giveUpAt, now.Mono+again)
	}
	return true
}

// WasCutOff reports whether an attempt that has failed lacked a quorum for nothing but connections
// that ended under it, such as behind a NAT that has forgotten them all. Another call, with new
// connections and another owner, may succeed at once.
func (m *Machine) WasCutOff() bool {
	votes, some := make([]Vote, len(m.Cells)), false
	for i := range m.Cells {
		c := &m.Cells[i]
		some = some || c.broken
		if votes[i] = No; c.broken || c.Won {
			votes[i] = Yes
		}
	}
	return some && m.cfg.Tree.Tally(votes) == VoteWon
}

// undecide decides whether another attempt may help a TryLock, before the answers are forgotten.
func (m *Machine) undecide() {
	if !m.cfg.Tries {
		return
	}
	var met quorumlock.Owner
	var whole bool
	m.tries.undecided, met, whole = m.isUndecided()
	// A quorum granted, but did not take the token.
	m.tries.undecided = m.tries.undecided || m.phase == Agreeing && m.reason != TooLate
	first := m.firstWaiter()
	if first != m.tries.first {
		m.tries.first, m.tries.sameFirstCount = first, 0
	}
	// A living waiter would have taken the lock, or left the queue.
	if m.tries.sameFirstCount++; first != "" && m.tries.sameFirstCount >= maxTries {
		m.tries.undecided = false
	}
	if met != m.tries.lastHolder {
		m.tries.sameHolderCount = 0
	}
	m.tries.lastHolder, m.tries.contends = met, !whole
	m.tries.sameHolderCount++
}

// firstWaiter returns the waiter that is first in the queue of a whole member that is free; "" if
// there is none. Of several, it returns that of the first cell.
func (m *Machine) firstWaiter() quorumlock.Owner {
	t := m.tallies()
	for _, cells := range m.contenders(true) {
		m.mark(cells...)
		whole := t.holds(isPartMarked)
		m.unmark(cells...)
		if whole {
			return m.Cells[cells[0]].Refusal.Holder
		}
	}
	return ""
}

// isUnclear reports whether a refused TryLock waits for more answers: the holder, or the existence
// of a quorum, is unknown.
func (m *Machine) isUnclear() bool {
	if !m.cfg.Tries {
		return false
	}
	if m.unanswered() == 0 {
		return false
	}
	why := m.refusal()
	if why == HeldOrNone || why != WrongUse && m.mayBeBoth() {
		return true
	}
	if !m.looksAgain() {
		return true
	}
	undecided, _, _ := m.isUndecided()
	return undecided
}

// isUndecided reports whether a refused TryLock may be a split vote: no single contender has a
// quorum. A hold of this client that has ended does not count: its release may be under way.
//
// An owner of a whole member, or of enough cells to block all others, may still be a contender that
// lacks cells of this call. Its refusal is final in two cases: this call has no grant and no answer
// is missing, or the same owner refuses again. Without a whole member that owner may be yielding,
// so it has to be met three times.
//
// isUndecided also returns the owner that was met, and whether anybody has a whole member. For the
// latter, silent cells count as cells of others if this call has no grant.
func (m *Machine) isUndecided() (is bool, met quorumlock.Owner, whole bool) {
	if m.isElsewhere() || m.isSplit() && m.attempt < maxSplits {
		return true, "", false
	}
	t := m.tallies()
	silent := !t.some(hasWon)
	whole = silent && t.holds(mayBeTheirs)
	for _, cells := range m.contenders(false) {
		if !slices.ContainsFunc(cells, func(i int32) bool { return !m.Cells[i].Refusal.Ended }) {
			continue
		}
		who := m.Cells[cells[0]].Refusal.holder()
		m.mark(cells...)
		wins, part, blocks, may := t.holds(isMarked), t.holds(isPartMarked), t.holds(isBlockMarked), t.holds(mayBeTheirs)
		m.unmark(cells...)
		whole = whole || part || silent && may
		switch {
		case wins:
			return false, who, true
		case who == "", !part && !blocks:
		case who == m.tries.lastHolder && (part || m.tries.sameHolderCount > 1):
			return false, who, whole
		default:
			met = who
		}
	}
	grants := int(t.total()[hasWon]) + m.unanswered() // certain and possible
	return t.some(hasRefused) && (grants > 0 || met == ""), met, whole
}

// contenders returns the cells that refused the attempt, grouped by the owner in the way: the cells
// that are not free, or, with free, those that are. The owner of a free cell is its first waiter.
func (m *Machine) contenders(free bool) (all [][]int32) {
	index := make(map[quorumlock.Owner]int)
	for i := range m.Cells {
		r := m.Cells[i].Refusal
		if r == nil || r.Free != free {
			continue
		}
		n, known := index[r.holder()]
		if !known {
			n = len(all)
			all = append(all, nil)
			index[r.holder()] = n
		}
		all[n] = append(all[n], int32(i))
	}
	return all
}
