package quorum

import "sync"

// ballot gathers the votes of the cells on one question. It is safe for concurrent use.
type ballot struct {
	decided chan struct{} // closed when the result is no longer Pending

	mu    sync.Mutex
	tree  Tree
	votes []Vote // each is cast once; later ones count for won, not for the result
	res   Result
	whole bool // it is decided only when every member that must be won is decided, even if one is lost earlier
}

func newBallot(tree Tree, cells int) *ballot {
	return &ballot{tree: tree, votes: make([]Vote, cells), decided: make(chan struct{})}
}

// newPatientBallot returns a ballot that waits for every member if all members are needed.
func newPatientBallot(tree Tree, cells int) *ballot {
	b := newBallot(tree, cells)
	b.whole = true
	return b
}

// cast records the vote of a cell and reports whether it is the one that decided.
func (b *ballot) cast(cell int, v Vote) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.votes[cell] = v
	if b.res != Pending {
		return false
	}
	b.res = b.tree.Tally(b.votes)
	if b.res == Pending || b.whole && !b.tree.Settled(b.votes) {
		b.res = Pending
		return false
	}
	close(b.decided)
	return true
}

func (b *ballot) result() Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.res
}

// won returns how many members of the tree said yes.
func (b *ballot) won() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tree.Members) == 0 {
		if b.tree.Tally(b.votes) == Won {
			return 1
		}
		return 0
	}
	n, _ := b.tree.count(b.votes)
	return n
}
