package core

import "time"

const (
	// busy is the multiple of the best round trip above which nodes count as busy.
	busy = 4

	// pauseTrips and maxPause bound the pause of callers after one of them has given up: so many
	// round trips, but no longer than maxPause. After a burst, the last round trip may be far
	// longer than the next.
	pauseTrips = 32
	maxPause   = 250 * time.Millisecond

	// fewTrips is the least number of round trips that must be left after a pause.
	fewTrips = 4
)

// Pace decides whether a caller with little time left asks the nodes for a lock. A call that gives
// up costs the nodes as much as a grant. Busy nodes answer later, so more callers give up, and in
// the end nobody is granted anything. So while nodes are busy, callers with little time left pause
// after one of them has given up. Then a few ask again, and a grant ends the pause.
//
// A Pace describes one lock in one process. It lasts from a caller that gives up to the next grant.
// The zero value means that nobody has given up.
type Pace struct {
	lost time.Duration // when the last caller gave up, by the monotonic clock; valid if some
	some bool          // a caller has given up
}

// LostAt is the Pace after a caller that asked has given up.
func LostAt(now time.Duration) Pace { return Pace{now, true} }

// Pause returns how long a caller has to wait before it asks the nodes, if it gives up after the
// time left; trip is as in Admits. ok is false if fewer than fewTrips round trips would remain.
func (p Pace) Pause(now, left, trip time.Duration) (pause time.Duration, ok bool) {
	pause = min(pauseTrips*trip, maxPause) - (now - p.lost)
	return max(pause, 0), pause <= 0 || left-pause >= fewTrips*trip
}

// Admits reports whether a caller asks that gives up after left. trip is the latest round trip to
// the nearest majority of the nodes, and best the shortest one; both are 0 if unknown.
func (p Pace) Admits(now, left, trip, best time.Duration) bool {
	pause := min(pauseTrips*trip, maxPause)
	return !p.some || trip <= busy*best || left >= pause || now-p.lost >= pause
}

// IsOver reports whether all callers may ask, however long round trips take.
func (p Pace) IsOver(now time.Duration) bool { return !p.some || now-p.lost >= maxPause }
