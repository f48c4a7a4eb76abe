package quorum

import (
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A RedissonMultiLock takes its members one after another, and keeps the first while it waits for
// the next. Most versions also release them one after another. A waiter that asks for all members
// after the last release finds the first one taken again. So if a lock needs every cell, its waiter
// has the node hand over the first cell alone. The machine keeps that cell for some ms, and asks
// for the others when they are released.
//
// No message names Redisson's first cell, so the waiter tries each. After useless handoffs of a
// cell in a row, the waiter tries that cell less often.

// mostUseless limits useless: a waiter tries a cell at one release in 64 at least.
const mostUseless = 6

// freed handles the release of a cell by a Redisson client.
func (c *call) freed(cell int) {
	c.mu.Lock()
	first, asks := c.lock.client.peers.freed(c, cell)
	for i := range c.lock.cells {
		if asks || !first && i == cell {
			c.apply(core.Event{Kind: core.Turn, Cell: int32(i)})
		}
	}
	c.flush()
	if first && !asks {
		handOver := wire.Release(c.lock.cells[cell].Name, c.lock.client.place, 1).Open(0, c.lock.client.place)
		// After a failure, the waiter looks at its next refresh.
		_ = c.lock.Ask(cell, handOver, func(wire.Reply) {})
	}
}

// freed records the release of a cell by a Redisson client. first: the waiter should get that cell
// before the others. asks: the waiter should ask for all cells, because a node without a token
// counter hands nothing over; the first grant creates the counter. The caller holds the call's mu.
func (s *redissonPeers) freed(c *call, cell int) (first, asks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.of[at(c.lock.cells[cell])]
	if st == nil || len(c.lock.cells) < 2 || !c.lock.tree.NeedsEach() {
		return false, false
	}
	st.freed = time.Now()
	begun := slices.ContainsFunc(c.machine.Cells, func(c core.Cell) bool { return c.Handed > 0 })
	if begun || c.machine.Draw(1<<st.useless) > 0 {
		return false, false
	}
	if !st.counts && c.machine.Draw(2) == 0 {
		return true, true
	}
	st.tries = c
	return true, false
}

// markTaken prepares the machine for a handoff of a cell. It marks cells as taken that Redisson
// released more than a round trip before this one: most likely, a Redisson client has them again.
// The caller holds mu.
func (c *call) markTaken(cell int) {
	s := &c.lock.client.peers
	if s.some.Load() == 0 {
		return
	}
	var taken []int
	trips := make([]time.Duration, len(c.lock.cells))
	for i := range trips {
		trips[i] = c.trip(i)
	}
	s.mu.Lock()
	if st := s.of[at(c.lock.cells[cell])]; st != nil {
		st.counts = true
		if st.tries == c {
			c.firstMember = st
			st.useless = min(st.useless+1, mostUseless) // until acquired resets it
		}
		for i := range c.lock.cells {
			if other := s.of[at(c.lock.cells[i])]; other != nil && !other.freed.IsZero() && st.freed.Sub(other.freed) > trips[i] {
				taken = append(taken, i)
			}
		}
	}
	s.mu.Unlock()
	for _, i := range taken {
		c.apply(core.Event{Kind: core.Taken, Cell: int32(i)})
	}
}

// acquired resets useless when the call has the lock. The caller holds the call's mu.
func (s *redissonPeers) acquired(c *call) {
	if c.firstMember != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.firstMember.useless = 0
	}
}
