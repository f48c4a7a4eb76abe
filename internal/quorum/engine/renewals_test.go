package engine

import (
	"testing"
	"time"
)

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
