package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// ClockCheck is the interval between two comparisons of the clocks while a lock is held. During a
// suspend, the monotonic clock and all timers may stand still.
const ClockCheck = time.Second

// Suspended reports whether the clocks have moved apart between two comparisons.
func Suspended(before, now core.Time) bool {
	return now.Boot-before.Boot-(now.Mono-before.Mono) > ClockCheck/10
}

// Clocks has the clocks of a client's nodes, as last reported. The zero value has none.
type Clocks[N comparable] struct {
	last       int64               // the last ticket of a call
	ahead      map[N]time.Duration // each clock minus the own time; cleared when stale
	correction time.Duration       // from the own time to the clocks of the nodes
	readAt     int64               // own time of the last report
}

// NewTicket returns the own time, or a later one: never the same twice.
func (c *Clocks[N]) NewTicket(own int64) int64 {
	c.last = max(c.last+1, own)
	return c.last
}

// Read records the clock of a node from the reply to a request sent at asked.
func (c *Clocks[N]) Read(n N, at time.Time, asked, own int64) {
	if c.ahead == nil {
		c.ahead = make(map[N]time.Duration)
	}
	if c.isStale(own) {
		clear(c.ahead)
	}
	c.readAt = own
	ahead := wire.Ahead(c.correction, at.Sub(time.UnixMicro(own)), time.Duration(own-asked)*time.Microsecond)
	c.ahead[n] = ahead
	if (ahead - c.correction).Abs() > wire.SameClock { // else the median is nearer
		c.correction = wire.Correction(c.correction, slices.Collect(maps.Values(c.ahead)))
	}
}

// isStale reports whether the clocks are too old to rely on.
func (c *Clocks[N]) isStale(own int64) bool { return own-c.readAt > wire.FreshClock.Microseconds() }

// Known is what a client knows of its nodes' clocks, for the tickets of one lock.
type Known struct {
	Clocks, Nodes int           // number of known clocks, and of the lock's nodes
	Correction    time.Duration // from the own time to the clocks of the nodes
}

// Known returns the knowledge for a lock over a number of nodes.
func (c *Clocks[N]) Known(own int64, nodes int) Known {
	k := Known{Nodes: nodes, Correction: c.correction}
	if !c.isStale(own) {
		k.Clocks = len(c.ahead)
	}
	return k
}
