package simulation

import (
	"time"
	"unsafe"
)

// In a bubble, time.Now has no monotonic reading, and all goroutines have the same wall clock. A process gets a
// time with both readings, as outside, and with a wall clock that may be wrong.

// now is both of the process's clocks: true time, and a wall clock that is set wrong.
func (p *process) now() time.Time { return both(time.Duration(p.wall.Load())) }

func both(ahead time.Duration) time.Time {
	now := time.Now()
	t := realTime.Add(now.Add(ahead).Sub(realTime))
	parts(&t).ext = now.UnixNano()
	return t
}

// instant is when it is t by the monotonic clock, in the time of the bubble.
func instant(t time.Time) time.Time {
	if parts(&t).wall>>63 == 0 {
		return t
	}
	return time.Now().Add(t.Sub(both(0)))
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
