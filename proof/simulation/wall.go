package simulation

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit/wallclock"
)

// now is both of the process's clocks: true time, and a wall clock that is set wrong.
func (p *process) now() time.Time { return wallclock.Now(time.Duration(p.wall.Load())) }

// step steps the wall clock. It is called with the world's mutex held.
func (p *process) step(by time.Duration) {
	p.wall.Add(int64(by))
	p.stepped = true
	if by > 0 {
		p.forward = time.Now()
	}
}

// bootClock returns the process's clock that counts suspends, or nil if the process has no such
// clock. The simulation has no suspends, so the clock shows true time.
func (p *process) bootClock() func() time.Duration {
	if !p.boots {
		return nil
	}
	return p.world.now
}

// instant is when it is t by the monotonic clock, in the time of the bubble.
func instant(t time.Time) time.Time { return wallclock.Instant(t) }
