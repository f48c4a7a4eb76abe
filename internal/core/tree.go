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
	root  group
	inner []group // the other groups
	up    []int32 // the group of each cell, in inner, or atRoot; nil if all cells are members of the root
	cells int32   // 0 in the zero value
}

// group is a set of members, each of which is a cell or a group.
type group struct {
	members int32
	least   [rules]int32 // members for which a fact holds, so that it holds of the group: by the rule of the fact
	up      int32        // the group that this one is a member of, in inner, or atRoot
}

// atRoot stands for the root in the place of an index in Tree.inner.
const atRoot = -1

// rule says for how many members of a group a fact has to hold, so that it holds of the group.
type rule uint8

const (
	wins     rule = iota // members that win the group
	breaks               // members with which somebody else could hold the lock, or a part of it
	promises             // members that are likely to be followed by enough others: a group that can do without some of its members needs one
	blocks               // members without which no others win
	rules    = iota
)

// newGroup returns a group of which need members win. Without breaks of its members it is gone.
func newGroup(members, need, breaks int) group {
	g := group{members: int32(members), least: [rules]int32{int32(need), int32(breaks), 1, int32(members - need + 1)}, up: atRoot}
	if need == members {
		g.least[promises] = int32(members)
	}
	return g
}

// needsAll reports whether no member can be missing.
func (g *group) needsAll() bool { return g.least[wins] == g.members }

// Majority is a RedLock's tree: need of n cells. Others can have the lock only if they can have need
// of its cells, so that many must be gone before it is.
func Majority(need, n int) Tree { return Tree{root: newGroup(n, need, need), cells: int32(n)} }

// Every is a MultiLock's tree: all of the members. It is gone when one of them is.
func Every(members []Tree) Tree {
	t := Tree{root: newGroup(len(members), len(members), 1)}
	for _, m := range members {
		root, first := int32(atRoot), int32(len(t.inner)) // a single cell becomes a member of the root
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

// Need returns how many members must be won.
func (t Tree) Need() int { return max(int(t.root.least[wins]), 1) }

// NeedsEach reports whether a quorum needs every cell.
func (t Tree) NeedsEach() bool {
	return t.root.needsAll() && !slices.ContainsFunc(t.inner, func(g group) bool { return !g.needsAll() })
}

func (t Tree) Equal(u Tree) bool {
	return t.root == u.root && t.cells == u.cells && slices.Equal(t.inner, u.inner) && slices.Equal(t.up, u.up)
}

// Tally counts votes, one for each cell.
func (t Tree) Tally(votes []Vote) Result {
	var count tally
	count.init(t)
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
