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

// ofEach reports whether something is so for each RedLock and node of the lock, of which is gets
// the cells.
func ofEach[T any](s shape, cells []T, is func(part shape, cells []T) bool) bool {
	if s.members == nil {
		return is(s, cells[:s.cells])
	}
	for _, m := range s.members {
		if !ofEach(m, cells[:m.size()], is) {
			return false
		}
		cells = cells[m.size():]
	}
	return true
}

func count(has []bool) (n int) {
	for _, h := range has {
		if h {
			n++
		}
	}
	return n
}

// heldBy reports whether an owner of the true cells has the lock.
func (s shape) heldBy(has []bool) bool {
	return ofEach(s, has, func(part shape, has []bool) bool { return count(has) >= part.need })
}

// promisedBy reports whether each group that needs all of its members has them, and each other one
// has some.
func (s shape) promisedBy(has []bool) bool {
	return ofEach(s, has, func(part shape, has []bool) bool {
		n := count(has)
		return n == part.cells || n > 0 && part.need < part.cells
	})
}

// settled reports whether every member is decided, and every cell of those that need all has voted.
func (s shape) settled(votes []Vote) bool {
	return ofEach(s, votes, func(part shape, votes []Vote) bool {
		if part.need < part.cells {
			return dumbTally(part, votes) != VotePending
		}
		return !slices.Contains(votes, Unanswered)
	})
}

// partHeldBy reports whether an owner of the true cells has the lock, or a member of any depth.
func (s shape) partHeldBy(has []bool) bool {
	if s.heldBy(has) {
		return true
	}
	for _, m := range s.members {
		if m.partHeldBy(has[:m.size()]) {
			return true
		}
		has = has[m.size():]
	}
	return false
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
			if got := tree.Cells(); got != s.size() {
				t.Errorf("%d cells, want %d", got, s.size())
			}
			everyVote(s.size(), func(votes []Vote) {
				if got, want := tree.Tally(votes), dumbTally(s, votes); got != want {
					t.Errorf("Tally(%v) = %v, want %v", votes, got, want)
				}
			})
		})
	}
}

// By its rule, a fact of a lock follows from the facts of the members: see rule. The lock is broken
// exactly if somebody else could hold a part.
func TestAFactHoldsByItsRule(t *testing.T) {
	for _, s := range shapes() {
		tree := s.tree()
		for set := range 1 << s.size() {
			has, others := make([]bool, s.size()), make([]bool, s.size())
			for i := range has {
				has[i] = set>>i&1 == 1
				others[i] = !has[i]
			}
			for f, want := range map[fact]bool{hasWon: s.heldBy(has), isPromised: s.promisedBy(has), isBlockMarked: !s.heldBy(others), isGone: s.partHeldBy(has)} {
				if got := holds(tree, f, has); got != want {
					t.Errorf("%v: fact %d of %v: %v, want %v", s, f, has, got, want)
				}
			}
		}
	}
}

// After changes in any order, a tally equals a new one, and counts the open votes.
func TestATallyForgetsWhatHasChanged(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, s := range shapes() {
		tree := s.tree()
		var old tally
		old.init(&tree)
		for range 200 {
			cell := rng.IntN(s.size())
			old.set(cell, facts(rng.Uint32()&(1<<numFacts-1)))
			var fresh tally
			fresh.init(&tree)
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
			if old.root != fresh.root || !slices.Equal(old.inner, fresh.inner) {
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

// holds reports whether a fact holds of a lock if it holds of the given cells.
func holds(tree Tree, f fact, of []bool) bool {
	var t tally
	t.init(&tree)
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
