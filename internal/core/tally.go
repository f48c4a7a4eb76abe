package core

import "math/bits"

// fact is a question about a cell to which the answer is yes or no. The cells of which it holds decide whether it holds of a group, and
// of the lock: see ruleOf.
type fact uint8

// facts are those that hold of one cell.
type facts uint32

const (
	hasGranted    fact = iota // it granted, and the same slot as most
	mayGrant                  // or has not answered
	hasInherited              // it handed over, and the same slot as most
	comesNext                 // the next attempt has it, most likely
	hasAnswered               // it answered the attempt, or failed to
	hasVoted                  // it answered, and neither failed nor refused for the sake of an ended hold of this client
	mayVote                   // or has not answered yet
	isLock                    // its key is a lock, as far as is known
	isWanted                  // the next attempt should have it
	isPromised                // the same, by the rule for promises
	hasWon                    // it granted, though it may have been given back
	willExpire                // it is free, handed over, or refuses until a known moment
	saidYes                   // it said yes to a raise, a release, or a renewal
	maySayYes                 // or has not answered
	mayTakeToken              // the same, but for cells that have not answered the attempt
	isTaken                   // it refused, and voted
	mayBeTaken                // or has not answered
	isGone                    // it did not have the key when it was released, or renewed
	hasHanded                 // the rest are only counted: it handed over
	hasCalled                 // it called the queued waiter
	isContended               // it refused, handed over, or has another slot than most
	isElsewhere               // it granted another slot than most, or than the attempt takes
	hasRefused                // it refused the attempt
	keepsOut                  // it refused the attempt, and has no other free slot
	isForeign                 // a copy of the call has the lock there
	isFree                    // the lock is free there
	mayAttach                 // an Attach may have it, now or later
	mayBeTheirs               // it did not refuse, or is marked
	isMarked                  // it is one of the cells that a question is about: see mark
	isPartMarked              // the same, by the rule for breaks
	isBlockMarked             // the same, by the rule for blocks
	numFacts      = iota
)

// ruleOf says for how many members of a group each fact has to hold.
var ruleOf = [numFacts]rule{isPromised: promises, isTaken: breaks, mayBeTaken: breaks, isGone: breaks, mayBeTheirs: breaks, isPartMarked: breaks, isBlockMarked: blocks}

// with returns f with another fact, if that holds.
func (f facts) with(g fact, holds bool) facts {
	if holds {
		f |= 1 << g
	}
	return f
}

// facts of a cell with that vote.
func (v Vote) facts() facts { return facts(0).with(saidYes, v == Yes).with(maySayYes, v != No) }

// counts are how often each fact holds.
type counts [numFacts]int32

// tally counts the cells of a tree for which facts hold, and the members of each group. When a cell changes, only the counts on its way to
// the root do. So an answer costs the same however many cells the lock has.
type tally struct {
	tree  Tree
	cells []facts
	total counts   // cells
	root  counts   // members of the root
	inner []counts // members of the other groups
	// undecided counts the groups whose vote is open, of those that can do without some of their cells, and the other cells that have
	// not voted.
	undecided int
}

// init makes t the tally of cells for which nothing holds.
func (t *tally) init(tree Tree) {
	if tree.cells == 0 {
		tree = Majority(1, 1)
	}
	*t = tally{tree: tree, cells: make([]facts, tree.cells)}
	if tree.inner != nil {
		t.inner = make([]counts, len(tree.inner))
	}
}

// set replaces the facts of a cell.
func (t *tally) set(cell int, now facts) {
	changes := t.cells[cell] ^ now
	if changes == 0 {
		return
	}
	t.undecided -= t.open(cell)
	t.cells[cell] = now
	for ; changes != 0; changes &= changes - 1 {
		f := fact(bits.TrailingZeros32(uint32(changes)))
		by := int32(-1)
		if now>>f&1 == 1 {
			by = 1
		}
		t.total[f] += by
		for up, flips := t.tree.groupOf(cell), true; flips; {
			g, n := t.group(up)
			held := n[f] >= g.least[ruleOf[f]]
			n[f] += by
			flips = up != atRoot && held != (n[f] >= g.least[ruleOf[f]])
			up = g.up
		}
	}
	t.undecided += t.open(cell)
}

func (t *tally) group(i int32) (*group, *counts) {
	if i == atRoot {
		return &t.tree.root, &t.root
	}
	return &t.tree.inner[i], &t.inner[i]
}

// open returns 1 if the vote of a cell's group is open, or, if the group needs all of its members, that of the cell.
func (t *tally) open(cell int) int {
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

// some reports whether a fact holds of a cell.
func (t *tally) some(f fact) bool { return t.total[f] > 0 }

// result is what the votes come to, given the cells that said yes, and those that did or still may.
func (t *tally) result(yes, maybe fact) Result {
	switch {
	case t.holds(yes):
		return VoteWon
	case !t.holds(maybe):
		return VoteLost
	}
	return VotePending
}

// tallies returns the tally of the machine's cells. A step changes one cell, or says that it changes others, too: see Machine.changed.
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
	asked, has, queued := c.State == Asked, c.State == Granted, c.State == Queued
	handedOver := c.Handed > 0
	votes := !c.failed && (c.Won || handedOver || c.Refused && !m.ownRefused)
	opens := isOpen(c)
	return c.vote.facts().
		with(hasGranted, has && !c.apart).
		with(mayGrant, asked || has && !c.apart).
		with(hasInherited, handedOver && !c.apart).
		with(comesNext, handedOver || queued && c.Called || has).
		with(hasAnswered, !asked).
		with(hasVoted, votes).
		with(mayVote, votes || asked && !c.failed).
		with(isLock, !c.NotALock || c.State != Unknown).
		with(isWanted, opens).
		with(isPromised, opens).
		with(hasWon, c.Won).
		with(willExpire, handedOver || c.State == Free || queued && c.expires > 0).
		with(mayTakeToken, c.vote == Yes || c.vote == Unanswered && m.tokenAt(i) > 0).
		with(isTaken, c.Refused && votes).
		with(mayBeTaken, asked || c.Refused && votes).
		with(isGone, c.gone).
		with(hasHanded, handedOver).
		with(hasCalled, queued && c.Called).
		with(isContended, c.Refused || handedOver || c.apart).
		with(isElsewhere, c.Won && c.apart || c.Refused && c.Refusal.Elsewhere).
		with(hasRefused, c.Refused).
		with(keepsOut, c.Refused && !c.Refusal.Elsewhere).
		with(isForeign, c.State == Foreign).
		with(isFree, c.State == Free).
		with(mayAttach, !c.gone).
		with(mayBeTheirs, !c.Refused)
}

// mark makes cells those that a question is about, until unmark. There are no other changes meanwhile.
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
