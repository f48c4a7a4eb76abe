package transport

import (
	"runtime"
	"time"
)

// stopwatch is the timer of a lane's limits, which measures its own delays; guarded by lane.mu.
type stopwatch struct {
	fire  func() // the timer's function
	timer *time.Timer
	next  time.Time     // of the timer, by the real clock; zero if it is not set
	lag   time.Duration // the sum of the delays: see own
}

// watches is how many times the timer fires within the shortest limit, and measures its own delay.
// Connecting takes about ten scheduler turns, one after the other. In a busy process each turn is
// late, so a limit must cover more turns than these.
const watches = 32

// own is a clock that leaves out the delays of the lane's timer. A timer is late when the
// process is: it computes with many goroutines, collects garbage, or was stopped. The goroutine
// that reads is late then, too, and the answer may be in the socket. So limits are measured by this
// clock.
func (s *stopwatch) own(now time.Time) time.Time {
	late := time.Duration(0)
	if !s.next.IsZero() { // the timer has yet to measure this delay
		late = max(now.Sub(s.next), 0)
	}
	return now.Add(-s.lag - late)
}

// within makes the timer fire after d at the latest.
func (s *stopwatch) within(now time.Time, d time.Duration) {
	at := now.Add(d)
	if !s.next.IsZero() && !at.Before(s.next) {
		return
	}
	s.next = at
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.fire)
	} else {
		s.timer.Reset(d)
	}
}

// fired adds the timer's last delay to the others.
func (s *stopwatch) fired(now time.Time) {
	s.lag += max(now.Sub(s.next), 0)
	s.next = time.Time{}
}

// takeTurn makes a timer's function as late as the goroutine that reads the answers. A goroutine
// that a timer starts runs next, ahead of all waiting goroutines. A reader waits for its turn: in a
// process that computes, the reader is woken by the runtime's monitor, which puts it at the end of
// the global queue, where preempted goroutines wait, too. Gosched goes to the end of the same
// queue. One call is enough, since all processors serve that queue in order. A reader in a
// processor's own queue is ahead as well: a processor serves its own queue before the global one,
// except in one turn of 61.
func takeTurn() { runtime.Gosched() }
