package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// latchRound asks cells of a latch one thing, and goes on when a quorum of all cells has answered: a slow node delays
// nobody.
type latchRound struct {
	latch   *Latch
	left    int              // cells yet to answer
	answers chan latchAnswer // has room for all: a late answer blocks nobody
	states  []cellState      // of the cells that count, those of a round before included
	errs    []*quorumlock.NodeError
}

type latchAnswer struct {
	cell  int
	reply wire.Reply
}

// cellState is what a cell has of a latch.
type cellState struct {
	cell int
	wire.LatchState
}

// newRound sends requests to cells, with the values of ctx. Call Begin first.
func (l *Latch) newRound(ctx context.Context, cells []int, mode wire.LatchMode, ids []string) *latchRound {
	r := &latchRound{latch: l, left: len(cells), answers: make(chan latchAnswer, len(cells))}
	sent, server := time.Now(), rand.Text()
	for _, i := range cells {
		c := l.cells[i]
		call := wire.Latch(c.Name, l.n, mode, l.set.Retention, server+"."+strconv.Itoa(i), ids...)
		l.client.send(ctx, c.Node, Foreground, sent.Add(l.set.NodeTimeout), []wire.Call{call}, func(replies []wire.Reply) {
			l.client.answered(c.Node, replies, time.Since(sent), &l.set)
			r.answers <- latchAnswer{i, replies[0]}
			l.client.End()
		})
	}
	return r
}

// run returns the states of a quorum of the cells, or the error that there is none. If demanded is not nil, only cells
// count that have what it demands. Every cell answers by the node timeout. run returns ctx's error when ctx is done first.
func (r *latchRound) run(ctx context.Context, demanded func(wire.LatchState) bool) ([]cellState, error) {
	for need := r.latch.need; len(r.states) < need; {
		if len(r.states)+r.left < need {
			return nil, r.failure()
		}
		select {
		case a := <-r.answers:
			r.left--
			r.take(a, demanded)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return r.states, nil
}

func (r *latchRound) take(a latchAnswer, demanded func(wire.LatchState) bool) {
	node := r.latch.cells[a.cell].Node
	s, err := a.reply.Latched(r.latch.n)
	for _, other := range r.states {
		if err == nil && s.Server != "" && s.Server == other.Server {
			err = fmt.Errorf("it is the same server as node %s: give each server once", r.latch.cells[other.cell].Node)
		}
	}
	if err == nil && demanded != nil && !demanded(s) {
		err = errors.New("it did not take what other nodes have of the latch")
	}
	if err != nil {
		r.errs = append(r.errs, nodeError(node, err))
		return
	}
	r.states = append(r.states, cellState{a.cell, s})
}

// failure is the reason of a missing quorum. If wrong uses of the name block the quorum, it is the error of the first such node.
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
