package wire

import (
	"slices"
	"time"
)

// SameClock is the largest difference between a client's clock and the nodes' that is not
// corrected. NTP keeps clocks closer than a round trip can measure. join.lua has the same number.
const SameClock = time.Second

// FreshClock is how long a client relies on a reading of the nodes' clocks, since rates differ.
const FreshClock = time.Minute

// Ahead returns how far a node's clock is ahead of the client's, from one answer. late is how far
// the clock in the answer is ahead of the client's clock when the answer arrives; ago is the time
// since the request was sent. The node read its clock in between, so its lead is between late and
// late + ago. Ahead returns the value in that range that is nearest to the present correction.
func Ahead(correction, late, ago time.Duration) time.Duration {
	return max(late, min(correction, late+ago))
}

// Correction returns the new difference between tickets and the client's own clock. was is the
// present one. ahead has the lead of each known node clock and must not be empty; Correction sorts
// it. Unless was is within [SameClock] of the median, the median replaces it; of two medians, the
// nearer one. A minority of nodes with wrong clocks therefore changes nothing.
//
// A ticket must be the same number at all nodes. With different numbers, two waiters could each be
// first at some nodes, and neither would have a quorum. So the client corrects it, not the node.
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
