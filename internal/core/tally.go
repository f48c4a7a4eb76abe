package core

import "math/bits"

// fact is a yes-or-no question about a cell. By its rule, the cells for which it holds decide
// whether it holds of a group, and of the lock: see ruleOf.
type fact uint8

// facts is the set of facts that hold of one cell.
type facts uint32

const (
	hasGranted    fact = iota // granted the same slot as most
	mayGrant                  // the same, or has not answered, or is spared
	hasInherited              // handed over the same slot as most
	comesNext                 // granted, handed over or called: see nextAttemptWins
	hasAnswered               // answered the attempt, or failed
	hasVoted                  // granted, handed over or refused (see ownRefused), and not failed
	mayVote                   // the same, or has neither answered nor failed, or is spared
	isHeard                   // hasVoted, or is spared
	isLock                    // its key is no other lock, as far as known
	isWanted                  // the next attempt should win it
	isPromised                // the same, by the rule promises
	hasWon                    // granted; may have been released since
	willExpire                // free, handed over, called, or refused until a known moment
	saidYes                   // confirmed the raise, the release or the renewal
	maySayYes                 // the same, or has not answered
	mayTakeToken              // the same, without cells that have not answered the attempt
	isTaken                   // refused, and hasVoted
	mayBeTaken                // the same, or has not answered
	isGone                    // had no key at the release or the renewal
	hasHanded                 // handed over; from here to isSummoned: for some, not for holds
	hasCalled                 // called the queued waiter
	isContended               // refused, handed over, or has another slot than most
	isElsewhere               // granted another slot than most, or refused with another one free
	hasRefused                // refused the attempt
	keepsOut                  // refused the attempt, with no other slot free
	isForeign                 // a copy of the call has the lock there
	isSummoned                // called the waiter, whatever has become of the cell
	mayAttach                 // may pass the hold to an Attach, now or later
	mayBeTheirs               // did not refuse, or is marked
	isMarked                  // in the set of a question: see mark
	isPartMarked              // the same, by the rule breaks
	isBlockMarked             // the same, by the rule blocks
	numFacts      = iota
)

// ruleOf is the rule of each fact. The default is wins.
var ruleOf = [numFacts]rule{isPromised: promises, isTaken: breaks, mayBeTaken: breaks, isGone: breaks, mayBeTheirs: breaks, isPartMarked: breaks, isBlockMarked: blocks}

// with returns f with g added, if g holds.
func (f facts) with(g fact, holds bool) facts {
	if holds {
		f |= 1 << g
	}
	return f
}

// facts returns the facts of a cell with this vote.
func (v Vote) facts() facts { return facts(0).with(saidYes, v == Yes).with(maySayYes, v != No) }

// counts has, for each fact, of how many cells or members it holds.
type counts [numFacts]int32

// tally counts, for each fact, the cells of a tree and the members of its groups. A changed cell
// changes only the counts on its way to the root: a change costs the same for any number of cells.
type tally struct {
	tree  *Tree
	cells []facts
	root  counts   // members of the root
	inner []counts // members of the other groups, and at the end the cells; nil without such groups
	// undecided counts open votes: those of the groups that can do without some of their cells, and
	// those of the cells of all other groups.
	undecided int
}

// init makes t the tally of cells without facts.
func (t *tally) init(tree *Tree) {
	if tree.cells == 0 {
		tree = &single
	}
	*t = tally{tree: tree, cells: make([]facts, tree.cells)}
	if tree.inner != nil {
		t.inner = make([]counts, len(tree.inner)+1)
	}
}

var single = Majority(1, 1)

// total returns the counts of the cells.
func (t *tally) total() *counts {
	if t.inner == nil {
		return &t.root
	}
	return &t.inner[len(t.inner)-1]
}

// set replaces the facts of a cell.
func (t *tally) set(cell int, now facts) {
	changes := t.cells[cell] ^ now
	if changes == 0 {
		return
	}
	t.undecided -= t.openVotes(cell)
	t.cells[cell] = now
	for ; changes != 0; changes &= changes - 1 {
		f := fact(bits.TrailingZeros32(uint32(changes)))
		by := int32(-1)
		if now>>f&1 == 1 {
			by = 1
		}
		if t.inner != nil {
			t.total()[f] += by
		}
		for up, flips := t.tree.groupOf(cell), true; flips; {
			g, n := t.group(up)
			held := n[f] >= g.least[ruleOf[f]]
			n[f] += by
			flips = up != atRoot && held != (n[f] >= g.least[ruleOf[f]])
			up = g.up
		}
	}
	t.undecided += t.openVotes(cell)
}

func (t *tally) group(i int32) (*group, *counts) {
	if i == atRoot {
		return &t.tree.root, &t.root
	}
	return &t.tree.inner[i], &t.inner[i]
}

// openVotes returns 1 if the vote of a cell's group is open. In a group that needs all of its
// members, it returns 1 if the vote of the cell is open.
func (t *tally) openVotes(cell int) int {
	g, n := t.group(t.tree.groupOf(cell))
	least := g.least[wins]
	if g.needsAll() {
		if f := t.cells[cell]; f>>saidYes&1 == 0 && f>>maySayYes&1 == 1 {
			return 1
		}
	} else if n[saidYes] < least && n[maySayYes] >= least {
		return 1
	}
	return 0
}

// holds reports whether a fact holds of the lock.
func (t *tally) holds(f fact) bool { return t.root[f] >= t.tree.root.least[ruleOf[f]] }

// holdsOfMember reports whether a fact holds of the smallest part with this cell that the lock, or
// a larger part of it, cannot do without.
func (t *tally) holdsOfMember(cell int, f fact) bool {
	holds := t.cells[cell]>>f&1 == 1
	for up := t.tree.groupOf(cell); ; {
		g, n := t.group(up)
		if g.needsAll() {
			return holds
		}
		holds = n[f] >= g.least[ruleOf[f]]
		if up == atRoot {
			return holds
		}
		up = g.up
	}
}

// some reports whether a fact holds of any cell.
func (t *tally) some(f fact) bool { return t.total()[f] > 0 }

// result returns the result of a vote. yes holds of the cells that voted Yes, maybe of those that
// did or still may.
func (t *tally) result(yes, maybe fact) Result {
	switch {
	case t.holds(yes):
		return VoteWon
	case !t.holds(maybe):
		return VoteLost
	}
	return VotePending
}

// tallies returns the tally of the cells as they are now. A step changes one cell. A step that
// changes others adds to Machine.changed, and the next call counts all cells again.
func (m *Machine) tallies() *tally {
	switch {
	case m.changed != m.counted:
		m.counted = m.changed
		for i := range m.Cells {
			m.tally.set(i, m.factsOf(i))
		}
	case m.current >= 0:
		m.tally.set(int(m.current), m.factsOf(int(m.current)))
	}
	return &m.tally
}

func (m *Machine) factsOf(i int) facts {
	c := &m.Cells[i]
	asked, has, queued, spared := c.Standing == Asked, c.Standing == Granted, c.Standing == Queued, c.Standing == Spared
	handedOver, refused := c.HandedOver(), c.Refusal != nil
	votes := !c.failed && (c.Won || handedOver || refused && !m.tries.ownRefused)
	opens := c.isOpen()
	return c.vote.facts().
		with(hasGranted, has && !c.apart).
		with(mayGrant, asked || spared || has && !c.apart).
		with(hasInherited, handedOver && !c.handed.apart).
		with(comesNext, handedOver || queued && c.called || has).
		with(hasAnswered, !asked).
		with(hasVoted, votes).
		with(mayVote, votes || spared || asked && !c.failed).
		with(isHeard, votes || spared).
		with(isLock, !c.WrongUse || c.Standing != Unknown).
		with(isWanted, opens).
		with(isPromised, opens).
		with(hasWon, c.Won).
		with(willExpire, opens || queued && c.expires > 0).
		with(mayTakeToken, c.vote == Yes || c.vote == Unanswered && m.tokenAt(i) > 0).
		with(isTaken, refused && votes).
		with(mayBeTaken, asked || refused && votes).
		with(isGone, c.gone).
		with(hasHanded, handedOver).
		with(hasCalled, queued && c.called).
		with(isContended, refused || handedOver || c.apart).
		with(isElsewhere, c.Won && c.apart || refused && c.Refusal.Elsewhere).
		with(hasRefused, refused).
		with(keepsOut, refused && !c.Refusal.Elsewhere).
		with(isForeign, c.Standing == Foreign).
		with(isSummoned, c.summoned).
		with(mayAttach, !c.gone).
		with(mayBeTheirs, !refused)
}

// mark puts cells in the set of the marked facts, until unmark. Nothing else changes in between.
func (m *Machine) mark(cells ...int32) {
	for _, i := range cells {
		m.tally.set(int(i), m.tally.cells[i]|1<<mayBeTheirs|1<<isMarked|1<<isPartMarked|1<<isBlockMarked)
	}
}

func (m *Machine) unmark(cells ...int32) {
	for _, i := range cells {
		m.tally.set(int(i), m.factsOf(int(i)))
	}
}
