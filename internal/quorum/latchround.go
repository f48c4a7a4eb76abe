package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// latchRound is one request to every cell of a latch. A quorum of answers suffices, so a slow node
// delays no caller.
type latchRound struct {
	latch   *Latch
	left    int              // cells yet to answer
	answers chan latchAnswer // has room for all cells: a late answer blocks nothing
	states  []cellState      // valid answers, each of another server
	errs    []*quorumlock.NodeError
}

type latchAnswer struct {
	cell  int
	reply wire.Reply
}

// cellState is the state of a latch at a cell.
type cellState struct {
	cell int
	wire.LatchState
}

// newRound sends a request to each cell, with the values of ctx. Call Begin first. A cell that
// makes the latch stores the name server with it.
func (l *Latch) newRound(ctx context.Context, request func(i int, c Cell, server string) wire.Call) *latchRound {
	r := &latchRound{latch: l, left: len(l.cells), answers: make(chan latchAnswer, len(l.cells))}
	sent, server := time.Now(), rand.Text()
	for i, c := range l.cells {
		call := request(i, c, server+"."+strconv.Itoa(i))
		l.client.send(ctx, c.Node, Foreground, sent.Add(l.set.NodeTimeout), []wire.Call{call}, func(replies []wire.Reply) {
			l.client.answered(c.Node, replies, time.Since(sent), &l.set)
			r.answers <- latchAnswer{i, replies[0]}
			l.client.End()
		})
	}
	return r
}

// run collects answers until enough returns true. It returns an error if there is no quorum, or
// ctx's error if ctx is done first. Every cell answers by the node timeout.
func (r *latchRound) run(ctx context.Context, enough func() bool) error {
	for !enough() {
		if r.left == 0 || len(r.states)+r.left < r.latch.need {
			return r.failure()
		}
		select {
		case a := <-r.answers:
			r.left--
			r.add(a)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (r *latchRound) add(a latchAnswer) {
	node := r.latch.cells[a.cell].Node
	s, err := a.reply.Latched(r.latch.n)
	for _, other := range r.states {
		if err == nil && s.Server != "" && s.Server == other.Server {
			err = fmt.Errorf("it is the same server as node %s: give each server once", r.latch.cells[other.cell].Node)
		}
	}
	if err != nil {
		r.errs = append(r.errs, nodeError(node, err))
		return
	}
	r.states = append(r.states, cellState{a.cell, s})
}

// quorum reports whether a quorum of the cells has answered.
func (r *latchRound) quorum() bool { return len(r.states) >= r.latch.need }

// opened returns the number of cells at which the latch is open.
func (r *latchRound) opened() (n int) {
	for _, s := range r.states {
		if s.Open {
			n++
		}
	}
	return n
}

// there reports whether a cell has the latch.
func (r *latchRound) there() bool {
	return slices.ContainsFunc(r.states, func(s cellState) bool { return s.There })
}

// agreed returns the number of ids at a quorum of cells that have the same ids; ok is false if
// there is no such quorum. Cells without the latch count only if absent is true.
func (r *latchRound) agreed(absent bool) (size int, ok bool) {
	for _, a := range r.states {
		same := 0
		for _, b := range r.states {
			if (b.There || absent) && !b.Open && b.Count == a.Count && b.Digest == a.Digest {
				same++
			}
		}
		if same >= r.latch.need {
			return a.Count, true
		}
	}
	return 0, false
}

// answered reports whether all cells that answered an earlier round have answered this one.
func (r *latchRound) answered(earlier []cellState) bool {
	for _, e := range earlier {
		if !slices.ContainsFunc(r.states, func(s cellState) bool { return s.cell == e.cell }) {
			return false
		}
	}
	return true
}

// failure returns the reason of a missing quorum. If wrong uses of the name prevent a quorum, it is
// the error of the first such node.
func (r *latchRound) failure() error {
	var refusals []*quorumlock.NodeError
	for _, n := range r.errs {
		if isWrongUse(n) {
			refusals = append(refusals, n)
		}
	}
	if len(refusals) > len(r.latch.cells)-r.latch.need {
		return refusals[0]
	}
	return &quorumlock.QuorumError{Granted: len(r.states), Needed: r.latch.need, Nodes: r.errs}
}

// isWrongUse reports whether the name belongs to another kind, or to a latch with another n.
func isWrongUse(err error) bool {
	return errors.Is(err, quorumlock.ErrWrongKind) || errors.Is(err, quorumlock.ErrLatchMismatch)
}
