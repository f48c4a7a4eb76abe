package quorum

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// look adds ids at all cells, and returns the number of ids at a quorum of them: n if the latch is
// open. If a quorum has the same ids, their number is the answer. Otherwise a repair comes first.
// So every later look finds at least these ids, at any quorum.
//
// Both also restart the retention at a quorum. So a quorum keeps all ids for that long, instead of
// a different part at each cell.
func (l *Latch) look(ctx context.Context, mode wire.LatchMode, ids []string) (int, error) {
	before := int(l.found.Load())
	if mode == wire.MakeLatch && before > 0 {
		mode = wire.KeepLatch
	}
	round := l.newRound(ctx, func(_ int, c Cell, server string) wire.Call {
		return wire.Latch(c.Name, l.n, mode, l.set.Retention, server, ids...)
	})
	if err := round.run(ctx, round.quorum); err != nil {
		return 0, err
	}
	if round.opened() > 0 {
		return l.openAll(ctx, round)
	}
	if before > 0 && !round.there() {
		return 0, l.forgotten(before, 0)
	}
	size, ok := round.agreed(mode == wire.ReadLatch)
	if !ok {
		return l.repair(ctx, ids, before)
	}
	if mode != wire.ReadLatch || size > 0 || before > 0 { // else perhaps less than a quorum has it
		return l.saw(before, size)
	}
	return 0, nil
}

// saw records and returns the ids at a quorum. ErrLatchForgotten: a quorum had more before.
func (l *Latch) saw(before, size int) (int, error) {
	if size+1 < before {
		return 0, l.forgotten(before, size)
	}
	size = min(size, l.n)
	for n := int64(size) + 1; ; {
		found := l.found.Load()
		if n <= found || l.found.CompareAndSwap(found, n) {
			return size, nil
		}
	}
}

func (l *Latch) forgotten(before, now int) error {
	return fmt.Errorf("%w: the latch %q had %d ids, and a quorum has %d", quorumlock.ErrLatchForgotten, l.name, min(before-1, l.n), now)
}

// openAll returns n. If a round found the latch open at fewer cells than a quorum, openAll first
// opens it at a quorum.
func (l *Latch) openAll(ctx context.Context, found *latchRound) (int, error) {
	if found.opened() < l.need {
		round := l.newRound(ctx, func(_ int, c Cell, server string) wire.Call {
			return wire.Latch(c.Name, l.n, wire.OpenLatch, l.set.Retention, server)
		})
		if err := round.run(ctx, round.quorum); err != nil {
			return 0, err
		}
	}
	l.open.Store(true)
	return l.saw(0, l.n)
}

// repair makes a quorum of the cells agree on a set of ids that includes the given ones. It returns
// the size of that set.
//
// repair reads the last ids of each cell, and adds their union at all cells. Each cell answers with
// the count and the digest of its rest: its ids at the time of the read, minus the union. If the
// rest is the same at a quorum, each cell of that quorum has every id that any of them had at the
// read. Ids that other calls add meanwhile belong to no rest, so they cannot delay the repair. If
// the rests differ, the next attempt reads more ids. The last attempt reads all ids, so every rest
// is empty.
func (l *Latch) repair(ctx context.Context, ids []string, before int) (int, error) {
	whole := 0 // attempts that read all ids
	// Healthy cells differ only in the ids of calls under way.
	for tail := min(max(1, l.n/8), 64); ; tail *= 8 {
		read := l.newRound(ctx, func(_ int, c Cell, _ string) wire.Call { return wire.LatchTail(c.Name, l.n, tail) })
		if err := read.run(ctx, read.quorum); err != nil {
			return 0, err
		}
		if read.opened() > 0 {
			return l.openAll(ctx, read)
		}
		most := 0
		union := slices.Clone(ids)
		cuts := make([]int, len(l.cells))
		for i := range cuts {
			cuts[i] = math.MaxInt32 // a cell without a known tail compares all of its ids
		}
		for _, s := range read.states {
			most = max(most, s.Count)
			union = append(union, s.IDs...)
			cuts[s.cell] = s.Count
		}
		slices.Sort(union)
		union = slices.Compact(union)
		if len(union) >= l.n {
			return l.openAll(ctx, read)
		}
		if max(most, len(union))+1 < before { // a latch that has lost ids gets no new ones
			if tail >= most {
				return 0, l.forgotten(before, len(union))
			}
			continue
		}
		write := l.newRound(ctx, func(i int, c Cell, server string) wire.Call {
			return wire.LatchRest(c.Name, l.n, l.set.Retention, server, cuts[i], union)
		})
		err := write.run(ctx, func() bool {
			_, ok := write.agreed(false)
			return ok || write.opened() > 0 || write.answered(read.states)
		})
		if write.opened() > 0 {
			return l.openAll(ctx, write)
		}
		if rest, ok := write.agreed(false); ok {
			return l.saw(before, rest+len(union))
		}
		if tail >= most { // a cell failed, and another has ids that no round has read
			whole++
		}
		if err != nil && !write.quorum() || whole == 3 {
			return 0, cmp.Or(err, write.failure())
		}
	}
}
