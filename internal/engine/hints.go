package engine

import "time"

// Hints makes the hints of one lock's attempts. The zero value is ready to use.
type Hints struct {
	seen uint64        // highest token seen
	at   time.Duration // when seen was set
	last uint64        // the last hint
}

// sameHint is how far, in µs, the clock's hint may be below the last one and still continue it. A
// hint further below comes from a clock that was set back.
const sameHint = 1000

// Next returns the least token that an attempt asks for: the wall clock in µs, or the highest token
// seen plus the time since, if that is higher. With a hint, the nodes usually agree at once. The
// token seen plus 1 is not enough: if the nodes forget their counters, another owner may have been
// granted it since. For the same reason, attempts in one microsecond have different hints. A node
// ignores a hint that is far from its own clock.
func (h *Hints) Next(wall int64, now time.Duration) uint64 {
	hint := uint64(max(wall, 0))
	if h.seen > 0 {
		hint = max(hint, h.seen+1+uint64(max((now-h.at).Microseconds(), 0)))
	}
	if hint <= h.last && h.last-hint < sameHint {
		hint = h.last + 1
	}
	h.last = hint
	return hint
}

// Saw records a token of the lock.
func (h *Hints) Saw(token uint64, now time.Duration) {
	if token > h.seen {
		h.seen, h.at = token, now
	}
}
