package client

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
)

// clocks are the clocks of a client. Only slept changes.
type clocks struct {
	base   time.Time            // zero of the machines' clocks
	now    func() time.Time     // reads the monotonic and the wall clock
	boot   func() time.Duration // monotonic, but counts suspends; nil if there is none
	booted time.Duration        // boot's reading at base
	slept  atomic.Int64         // ns of suspends since base, by boot; never falls
}

// set replaces the clocks, before their first use. boot may be nil.
func (c *clocks) set(now func() time.Time, boot func() time.Duration) {
	c.now, c.base, c.boot = now, now(), boot
	if c.boot != nil {
		c.booted = c.boot()
	}
}

// time returns the current time for machines.
func (c *clocks) time() core.Time {
	t, _ := c.read()
	return t
}

// times yields the numbers below n, each with the time. It reads the clocks once for several
// numbers, since a reading costs a system call. An earlier time is no risk: a process can be
// stopped after any reading.
func (c *clocks) times(n int) iter.Seq2[int, core.Time] {
	return func(yield func(int, core.Time) bool) {
		var now core.Time
		for i := range n {
			if i%16 == 0 {
				now = c.time()
			}
			if !yield(i, now) {
				return
			}
		}
	}
}

// lately is time without a system call: it misses a suspend since the last reading. It is for
// events that neither begin nor prolong a hold. The loss of a hold may be noticed one event later.
func (c *clocks) lately() core.Time {
	if c.boot == nil {
		return c.time()
	}
	mono := c.mono()
	return core.Time{Mono: mono, Boot: mono + time.Duration(c.slept.Load())}
}

// mono returns the monotonic part of time. It needs no system call, and notices no suspend.
func (c *clocks) mono() time.Duration { return c.now().Sub(c.base) }

// read returns the result of time, and the same moment by the monotonic clock and the wall clock.
// boot is read before now, but booted was read after base. So a pause between two readings never
// counts as a suspend. The next call notices a suspend between the two.
func (c *clocks) read() (core.Time, time.Time) {
	if c.boot == nil {
		now := c.now()
		return core.Time{Mono: now.Sub(c.base), Boot: now.Round(0).Sub(c.base.Round(0))}, now
	}
	up := c.boot() - c.booted
	now := c.now()
	mono := now.Sub(c.base)
	slept := c.slept.Load()
	for more := int64(up - mono); more > slept; slept = c.slept.Load() {
		c.slept.CompareAndSwap(slept, more)
	}
	return core.Time{Mono: mono, Boot: mono + time.Duration(slept)}, now
}

// Hint returns the wall clock in µs: the least token to ask for.
func (c *clocks) Hint() uint64 { return uint64(max(c.now().UnixMicro(), 0)) }
