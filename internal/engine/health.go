package engine

import (
	"slices"
	"time"
)

// Health is the record of a node: whether it is up, and its round trips. The zero value is that of
// a node that was never asked.
type Health struct {
	asked  bool
	trip   time.Duration // average of the recent round trips; 0 before the first
	best   time.Duration // shortest round trip after since
	before time.Duration // shortest in the period before since, at least bestFor long; 0 if unknown
	since  time.Duration // start of the period of best
	failed bool          // the last round trip has failed
	at     time.Duration // time of the last failure
	down   bool          // reported as down; a success upAfter after the last failure resets it
}

// upAfter is the time without a failure after which a node is reported as up. A server out of
// memory refuses acquires, but runs releases. Without this pause, each lock would log two lines.
const upAfter = time.Second

// bestFor is the least time for which the shortest round trip to a node counts.
const bestFor = time.Minute

// Answered records a round trip, and reports whether the node is newly up.
func (h *Health) Answered(took, now time.Duration) (up bool) {
	if h.trip == 0 {
		h.trip, h.best, h.since = took, took, now
	}
	h.trip += (took - h.trip) / 4
	if now-h.since > bestFor {
		h.before, h.best, h.since = h.best, took, now
	}
	h.best = min(h.best, took)
	h.asked, h.failed = true, false
	up = h.down && now-h.at >= upAfter
	h.down = h.down && !up
	return up
}

// Failed records a round trip that has failed, and reports whether the node is newly down.
func (h *Health) Failed(now time.Duration) (down bool) {
	down = !h.down
	h.asked, h.failed, h.at, h.down = true, true, now, true
	return down
}

// Trip returns the recent round trip: 0 if all have failed, unasked without any.
func (h *Health) Trip(unasked time.Duration) time.Duration {
	if !h.asked {
		return unasked
	}
	return h.trip
}

// Answers reports whether the last round trip succeeded; false if there was none.
func (h *Health) Answers() bool { return h.asked && !h.failed }

// Nearest returns the recent and the shortest round trip to the nearest majority of the nodes. Both
// are 0 if unknown. A nil node was never asked.
func Nearest(nodes []*Health) (trip, best time.Duration) {
	var trips, bests []time.Duration
	for _, h := range nodes {
		if h == nil || h.trip == 0 {
			continue
		}
		shortest := h.best
		if h.before > 0 {
			shortest = min(h.best, h.before)
		}
		trips, bests = append(trips, h.trip), append(bests, shortest)
	}
	majority := len(nodes) / 2
	if len(trips) <= majority {
		return 0, 0
	}
	slices.Sort(trips)
	slices.Sort(bests)
	return trips[majority], bests[majority]
}
