package engine

import (
	"testing"
	"time"
)

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
