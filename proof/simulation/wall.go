package simulation

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest/wallclock"
)

// now is both of the process's clocks: true time, and a wall clock that is set wrong.
func (p *process) now() time.Time { return wallclock.Now(time.Duration(p.wall.Load())) }

// isSet reports whether a fault has set the wall clock.
func (p *process) isSet() bool { return time.Duration(p.wall.Load()) != p.ahead }

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
