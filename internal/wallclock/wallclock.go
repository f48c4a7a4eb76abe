// Package wallclock gives simulated processes times with both readings, as outside of a testing/synctest bubble, and with a
// wall clock that may be wrong. In a bubble time.Now has no monotonic reading, and all goroutines have the same wall clock.
package wallclock

import (
	"time"
	"unsafe"
)

// Now is true time by the monotonic clock, and that far ahead of it by the wall clock.
func Now(ahead time.Duration) time.Time {
	now := time.Now()
	t := realTime.Add(now.Add(ahead).Sub(realTime))
	parts(&t).ext = now.UnixNano()
	return t
}

// Instant is when it is t by the monotonic clock, in the time of the bubble.
func Instant(t time.Time) time.Time {
	if parts(&t).wall>>63 == 0 {
		return t
	}
	return time.Now().Add(t.Sub(Now(0)))
}

// realTime has a monotonic reading, since it is not read in a bubble.
var realTime = time.Now()

// parts are the fields of a time.Time: ext is the monotonic reading, if wall has the flag for it.
func parts(t *time.Time) *struct {
	wall uint64
	ext  int64
	loc  *time.Location
} {
	return (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(t))
}
