package engine

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
)

func TestANodeIsUpAfterASecondWithoutAFailure(t *testing.T) {
	const s = time.Second
	var h Health
	if h.Answers() || h.Trip(7) != 7 {
		t.Error("a node that was never asked answers, or has a round trip")
	}
	for i, tt := range []struct {
		at            time.Duration
		fails         bool
		changes, down bool
	}{{1 * s, false, false, false}, {2 * s, true, true, true}, {3 * s, true, false, true}, {3*s + 1, false, false, true}, {4 * s, false, true, false}, {5 * s, true, true, true}} {
		changes := false
		if tt.fails {
			changes = h.Failed(tt.at)
		} else {
			changes = h.Answered(4, tt.at)
		}
		if changes != tt.changes || h.down != tt.down || h.Answers() == tt.fails || h.Trip(7) != 4 {
			t.Errorf("step %d: changes %v, %+v", i, changes, h)
		}
	}
}

// The shortest round trip counts for at least a minute.
func TestTheNearestMajorityOfTheNodes(t *testing.T) {
	node := func(trips ...time.Duration) *Health {
		h := new(Health)
		for i, took := range trips {
			h.Answered(took, time.Duration(i)*50*time.Second)
		}
		return h
	}
	quick := node(8, 8, 16, 16, 16)
	for _, tt := range []struct {
		nodes      []*Health
		trip, best time.Duration
	}{
		{[]*Health{node(8), nil, node(16)}, 16, 16},
		{[]*Health{node(8), nil, nil}, 0, 0},
		{[]*Health{node(32), node(16), node(8)}, 16, 16},
		{[]*Health{node(16, 8)}, 14, 8},
		{[]*Health{node(8, 16)}, 10, 8},
		{[]*Health{node(8, 16, 16)}, 11, 8}, // 8 is from the period before
		{[]*Health{quick}, 12, 16},
	} {
		if trip, best := Nearest(tt.nodes); trip != tt.trip || best != tt.best {
			t.Errorf("%d nodes: %v and %v, want %v and %v", len(tt.nodes), trip, best, tt.trip, tt.best)
		}
	}
}

func TestEndedCallsAreRememberedForAWhile(t *testing.T) {
	var e Ended
	for number := range uint64(maxEnded + 3) {
		e.Add(number)
	}
	if e.Has(2) || !e.Has(3) || !e.Has(maxEnded+2) || e.Has(maxEnded+3) {
		t.Error("want exactly the last maxEnded calls")
	}
	for number := range uint64(1000) {
		at := time.Duration(number)
		e.Keep(number, at+10, at)
		if !e.Keeps(number, at+9) || e.Keeps(number, at+10) || e.Keeps(number+1, 0) {
			t.Fatalf("call %d is not kept until exactly its time", number)
		}
	}
	if len(e.kept) > 100 {
		t.Errorf("%d calls are kept, but only 10 are still valid", len(e.kept))
	}
	for number := range uint64(1000) { // none of them expires
		e.Keep(number, time.Hour, 2000)
	}
	if e.sweepAt < 500 {
		t.Errorf("with 1000 live calls, the next sweep is at %d", e.sweepAt)
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

// A caller that shares a lock is admitted immediately.
func TestSharersAreAdmittedAtOnce(t *testing.T) {
	var q LocalQueue[int]
	q.Shared = true
	for i := range 2 * maxAdmitted {
		p := &Place[int]{Caller: i}
		if q.Push(p); q.Admit() != p || q.Admit() != nil {
			t.Fatalf("caller %d is not admitted", i)
		}
	}
}

func TestMessagesToWaiters(t *testing.T) {
	for text, want := range map[string]core.Event{
		"turn a:1 x y":   {Kind: core.Turn, Cell: 2},
		"next a:1 x y":   {Kind: core.Next, Cell: 2},
		"slot a:1 3 x y": {Kind: core.TurnForSlot, Cell: 2, Slot: 3},
		"slot a:1 z x y": {Kind: core.TurnForSlot, Cell: 2, Slot: -1},
	} {
		m, ok := ParseMessage(text)
		if e, known := m.Event(2, ""); !ok || !known || m.Waiter != "a:1" || m.Lock != "x y" || e != want {
			t.Errorf("%q: %+v, %+v", text, m, e)
		}
	}
	for _, text := range []string{"", "turns a:1 x", "handoff a:1 x"} {
		if m, ok := ParseMessage(text); ok {
			t.Errorf("%q: %+v", text, m)
		}
	}
}
