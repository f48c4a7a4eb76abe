package quorum

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A client may read a reply after a suspend. The node's time in that reply is old, but its clock is
// right. Without a clock that counts suspends, a step of the wall clock does not matter either.
func TestASuspendUnderARequestIsNoWrongClock(t *testing.T) {
	for name, boot := range map[string]func() time.Duration{"with a boot clock": func() time.Duration { return 0 }, "without": nil} {
		t.Run(name, func(t *testing.T) {
			c := NewClient("test")
			defer c.Close()
			c.boot = boot
			asked, read := core.Time{}, core.Time{Mono: time.Second, Boot: 8 * time.Hour}
			clock := time.UnixMicro(c.ownTime(asked)).UnixMilli()
			c.readClock(nil, []wire.Reply{{Value: []any{int64(0), int64(0), int64(0), "", clock}}}, asked, read)
			if k := c.nodeClocks.Known(c.ownTime(read), 1); k.Clocks != 1 || k.Correction.Abs() > wire.SameClock {
				t.Errorf("%d clocks are known, and the client corrects its tickets by %v", k.Clocks, k.Correction)
			}
		})
	}
}
