package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Latch is a set of ids that only grows, on a quorum of cells. It is open once it has N ids.
type Latch struct {
	Name      string
	Cells     []LatchCell
	N         int // number of ids that open it
	Need      int // the quorum
	Retention time.Duration
}

// LatchCell is a latch at one node.
type LatchCell struct {
	Name string
	Node fmt.Stringer
}

// Look is one look at a latch: it adds ids at all cells, and finds the number of ids at a quorum of
// the cells. If a quorum has the same ids, their number is the result. Otherwise a repair comes
// first. So every later look finds at least these ids, at any quorum.
//
// An add and a repair also restart the retention at a quorum. So a quorum keeps all ids for that
// long, instead of a different part at each cell. A look with [wire.ReadLatch] adds nothing, and
// restarts the retention only if it needs a repair.
//
// This is the algorithm of Attiya, Bar-Noy and Dolev for an atomic register on servers that may
// fail ("Sharing memory robustly in message-passing systems", 1995), with the union of two sets in
// place of the later of two values.
//
// A look is a sequence of rounds. In each, send the Request of every cell, and give the replies to
// Answer until the round is over. Then Next begins the next round, if there is one.
type Look struct {
	latch  *Latch
	mode   wire.LatchMode
	ids    []string
	before int
	server string

	step   lookStep
	left   int                     // cells yet to answer in this round
	states []cellState             // valid answers of this round, each from a different server
	errs   []*quorumlock.NodeError // of this round, in the order of the replies
	size   int                     // see End; valid once the look has succeeded
	found  int                     // see Found
	err    error

	// Of a repair.
	tail  int      // number of last ids to read from each cell
	most  int      // largest number of ids at a cell that answered the read
	cuts  []int    // by cell: the number of its ids at the read
	union []string // of the ids that were read, and the look's own; sorted
	read  []int    // cells that answered the read
	whole int      // failed attempts that had read all ids
}

// cellState is the state of a latch at a cell.
type cellState struct {
	cell int
	wire.LatchState
}

// lookStep is the kind of a look's round.
type lookStep uint8

const (
	adding  lookStep = iota
	opening          // opens the latch at a quorum: some cells have it open, or the union has N ids
	reading          // reads the last ids of each cell
	writing          // adds their union everywhere
)

// NewLook returns a look that adds ids, which must be sorted and distinct. before is the largest
// Found of earlier looks. server must be unique to the look. A cell that creates the latch stores
// server and the cell's index with it, so two cells that return the same name are on one server.
func NewLook(l *Latch, mode wire.LatchMode, ids []string, before int, server string) *Look {
	if mode == wire.MakeLatch && before > 0 {
		mode = wire.KeepLatch
	}
	k := &Look{latch: l, mode: mode, ids: ids, before: before, server: server}
	k.begin(adding)
	return k
}

// Request returns the call of this round to a cell.
func (k *Look) Request(cell int) wire.Call {
	l, server := k.latch, k.server+"."+strconv.Itoa(cell)
	switch k.step {
	case adding:
		return wire.Latch(l.Cells[cell].Name, l.N, k.mode, l.Retention, server, k.ids...)
	case opening:
		return wire.Latch(l.Cells[cell].Name, l.N, wire.OpenLatch, l.Retention, server)
	case reading:
		return wire.LatchTail(l.Cells[cell].Name, l.N, k.tail)
	default:
		return wire.LatchRest(l.Cells[cell].Name, l.N, l.Retention, server, k.cuts[cell], k.union)
	}
}

// Answer records a cell's reply to its Request, and reports whether the round is over. A quorum of
// answers suffices, so a slow node delays no caller.
func (k *Look) Answer(cell int, reply wire.Reply) (over bool) {
	k.left--
	s, err := reply.Latched(k.latch.N)
	for _, other := range k.states {
		if err == nil && s.Server != "" && s.Server == other.Server {
			err = fmt.Errorf("it is the same server as node %s: give each server once", k.latch.Cells[other.cell].Node)
		}
	}
	if err != nil {
		k.errs = append(k.errs, NodeError(k.latch.Cells[cell].Node, err))
	} else {
		k.states = append(k.states, cellState{cell, s})
	}
	return k.enough() || k.left == 0 || len(k.states)+k.left < k.latch.Need
}

// Next ends a round and begins the next one. It returns false at the end of the look.
func (k *Look) Next() (again bool) {
	if k.step != writing && !k.quorum() {
		return k.fail()
	}
	switch {
	case k.step == opening, k.opened() >= k.latch.Need:
		return k.count(k.latch.N)
	case k.opened() > 0:
		return k.begin(opening)
	}
	switch k.step {
	case adding:
		return k.added()
	case reading:
		return k.tailsRead()
	}
	return k.written()
}

// End returns the number of ids at a quorum, N if the latch is open. The error is
// [quorumlock.ErrLatchForgotten] if a quorum had more ids before. Without a quorum, it is a
// [quorumlock.QuorumError], or the error of the first node with a wrong use of the name, if such
// nodes prevent a quorum.
func (k *Look) End() (size int, err error) { return k.size, k.err }

// Found returns 1 + the number of ids that a quorum is known to have had; 0 if perhaps no quorum
// ever had the latch.
func (k *Look) Found() int { return k.found }

func (k *Look) begin(step lookStep) (again bool) {
	k.step, k.left, k.states, k.errs = step, len(k.latch.Cells), nil, nil
	return true
}

// count ends the look with the number of ids at a quorum.
func (k *Look) count(size int) (again bool) {
	if size+1 < k.before {
		return k.forgotten(size)
	}
	k.size = min(size, k.latch.N)
	k.found = k.size + 1
	return false
}

func (k *Look) forgotten(now int) (again bool) {
	k.err = fmt.Errorf("%w: the latch %q had %d ids, and a quorum has %d", quorumlock.ErrLatchForgotten, k.latch.Name, min(k.before-1, k.latch.N), now)
	return false
}

func (k *Look) fail() (again bool) {
	k.err = &quorumlock.QuorumError{Granted: len(k.states), Needed: k.latch.Need, Nodes: k.errs}
	wrong := slices.DeleteFunc(slices.Clone(k.errs), func(n *quorumlock.NodeError) bool { return !wire.IsWrongUse(n) })
	if len(wrong) > len(k.latch.Cells)-k.latch.Need {
		k.err = wrong[0]
	}
	return false
}

// NodeError returns err as an error of a node, or unchanged if it is one already.
func NodeError(node fmt.Stringer, err error) *quorumlock.NodeError {
	if e, ok := errors.AsType[*quorumlock.NodeError](err); ok {
		return e
	}
	return &quorumlock.NodeError{Node: node.String(), Err: err}
}

func (k *Look) added() (again bool) {
	there := slices.ContainsFunc(k.states, func(s cellState) bool { return s.There })
	if k.before > 0 && !there {
		return k.forgotten(0)
	}
	size, ok := k.agreed(k.mode == wire.ReadLatch)
	switch {
	case ok && k.mode == wire.ReadLatch && size == 0 && k.before == 0:
		return false // nothing was created, and perhaps no quorum has the latch
	case ok:
		return k.count(size)
	}
	// Healthy cells differ only in the ids of calls under way.
	k.tail = min(max(1, k.latch.N/8), 64)
	return k.begin(reading)
}

// tailsRead ends the reading round of a repair. A repair makes a quorum of the cells agree on a set
// of ids that includes the look's own.
//
// A repair reads the last ids of each cell, and adds their union at all cells. Each cell answers
// with the count and the digest of its rest: its ids at the time of the read, minus the union. If
// the rest is the same at a quorum, each cell of that quorum has every id that any of them had at
// the read. Ids that other calls add meanwhile belong to no rest, so they cannot delay the repair.
// If the rests differ, the next attempt reads more ids. The last attempt reads all ids, so every
// rest is empty.
func (k *Look) tailsRead() (again bool) {
	k.most, k.union, k.read = 0, slices.Clone(k.ids), nil
	k.cuts = make([]int, len(k.latch.Cells))
	for i := range k.cuts {
		k.cuts[i] = math.MaxInt32 // a cell without a known tail compares all of its ids
	}
	for _, s := range k.states {
		k.most = max(k.most, s.Count)
		k.union = append(k.union, s.IDs...)
		k.cuts[s.cell] = s.Count
		k.read = append(k.read, s.cell)
	}
	slices.Sort(k.union)
	k.union = slices.Compact(k.union)
	switch {
	case len(k.union) >= k.latch.N:
		return k.begin(opening)
	case max(k.most, len(k.union))+1 >= k.before:
		return k.begin(writing)
	case k.tail >= k.most: // a latch that has lost ids gets no new ones
		return k.forgotten(len(k.union))
	}
	k.tail *= 8
	return k.begin(reading)
}

func (k *Look) written() (again bool) {
	if rest, ok := k.agreed(false); ok {
		return k.count(rest + len(k.union))
	}
	if k.tail >= k.most { // a cell failed, and another has ids that no round has read
		k.whole++
	}
	if !k.quorum() || k.whole == 3 {
		return k.fail()
	}
	k.tail *= 8
	return k.begin(reading)
}

// enough reports whether further answers would change nothing.
func (k *Look) enough() bool {
	if k.step != writing {
		return k.quorum()
	}
	_, ok := k.agreed(false)
	return ok || k.opened() > 0 || !slices.ContainsFunc(k.read, func(cell int) bool { // one that has yet to answer
		return !slices.ContainsFunc(k.states, func(s cellState) bool { return s.cell == cell })
	})
}

// quorum reports whether a quorum of the cells has answered.
func (k *Look) quorum() bool { return len(k.states) >= k.latch.Need }

// opened returns the number of cells at which the latch is open.
func (k *Look) opened() (n int) {
	for _, s := range k.states {
		if s.Open {
			n++
		}
	}
	return n
}

// agreed returns the number of ids at a quorum of cells that have the same ids; ok is false if
// there is no such quorum. Cells without the latch count only if absent is true.
func (k *Look) agreed(absent bool) (size int, ok bool) {
	for _, a := range k.states {
		same := 0
		for _, b := range k.states {
			if (b.There || absent) && !b.Open && b.Count == a.Count && b.Digest == a.Digest {
				same++
			}
		}
		if same >= k.latch.Need {
			return a.Count, true
		}
	}
	return 0, false
}
