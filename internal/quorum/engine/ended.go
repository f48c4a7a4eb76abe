package engine

import (
	"maps"
	"slices"
	"time"
)

// maxEnded is the number of ended calls that are remembered.
const maxEnded = 4096

// Ended has the recent calls of a client that have ended, by number. The zero value has none.
type Ended struct {
	recent  []uint64 // ring of the last maxEnded numbers
	oldest  int      // index in recent of the next number to replace
	kept    map[uint64]time.Duration
	sweepAt int // length of kept at which old entries are dropped
}

// Add records that a call has ended.
func (e *Ended) Add(number uint64) {
	if len(e.recent) < maxEnded {
		e.recent = append(e.recent, number)
		return
	}
	e.recent[e.oldest] = number
	e.oldest = (e.oldest + 1) % maxEnded
}

// Keep records that the nodes keep the lock of a call after its hold, until a time: because of
// UnlockAfter or Detach.
func (e *Ended) Keep(number uint64, until, now time.Duration) {
	if len(e.kept) >= e.sweepAt {
		maps.DeleteFunc(e.kept, func(_ uint64, until time.Duration) bool { return until < now })
		e.sweepAt = 2*len(e.kept) + 64
	}
	if e.kept == nil {
		e.kept = make(map[uint64]time.Duration)
	}
	e.kept[number] = until
}

// Keeps reports whether the nodes keep the lock of a call after its hold.
func (e *Ended) Keeps(number uint64, now time.Duration) bool { return now < e.kept[number] }

// Has reports whether a call has ended recently. An unknown number belongs to a copy of the
// process, or to a call of long ago.
func (e *Ended) Has(number uint64) bool { return slices.Contains(e.recent, number) }
