package simulation

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/wallclock"
)

// now is both of the process's clocks: true time, and a wall clock that is set wrong.
func (p *process) now() time.Time { return wallclock.Now(time.Duration(p.wall.Load())) }

// bootClock returns the process's clock that counts suspends, of which there are none; nil if it has no such clock.
func (p *process) bootClock() func() time.Duration {
	if !p.boots {
		return nil
	}
	return p.world.now
}

// instant is when it is t by the monotonic clock, in the time of the bubble.
func instant(t time.Time) time.Time { return wallclock.Instant(t) }
