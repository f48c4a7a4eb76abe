package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// shape is a second, deliberately dumb description of a lock. It has the structure of the lock, and
// no counts of votes. Its methods are about complete answers only.
type shape struct {
	need    int // of cells, if it is a RedLock
	cells   int
	members []shape // if it is a MultiLock
}

func redLock(need, cells int) shape    { return shape{need: need, cells: cells} }
func nodeLock() shape                  { return shape{need: 1, cells: 1} }
func multiLock(members ...shape) shape { return shape{members: members} }

func (s shape) size() int {
	n := s.cells
	for _, m := range s.members {
		n += m.size()
	}
	return n
}

func (s shape) String() string {
	if s.members == nil {
		return fmt.Sprintf("%d of %d", s.need, s.cells)
	}
	names := make([]string, len(s.members))
	for i, m := range s.members {
		names[i] = m.String()
	}
	return "all(" + strings.Join(names, ", ") + ")"
}

func (s shape) tree() Tree {
	switch {
	case s.members != nil:
		trees := make([]Tree, len(s.members))
		for i, m := range s.members {
			trees[i] = m.tree()
		}
		return Every(trees)
	case s.cells == 1:
		return Tree{}
	}
	return Majority(s.need, s.cells)
}

// heldBy reports whether an owner of the true cells has the lock.
func (s shape) heldBy(has []bool) bool {
	if s.members == nil {
		n := 0
		for _, h := range has[:s.cells] {
			if h {
				n++
			}
		}
		return n >= s.need
	}
	for _, m := range s.members {
		if !m.heldBy(has[:m.size()]) {
			return false
		}
		has = has[m.size():]
	}
	return true
}

// parts returns the locks that another caller may take: the lock, its members, and theirs. The key
// is the index of the first cell.
func (s shape) parts(first int) map[int][]shape {
	all := map[int][]shape{first: {s}}
	for _, m := range s.members {
		for at, locks := range m.parts(first) {
			all[at] = append(all[at], locks...)
		}
		first += m.size()
	}
	return all
}

// shapes returns all kinds of locks that are small enough for every combination of votes.
func shapes() []shape {
	all := []shape{nodeLock()}
	for n := 2; n <= 6; n++ {
		for need := 1; need <= n; need++ {
			all = append(all, redLock(need, n))
		}
	}
	two, three := redLock(2, 2), redLock(2, 3)
	return append(all,
		multiLock(nodeLock()),
		multiLock(nodeLock(), nodeLock()),
		multiLock(nodeLock(), nodeLock(), nodeLock(), nodeLock()),
		multiLock(three, three),
		multiLock(nodeLock(), three, nodeLock()),
		multiLock(three, redLock(3, 4)),
		multiLock(redLock(3, 5), three),
		multiLock(multiLock(nodeLock(), three), nodeLock(), two),
		multiLock(three, multiLock(two, multiLock(nodeLock(), nodeLock()))),
		multiLock(multiLock(multiLock(three))),
	)
}

// everyVote calls f with all possible votes of n cells.
func everyVote(n int, f func(votes []Vote)) {
	votes := make([]Vote, n)
	var next func(i int)
	next = func(i int) {
		if i == n {
			f(votes)
			return
		}
		for _, votes[i] = range []Vote{Unanswered, Yes, No} {
			next(i + 1)
		}
	}
	next(0)
}

// dumbTally tries all completions of the votes: VoteWon if all of them win, VoteLost if none does.
func dumbTally(s shape, votes []Vote) Result {
	has := make([]bool, len(votes))
	wins, loses := false, false
	var next func(i int)
	next = func(i int) {
		if i == len(votes) {
			if s.heldBy(has) {
				wins = true
			} else {
				loses = true
			}
			return
		}
		for _, yes := range []bool{false, true} {
			if votes[i] == Unanswered || yes == (votes[i] == Yes) {
				has[i] = yes
				next(i + 1)
			}
		}
	}
	next(0)
	switch {
	case wins && loses:
		return VotePending
	case wins:
		return VoteWon
	}
	return VoteLost
}

func TestTallyDecidesExactlyWhenNoAnswerCanChangeIt(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.String(), func(t *testing.T) {
			tree := s.tree()
			everyVote(s.size(), func(votes []Vote) {
				if got, want := tree.Tally(votes), dumbTally(s, votes); got != want {
					t.Errorf("Tally(%v) = %v, want %v", votes, got, want)
				}
			})
		})
	}
}

func TestBrokenExactlyWhenSomebodyElseCouldHoldAPart(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.String(), func(t *testing.T) {
			tree, parts := s.tree(), s.parts(0)
			for set := range 1 << s.size() {
				gone := make([]bool, s.size())
				for i := range gone {
					gone[i] = set>>i&1 == 1
				}
				want := false
				for first, locks := range parts {
					for _, lock := range locks {
						want = want || lock.heldBy(gone[first:first+lock.size()])
					}
				}
				if got := holds(tree, isGone, gone); got != want {
					t.Errorf("isGone holds(%v) = %v, want %v", gone, got, want)
				}
			}
		})
	}
}

// If a quorum is a majority, the cells that are left and the others are never both enough.
func TestAMajorityThatIsHeldIsNotBroken(t *testing.T) {
	for _, s := range []shape{nodeLock(), redLock(2, 3), redLock(3, 4), redLock(3, 5), redLock(4, 5), multiLock(redLock(2, 3), nodeLock(), redLock(3, 4))} {
		t.Run(s.String(), func(t *testing.T) {
			tree := s.tree()
			everyVote(s.size(), func(votes []Vote) {
				gone := make([]bool, len(votes))
				for i, v := range votes {
					gone[i] = v == No
				}
				if tree.Tally(votes) == VoteWon && holds(tree, isGone, gone) {
					t.Errorf("%v is both won and broken", votes)
				}
			})
		})
	}
}

func TestCellsAreCountedAndNumberedAsTheyStand(t *testing.T) {
	for _, s := range shapes() {
		tree := s.tree()
		if got := tree.Cells(); got != s.size() {
			t.Errorf("%v: %d cells, want %d", s, got, s.size())
		}
	}
}

// By its rule, a fact of a lock follows from the facts of the members: see rule.
func TestAFactHoldsByItsRule(t *testing.T) {
	for _, s := range shapes() {
		tree := s.tree()
		for set := range 1 << s.size() {
			has, others := make([]bool, s.size()), make([]bool, s.size())
			for i := range has {
				has[i] = set>>i&1 == 1
				others[i] = !has[i]
			}
			for f, want := range map[fact]bool{hasWon: s.heldBy(has), isPromised: s.promisedBy(has), isBlockMarked: !s.heldBy(others)} {
				if got := holds(tree, f, has); got != want {
					t.Errorf("%v: fact %d of %v: %v, want %v", s, f, has, got, want)
				}
			}
		}
	}
}

// promisedBy reports whether each group that needs all of its members has them, and each other one.
func (s shape) promisedBy(has []bool) bool {
	if s.members == nil {
		n := 0
		for _, h := range has[:s.cells] {
			if h {
				n++
			}
		}
		return n == s.cells || n > 0 && s.need < s.cells
	}
	for _, m := range s.members {
		if !m.promisedBy(has[:m.size()]) {
			return false
		}
		has = has[m.size():]
	}
	return true
}

// After changes in any order, a tally equals a new one, and counts the open votes.
func TestATallyForgetsWhatHasChanged(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, s := range shapes() {
		tree := s.tree()
		var old tally
		old.init(tree)
		for range 200 {
			cell := rng.IntN(s.size())
			old.set(cell, facts(rng.Uint32()&(1<<numFacts-1)))
			var fresh tally
			fresh.init(tree)
			votes := make([]Vote, s.size())
			for i, f := range old.cells {
				fresh.set(i, f)
				switch {
				case f>>saidYes&1 == 1:
					votes[i] = Yes
				case f>>maySayYes&1 == 0:
					votes[i] = No
				}
			}
			if old.total != fresh.total || old.root != fresh.root || !slices.Equal(old.inner, fresh.inner) {
				t.Fatalf("%v: %+v, want %+v", s, old, fresh)
			}
			if cells := old.cells[cell]; cells>>saidYes&1 == 1 && cells>>maySayYes&1 == 0 {
				old.set(cell, cells|1<<maySayYes) // a cell that said yes may say yes
			} else if got, want := old.undecided == 0, s.settled(votes); got != want {
				t.Fatalf("%v: %v is settled: %v, want %v", s, votes, got, want)
			}
		}
	}
}

// settled reports whether every member is decided, and every cell of those that need all has voted.
func (s shape) settled(votes []Vote) bool {
	if s.members == nil && s.need < s.cells {
		return dumbTally(s, votes[:s.cells]) != VotePending
	}
	if s.members == nil {
		return !slices.Contains(votes[:s.cells], Unanswered)
	}
	for _, m := range s.members {
		if !m.settled(votes[:m.size()]) {
			return false
		}
		votes = votes[m.size():]
	}
	return true
}

// holds reports whether a fact holds of a lock if it holds of the given cells.
func holds(tree Tree, f fact, of []bool) bool {
	var t tally
	t.init(tree)
	for i, is := range of {
		t.set(i, facts(0).with(f, is))
	}
	return t.holds(f)
}

// A Tree may be a member of several others: Every must not renumber its members.
func TestEveryLeavesItsMembersAsTheyAre(t *testing.T) {
	three := Majority(2, 3)
	inner := Every([]Tree{three, three})
	Every([]Tree{three, inner, inner})
	if got := three.Tally([]Vote{Yes, Yes, Unanswered}); got != VoteWon {
		t.Errorf("the member alone: %v, want VoteWon", got)
	}
	if got := inner.Tally([]Vote{Yes, Yes, No, No, Yes, Yes}); got != VoteWon {
		t.Errorf("the inner tree alone: %v, want VoteWon", got)
	}
}
