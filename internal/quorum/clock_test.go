package quorum

import (
	"testing"
	"time"
	"unsafe"
)

// apart returns t with its monotonic reading put back by d, as if the monotonic clock had stood still
// for so long while the wall clock went on.
func apart(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	moved := at
	(*struct { // time.Time, which says that ext is the monotonic reading, if wall has the flag for it
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&moved)).ext -= int64(d)
	if moved.Sub(at) != -d || !moved.Round(0).Equal(at.Round(0)) {
		t.Fatal("time.Time is not what it was: this test shows nothing")
	}
	return moved
}

// What counts is the clock that says more: the monotonic one may stand still in suspend, and the wall
// clock may be stepped. A wall clock stepped back changes nothing.
func TestElapsedIsWhatTheClockThatSaysMoreSays(t *testing.T) {
	start := time.Now()
	for name, tt := range map[string]struct {
		passed    time.Duration // by the wall clock
		suspended time.Duration // and not by the monotonic one
		want      time.Duration
	}{
		"both agree":               {5 * time.Second, 0, 5 * time.Second},
		"suspended":                {time.Hour, 59 * time.Minute, time.Hour},
		"wall stepped forward":     {time.Hour, time.Hour, time.Hour},
		"wall stepped back":        {time.Second, -time.Hour, time.Hour + time.Second},
		"wall stepped before then": {-time.Hour, -time.Hour - time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			now := apart(t, start.Add(tt.passed), tt.suspended)
			if got := elapsed(start, now); got != tt.want {
				t.Errorf("elapsed is %v, want %v", got, tt.want)
			}
		})
	}
}
