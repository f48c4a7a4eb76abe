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

// The pending releases of a node are limited, however long the node is away.
func TestPendingReleasesAreLimited(t *testing.T) {
	var r PendingReleases[int]
	for range 3 {
		for i := range maxPending {
			r.Add(i, false, false, 0)
		}
		due := r.Due(0)
		r.Done(due, make([]Outcome, len(due)), 0)
		if n := r.Unconfirmed(); n > maxPending {
			t.Errorf("%d releases are pending, want %d at most", n, maxPending)
		}
	}
}

func TestRenewalsWaitForOthersIfTimeIsLeft(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ttl, left time.Duration
		urgent    bool
		wait      time.Duration // 0: sent at once
	}{
		{30 * time.Second, 20 * time.Second, false, 20 * time.Millisecond},
		{5 * time.Second, 3 * time.Second, false, 5 * time.Millisecond},
		{5 * time.Second, 300 * time.Millisecond, false, 3 * time.Millisecond},
		{5 * time.Second, 4 * time.Millisecond, false, 0}, // just attached, at the end of the hold's time
		{5 * time.Second, -time.Second, false, 0},
		{500 * time.Millisecond, 300 * time.Millisecond, false, 0},
		{30 * time.Second, 20 * time.Second, true, 0},
	} {
		var rs Renewals[string, int]
		atOnce := rs.Add("n1", 1, tt.ttl, tt.left, tt.urgent, time.Second)
		if atOnce != (tt.wait == 0) {
			t.Errorf("a renewal with %v of %v left, urgent %v: at once %v", tt.left, tt.ttl, tt.urgent, atOnce)
		}
		if at, set := rs.Schedule(time.Second); !atOnce && (!set || at != time.Second+tt.wait) {
			t.Errorf("a renewal with %v of %v left waits until %v, want %v", tt.left, tt.ttl, at, time.Second+tt.wait)
		}
	}
}

// Attempts in one microsecond must not share a token if the nodes forget their counters in between.
// A clock that was ahead and is set back counts again.
func TestAttemptsInOneMicrosecondHaveDifferentHints(t *testing.T) {
	const wall = int64(1e15)
	var h Hints
	seen := make(map[uint64]bool)
	for range 3 {
		hint := h.Next(wall, 0)
		if seen[hint] {
			t.Errorf("the hint %d comes twice", hint)
		}
		seen[hint] = true
	}
	token := h.Next(wall, 0)
	h.Saw(token, 0)
	if hint := h.Next(wall, 0); seen[hint] || hint <= token {
		t.Errorf("the hint %d is not above the token seen, %d", hint, token)
	}
	h = Hints{}
	h.Next(wall, 0)
	if back := wall - time.Hour.Microseconds(); h.Next(back, 0) != uint64(back) {
		t.Errorf("the hint is not %d, which the clock shows", back)
	}
}
