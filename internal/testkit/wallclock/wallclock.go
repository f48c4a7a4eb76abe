// Package wallclock makes times for simulated processes, with both readings, as outside a
// testing/synctest bubble, and with a wall clock that may be wrong. In a bubble time.Now has no
// monotonic reading, and all goroutines share one wall clock.
package wallclock

import (
	"time"
	"unsafe"
)

// Now returns a time with the true monotonic reading, and with a wall clock that is ahead of it.
func Now(ahead time.Duration) time.Time {
	now := time.Now()
	t := realTime.Add(now.Add(ahead).Sub(realTime))
	parts(&t).ext = now.UnixNano()
	return t
}

// Instant returns the time of the bubble at which the monotonic clock shows t.
func Instant(t time.Time) time.Time {
	if parts(&t).wall>>63 == 0 {
		return t
	}
	return time.Now().Add(t.Sub(Now(0)))
}

// realTime has a monotonic reading, because it is read outside a bubble.
var realTime = time.Now()

// parts returns the fields of a time.Time: ext is the monotonic reading if wall has its flag.
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
