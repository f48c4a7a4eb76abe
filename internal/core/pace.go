package core

import "time"

const (
	// busy is how many times longer than at their best round trips take when nodes count as busy.
	busy = 4

	// pauseTrips and maxPause bound how long callers do not ask for a lock after one of them has given up: so many round trips, but no
	// longer than maxPause. After a burst the last round trip may have been far longer than the next one.
	pauseTrips = 32
	maxPause   = 250 * time.Millisecond
)

// Pace decides whether a caller that is about to give up asks the nodes for a lock. Such a call costs the nodes as much as a grant. Nodes that
// are busy with many of them answer later, so still more callers give up: in the end nobody is granted anything. So while nodes are busy,
// callers with little time left pause after one of them has given up. Then a few ask again. If one of them is granted the lock, the pause is over.
//
// A Pace describes one lock in one process. It starts when a caller gives up, and ends when one is granted the lock. The zero value means
// that nobody has given up.
type Pace struct {
	lost time.Duration // when the last caller gave up, by the monotonic clock
	some bool          // one has
}

// LostAt is the Pace when a caller that asked has given up.
func LostAt(now time.Duration) Pace { return Pace{now, true} }

// Remaining is the time until callers with little time left may ask again; trip is as in Admits.
func (p Pace) Remaining(now, trip time.Duration) time.Duration {
	return min(pauseTrips*trip, maxPause) - (now - p.lost)
}

// Admits reports whether a caller asks now that will give up after left. trip is a round trip to the nearest majority of the nodes, as it was
// lately and at its best; both are 0 if unknown.
func (p Pace) Admits(now, left, trip, best time.Duration) bool {
	pause := min(pauseTrips*trip, maxPause)
	return !p.some || trip <= busy*best || left >= pause || now-p.lost >= pause
}

// IsOver reports whether everybody may ask again, however long round trips take.
func (p Pace) IsOver(now time.Duration) bool { return !p.some || now-p.lost >= maxPause }
