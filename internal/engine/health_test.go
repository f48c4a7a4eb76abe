package engine

import (
	"testing"
	"time"
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
