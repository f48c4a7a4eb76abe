package engine

import (
	"slices"
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

// A node that can do few renewals keeps all leases if it can do one for each in half of the TTL.
// If it cannot, it keeps as many as it can renew.
func TestTooManyRenewalsCostFewLeases(t *testing.T) {
	t.Parallel()
	const leases, ttl = 2000, 10 * time.Second
	for _, tt := range []struct{ perSecond, keeps int }{{650, 2000}, {480, 2000}, {300, 1400}, {150, 700}} {
		var rs Renewals[string, int]
		var until, next [leases]time.Duration
		var queued [leases]time.Duration // when the queued renewal began; 0: none
		for i := range leases {
			until[i], next[i] = ttl, ttl/6+time.Duration(i)*ttl/6/leases
		}
		const step = 10 * time.Millisecond
		room := 0.
		for now := step; now < 2*time.Minute; now += step {
			for i := range leases {
				if until[i] > now && queued[i] == 0 && next[i] <= now {
					queued[i] = now
					rs.Add("n", i, ttl, until[i]-now, false, now)
				}
			}
			for room += float64(tt.perSecond) * step.Seconds(); room >= 1; room-- {
				if rs.of["n"] == nil {
					break
				}
				rs.of["n"].flight = MaxRenewals - 1
				send, late := rs.Take("n", now)
				for _, i := range late {
					queued[i], next[i] = 0, now+ttl/50
				}
				for _, i := range send {
					if until[i] > now {
						until[i], next[i] = queued[i]+ttl, queued[i]+ttl/3
					} else {
						room++ // of an ended hold: it is not sent
					}
					queued[i] = 0
				}
				if len(send) == 0 {
					room = 0
				}
			}
		}
		kept := 0
		for i := range leases {
			if until[i] > 2*time.Minute {
				kept++
			}
		}
		if kept < tt.keeps {
			t.Errorf("%d renewals a second: %d of %d leases are kept, want %d", tt.perSecond, kept, leases, tt.keeps)
		}
		t.Logf("%d renewals a second: %d of %d leases are kept", tt.perSecond, kept, leases)
	}
}

// Renewals that wait, or fill the node, hold up attempts. The way to a far node does not.
func TestAttemptsWaitForRenewalsThatAreBehind(t *testing.T) {
	t.Parallel()
	const holds, ttl = 20_000, 10 * time.Second
	for _, tt := range []struct {
		trip, each time.Duration
		want       bool
	}{
		{time.Millisecond, 5 * time.Microsecond, false},
		{50 * time.Millisecond, 5 * time.Microsecond, false},
		{time.Millisecond, 200 * time.Microsecond, true},
		{50 * time.Millisecond, 200 * time.Microsecond, true},
	} {
		var rs Renewals[string, int]
		rs.Expect("n", 3*holds*PerSecond/10)
		rs.Expect("other", 1e9*PerSecond)
		now := time.Second
		for _, n := range slices.Repeat([]int{1, 100, 500}, 20) {
			for range n {
				rs.Add("n", 0, ttl, ttl, false, now)
			}
			rs.Take("n", now)
			took := tt.trip + time.Duration(n)*tt.each
			now += took
			rs.Landed("n", n, took, now)
		}
		if got := rs.Behind("n", now); got != tt.want {
			t.Errorf("a node %v away that takes %v for a renewal: behind %v", tt.trip, tt.each, got)
		}
	}
	var rs Renewals[string, int]
	rs.Add("n", 0, ttl, ttl, false, time.Second)
	if rs.Behind("n", 2*time.Second) || !rs.Behind("n", 3*time.Second) {
		t.Error("a renewal is behind after an eighth of its TTL")
	}
}
