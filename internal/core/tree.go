package core

import "slices"

// Vote is what one cell has said to a question.
type Vote uint8

const (
	Unanswered Vote = iota
	Yes
	No // refused, failed, or too late: it makes no difference to a tally
)

// Result is what the votes so far come to.
type Result uint8

const (
	VotePending Result = iota // both outcomes are still possible
	VoteWon                   // enough said yes, whatever the others say
	VoteLost                  // enough cannot say yes any more
)

// Tree says which votes win: the votes of a quorum of the members, each of which is a cell or a tree
// of its own. Cells are numbered from 0 in the order in which they stand in the tree. A Tree is
// immutable, so it may be shared; the zero value is the single cell 0.
type Tree struct {
	Need    int // members that must be won, from 1 to all
	Breaks  int // members that must be broken to break the whole
	Members []Tree
	cell    int // if there are no members
}

// Majority is a RedLock's tree: need of n cells. Others can have the lock only if they can have need
// of its cells, so that many must be gone before it is.
func Majority(need, n int) Tree {
	t := Tree{Need: need, Breaks: need, Members: make([]Tree, n)}
	for i := range t.Members {
		t.Members[i].cell = i
	}
	return t
}

// Every is a MultiLock's tree: all of the members. It is gone when one of them is.
func Every(members []Tree) Tree {
	t := Tree{Need: len(members), Breaks: 1, Members: make([]Tree, len(members))}
	next := 0
	for i, m := range members {
		t.Members[i] = m.shifted(next)
		next += m.Cells()
	}
	return t
}

// Cells returns the number of cells in the tree.
func (t Tree) Cells() int {
	if len(t.Members) == 0 {
		return 1
	}
	n := 0
	for _, m := range t.Members {
		n += m.Cells()
	}
	return n
}

// Tally counts the votes, one for each cell.
func (t Tree) Tally(votes []Vote) Result {
	if len(t.Members) == 0 {
		return Result(votes[t.cell]) // Unanswered, Yes, No are VotePending, VoteWon, VoteLost
	}
	won, lost := t.count(votes)
	switch {
	case won >= t.Need:
		return VoteWon
	case lost > len(t.Members)-t.Need:
		return VoteLost
	}
	return VotePending
}

// Settled reports whether the votes decide the result and, where all members are needed, that of every member.
func (t Tree) Settled(votes []Vote) bool {
	if t.Need == len(t.Members) {
		for _, m := range t.Members {
			if !m.Settled(votes) {
				return false
			}
		}
	}
	return t.Tally(votes) != VotePending
}

// count returns how many members are won and lost.
func (t Tree) count(votes []Vote) (won, lost int) {
	for _, m := range t.Members {
		switch m.Tally(votes) {
		case VoteWon:
			won++
		case VoteLost:
			lost++
		}
	}
	return won, lost
}

// Promising reports whether a quorum is likely to follow when some of its votes are there: of a group
// that can do without some of its members, one vote promises the others; of a group that cannot, every member must
// promise.
func (t Tree) Promising(votes []Vote) bool {
	if len(t.Members) == 0 {
		return votes[t.cell] == Yes
	}
	promising := 0
	for _, m := range t.Members {
		if m.Promising(votes) {
			promising++
		}
	}
	return promising == len(t.Members) || promising > 0 && t.Need < len(t.Members)
}

// Broken reports whether somebody else could hold the lock, or a part of it, when the cells that are
// gone no longer have its key: then it must count as lost.
func (t Tree) Broken(gone []bool) bool {
	if len(t.Members) == 0 {
		return gone[t.cell]
	}
	broken := 0
	for _, m := range t.Members {
		if m.Broken(gone) {
			broken++
		}
	}
	return broken >= t.Breaks
}

func (t Tree) Equal(u Tree) bool {
	return t.Need == u.Need && t.Breaks == u.Breaks && t.cell == u.cell && slices.EqualFunc(t.Members, u.Members, Tree.Equal)
}

func (t Tree) shifted(by int) Tree {
	if len(t.Members) == 0 {
		t.cell += by
		return t
	}
	members := make([]Tree, len(t.Members))
	for i, m := range t.Members {
		members[i] = m.shifted(by)
	}
	t.Members = members
	return t
}
