package wire

import (
	"slices"
	"time"
)

// SameClock is how far a client's clock may be from those of the nodes without a correction. Clocks that NTP keeps
// agree better than a round trip tells. join.lua has the same number.
const SameClock = time.Second

// FreshClock is for how long a client relies on what the nodes have told: clocks run at different rates.
const FreshClock = time.Minute

// Ahead returns how far the clock of a node is ahead of the client's own time. late is how far the clock in the
// answer is ahead when the answer comes, and ago is how long ago the node was asked: it read its clock in between.
// Of all that this allows, the nearest to the correction counts.
func Ahead(correction, late, ago time.Duration) time.Duration {
	return max(late, min(correction, late+ago))
}

// Correction returns what a client adds to its own time for tickets, after what it was before. ahead is how far the
// clocks of the nodes are ahead of its own, for those that are known: one at least. The median counts, or the nearer
// of two. So a minority of nodes with wrong clocks changes nothing.
//
// A ticket must be the same number at all nodes. Otherwise two waiters could each be the first at some nodes, and
// neither would have a quorum. So the client corrects it, and not the node.
func Correction(was time.Duration, ahead []time.Duration) time.Duration {
	slices.Sort(ahead)
	low, high := ahead[(len(ahead)-1)/2], ahead[len(ahead)/2]
	switch {
	case was < low-SameClock:
		return low
	case was > high+SameClock:
		return high
	}
	return was
}
