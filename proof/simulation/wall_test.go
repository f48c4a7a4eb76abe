package simulation

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWallClockOfAProcessIsItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &process{}
		begin, start := time.Now(), p.now()
		p.wall.Add(int64(90*time.Second + 5))
		time.Sleep(time.Second)
		now := p.now()
		if d := now.Sub(start); d != time.Second {
			t.Errorf("by the monotonic clock %v passed, want 1s", d)
		}
		if d := now.Round(0).Sub(start.Round(0)); d != 91*time.Second+5 {
			t.Errorf("by the wall clock %v passed, want 1m31s and 5ns", d)
		}
		if at := instant(start.Add(time.Minute)); !at.Equal(begin.Add(time.Minute)) {
			t.Errorf("a minute after the start is %v, want %v", at, begin.Add(time.Minute))
		}
	})
}
