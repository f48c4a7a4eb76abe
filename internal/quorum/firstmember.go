package quorum

import (
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A RedissonMultiLock takes its members one after another, and keeps the first while it waits for the next. Most versions also
// release them one after another. A waiter that asks for all of them after the last release finds the first one taken again. So a
// waiter whose lock needs every cell has the node hand over the first cell alone. The machine keeps that cell for some ms, and asks
// for the others when they are released as well.
//
// No message tells which cell is Redisson's first, so the waiter tries each. The more often in a row a cell alone led to no grant, the
// less often the waiter tries that cell.

// mostUseless lets the waiter try a cell at one release in 64 at least.
const mostUseless = 6

// freed is called when a Redisson client has released one of the cells.
func (c *call) freed(cell int) {
	c.mu.Lock()
	first, asks := c.lock.client.peers.freed(c, cell)
	for i := range c.lock.cells {
		if asks || !first && i == cell {
			c.take(core.Event{Kind: core.Turn, Cell: int32(i)})
		}
	}
	c.flush()
	if first && !asks {
		handOver := wire.Release(c.lock.cells[cell].Name, c.lock.client.place, 1).Open(0, c.lock.client.place)
		_ = c.lock.Ask(cell, handOver, func(wire.Reply) {}) // if it fails, the waiter looks at its next refresh
	}
}

// freed notes that a Redisson client has released a cell. It returns whether the waiter should have that cell before the others, and
// whether by asking for all of them: a node without a token counter hands nothing over, and gets one with the first grant. It is called
// with the call's mu held.
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

// handedOver is called before the machine learns of a handoff, with mu held. Where Redisson released another cell more than a round
// trip earlier, a Redisson client has it again, most likely.
func (c *call) handedOver(cell int) {
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
			c.first = st
			st.useless = min(st.useless+1, mostUseless) // unless the lock is acquired
		}
		for i := range c.lock.cells {
			if other := s.of[at(c.lock.cells[i])]; other != nil && !other.freed.IsZero() && st.freed.Sub(other.freed) > trips[i] {
				taken = append(taken, i)
			}
		}
	}
	s.mu.Unlock()
	for _, i := range taken {
		c.take(core.Event{Kind: core.Taken, Cell: int32(i)})
	}
}

// acquired is called when the call has the lock, with mu held.
func (s *redissonPeers) acquired(c *call) {
	if c.first != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.first.useless = 0
	}
}
