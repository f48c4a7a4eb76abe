package core

import (
	"testing"
	"time"
)

// A pause lasts for 32 round trips, and leaves at least four. A pause that is over leaves any time.
func TestPauseOfCallersWithLittleTime(t *testing.T) {
	const trip = time.Millisecond
	for _, tt := range []struct {
		since, left, pause time.Duration
		ok                 bool
	}{
		{0, 36 * trip, 32 * trip, true},
		{0, 35 * trip, 32 * trip, false},
		{30 * trip, 6 * trip, 2 * trip, true},
		{32 * trip, trip, 0, true},
		{40 * trip, trip, 0, true},
	} {
		if pause, ok := LostAt(time.Second).Pause(time.Second+tt.since, tt.left, trip); pause != tt.pause || ok != tt.ok {
			t.Errorf("%v after a caller gave up, with %v left: %v and %v, want %v and %v", tt.since, tt.left, pause, ok, tt.pause, tt.ok)
		}
	}
}
