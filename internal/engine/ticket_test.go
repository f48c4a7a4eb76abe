package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A cell that grants queues the waiter at the Yield. The waiter may be first there alone, like at a
// cell that replaces its unsure ticket, and would keep out the first of the other cells. "n", "f":
// a refusal with a clock near the ticket, and far from it; "N", "F": to a second attempt; "l": a
// lost one; "y", "x": the answer to a Yield, and a lost one.
func TestCellsThatReplaceATicketCallTheWaiter(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	if _, ok := new(wire.Reply).Clock(); ok {
		t.Fatal("an empty reply has a clock")
	}
	clock := func(ahead time.Duration) wire.Reply {
		return wire.Reply{Value: []any{int64(0), int64(1), int64(0), "o", at.Add(ahead).UnixMilli()}}
	}
	near, far, lost := clock(0), clock(time.Hour), wire.Reply{Err: errors.New("lost")}
	acquire, second := core.Call{Do: core.Acquire, Attempt: 1}, core.Call{Do: core.Acquire, Attempt: 2}
	yield := core.Call{Do: core.Yield, Attempt: 1}
	type step struct {
		call  core.Call
		reply wire.Reply
	}
	steps := map[rune]step{'n': {acquire, near}, 'f': {acquire, far}, 'l': {acquire, lost}, 'N': {second, near},
		'F': {second, far}, 'y': {yield, wire.Reply{}}, 'x': {yield, lost}}
	for _, tt := range []struct {
		cells int
		steps string
		last  Verdict
	}{
		{3, "nn", Verdict{}},
		{3, "nnn", Verdict{Settled: true}},
		{3, "fff", Verdict{Called: true}},
		{3, "nf", Verdict{Called: true}},
		{3, "nnf", Verdict{Called: true, CalledAtAll: true}},
		{3, "fnn", Verdict{CalledAtAll: true}},
		{3, "nnl", Verdict{}},
		{3, "NNF", Verdict{Called: true, CalledAtAll: true}},
		{3, "y", Verdict{Called: true}},
		{3, "x", Verdict{}},
		{4, "nffy", Verdict{Called: true, CalledAtAll: true}},
		{4, "ynfn", Verdict{CalledAtAll: true}},
		{4, "nnny", Verdict{Called: true, CalledAtAll: true}},
		{4, "yyyy", Verdict{Called: true}},
		{4, "nfy", Verdict{Called: true}},
		{4, "nffx", Verdict{}},
		{4, "ffNy", Verdict{Called: true}},
	} {
		var a Acceptance
		var v Verdict
		for _, s := range tt.steps {
			step := steps[s]
			v = a.Judge(&step.call, at.UnixMicro(), &step.reply, tt.cells)
		}
		if v != tt.last {
			t.Errorf("%d cells, %s: %+v, want %+v", tt.cells, tt.steps, v, tt.last)
		}
	}
}

func TestTicketsBesideOthers(t *testing.T) {
	const began = 1000
	before, after := int64(2000), int64(3000)
	known := func(clocks int, ms time.Duration) Known {
		return Known{Clocks: clocks, Nodes: 3, Correction: ms * time.Millisecond}
	}
	for i, tt := range []struct {
		first, own, last int64 // the tickets that the nodes have, 0 if none; without the first, no caller is before
		shared           bool
		attempt          int32
		known            Known
		ticket           int64
		unsure           bool
	}{
		{0, 0, 0, false, 1, known(0, 0), began, true},
		{0, 0, 0, false, 1, known(1, 5), began, true},
		{0, 0, 0, false, 2, known(1, 5), began + 5000, false},
		{before, 0, 0, false, 1, known(1, 0), before + 1, false},
		{0, 0, after, false, 2, known(2, 5), after - 1, false},
		{0, 0, after, true, 2, known(2, 5), began + 5000, false},
		{before, 2500, after, false, 2, known(0, 0), 2500, false},
		{before, 2500, after, false, 2, known(2, 5), 2500, false},
		{before, 2500, after, false, 2, known(2, 0), before + 1, false},
	} {
		var q LocalQueue[int]
		q.Shared = tt.shared
		places := []*Place[int]{{}, {}, {}}
		for j, ticket := range []int64{tt.first, tt.own, tt.last} {
			q.Push(places[j])
			places[j].admitted = true
			if ticket != 0 {
				places[j].Settle(ticket)
			}
		}
		own := places[1]
		if tt.first == 0 {
			places[0].Leave()
		}
		if ticket, unsure := TicketOf(own, began, tt.attempt, tt.known); ticket != tt.ticket || unsure != tt.unsure {
			t.Errorf("%d: %d, unsure %v, want %d and %v", i, ticket, unsure, tt.ticket, tt.unsure)
		}
	}
}
