package quorum

import (
	"testing"
	"time"
)

// Attempts in one microsecond must not share a token if the nodes forget their counters in between.
// A clock that was ahead and is set back counts again.
func TestAttemptsInOneMicrosecondHaveDifferentHints(t *testing.T) {
	now := time.Now()
	c := NewClient("test")
	c.now = func() time.Time { return now }
	l := &Lock{client: c}
	seen := make(map[uint64]bool)
	for range 3 {
		h := l.hint()
		if seen[h] {
			t.Errorf("the hint %d comes twice", h)
		}
		seen[h] = true
	}
	l.saw(l.hint())
	if h := l.hint(); seen[h] || h <= l.seen {
		t.Errorf("the hint %d is not above the token seen, %d", h, l.seen)
	}
	l = &Lock{client: c}
	l.hint()
	now = now.Add(-time.Hour)
	if h := l.hint(); h != uint64(now.UnixMicro()) {
		t.Errorf("the hint is %d, want %d, which the clock shows", h, now.UnixMicro())
	}
}
