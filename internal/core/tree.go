package core

import "slices"

// Vote is a cell's answer to one question.
type Vote uint8

const (
	Unanswered Vote = iota
	Yes
	No // refused, failed, or too late: all the same to a tally
)

// Result is the outcome of the votes so far.
type Result uint8

const (
	VotePending Result = iota // both outcomes are possible
	VoteWon                   // a quorum voted Yes
	VoteLost                  // a quorum of Yes is impossible
)

// Tree defines which votes win: those of a quorum of its members, which are cells or trees. Cells
// are numbered from 0, as they stand in the tree. A Tree is immutable and may be shared. The zero
// value is the single cell 0.
type Tree struct {
	root  group
	inner []group // all other groups
	up    []int32 // the group of each cell: an index in inner, or atRoot; nil: the root
	cells int32   // 0 in the zero value
}

// group is a set of members, each of which is a cell or a group.
type group struct {
	members int32
	least   [rules]int32 // by rule: for how many members a fact has to hold to hold of the group
	up      int32        // the group above: an index in inner, or atRoot
}

// atRoot stands for the root in place of an index in Tree.inner.
const atRoot = -1

// rule selects for how many members of a group a fact has to hold, so that it holds of the group.
type rule uint8

const (
	wins     rule = iota // a quorum of the members
	breaks               // members with which another owner may hold the lock, or a part of it
	promises             // enough to expect the rest: one, or all where the group needs all
	blocks               // members without which the others are no quorum
	rules    = iota
)

// newGroup returns a group that need members win, and that is gone once breaks of them are.
func newGroup(members, need, breaks int) group {
	g := group{members: int32(members), least: [rules]int32{int32(need), int32(breaks), 1, int32(members - need + 1)}, up: atRoot}
	if need == members {
		g.least[promises] = int32(members)
	}
	return g
}

// needsAll reports whether the group needs all of its members.
func (g *group) needsAll() bool { return g.least[wins] == g.members }

// Majority is a RedLock's tree: need of n cells. The lock is gone once need cells are, because
// another owner needs as many.
func Majority(need, n int) Tree { return Tree{root: newGroup(n, need, need), cells: int32(n)} }

// Every is a MultiLock's tree: all members. The lock is gone once one of them is.
func Every(members []Tree) Tree {
	t := Tree{root: newGroup(len(members), len(members), 1)}
	for _, m := range members {
		root, first := int32(atRoot), int32(len(t.inner)) // a single cell is a member of the root
		if m.cells > 0 {
			root = first + int32(len(m.inner))
		}
		for _, g := range m.inner {
			if g.up++; g.up == 0 {
				g.up = root
			} else {
				g.up += first - 1
			}
			t.inner = append(t.inner, g)
		}
		if m.cells > 0 {
			t.inner = append(t.inner, m.root)
		}
		for cell := range m.Cells() {
			up := m.groupOf(cell)
			if up == atRoot {
				up = root
			} else {
				up += first
			}
			t.up = append(t.up, up)
		}
	}
	t.cells = int32(len(t.up))
	return t
}

// Cells returns the number of cells in the tree.
func (t Tree) Cells() int { return max(int(t.cells), 1) }

// Need returns the number of members that form a quorum.
func (t Tree) Need() int { return max(int(t.root.least[wins]), 1) }

// NeedsEach reports whether a quorum needs every cell.
func (t Tree) NeedsEach() bool {
	return t.root.needsAll() && !slices.ContainsFunc(t.inner, func(g group) bool { return !g.needsAll() })
}

func (t Tree) Equal(u Tree) bool {
	return t.root == u.root && t.cells == u.cells && slices.Equal(t.inner, u.inner) && slices.Equal(t.up, u.up)
}

// Tally returns the result of votes, one for each cell.
func (t Tree) Tally(votes []Vote) Result {
	var count tally
	count.init(&t)
	for i, v := range votes {
		count.set(i, v.facts())
	}
	return count.result(saidYes, maySayYes)
}

// groupOf returns the group of a cell.
func (t *Tree) groupOf(cell int) int32 {
	if t.up == nil {
		return atRoot
	}
	return t.up[cell]
}
