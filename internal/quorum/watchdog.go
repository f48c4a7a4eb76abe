package quorum

import (
	"container/heap"
	"time"
)

// The watchdog is a timer, not a goroutine: however many leases are held, nothing runs between ticks.

// clockCheck is how often the wall clock is compared with the monotonic one while leases are held: the
// monotonic clock may stand still while the machine is suspended, and with it every timer.
const clockCheck = time.Second

// again schedules the next renewal of t, if it is still held.
func (c *Client) again(t *tenure, when time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[t.owner] == t {
		c.reschedule(t, when)
	}
}

// reschedule is called with mu held.
func (c *Client) reschedule(t *tenure, when time.Time) {
	switch {
	case !t.lock.set.Renew, t.overheld():
	case t.index >= 0: // an Extend and the watchdog's round crossed
		t.when = when
		heap.Fix(&c.due, t.index)
	default:
		t.when = when
		heap.Push(&c.due, t)
	}
	c.setTimer(c.now())
}

// overheld reports whether a hold has lasted for its WithMaxHold, and is not renewed any more.
func (t *tenure) overheld() bool {
	limit := t.lock.set.MaxHold
	return limit > 0 && elapsed(t.since, t.lock.client.now()) >= limit
}

// setTimer is called with mu held. It moves the timer only forward in time: a tick too many is cheap.
func (c *Client) setTimer(now time.Time) {
	if c.closed || len(c.held) == 0 {
		return
	}
	next := now.Add(clockCheck)
	if len(c.due) > 0 && c.due[0].when.Before(next) {
		next = c.due[0].when
	}
	if !c.next.IsZero() && !next.Before(c.next) {
		return
	}
	if c.next.IsZero() {
		c.seen = now
	}
	c.next = next
	if c.timer == nil {
		c.timer = time.AfterFunc(next.Sub(now), c.tick)
	} else {
		c.timer.Reset(next.Sub(now))
	}
}

// tick renews what is due. Leases that are nearly due come along, so that those of a client gather in
// common rounds.
func (c *Client) tick() {
	if c.begin() != nil {
		return
	}
	defer c.end()
	now := c.now()

	c.mu.Lock()
	stepped := elapsed(c.seen, now)-now.Sub(c.seen) > clockCheck/10
	c.seen = now
	var due, suspects []*tenure
	for len(c.due) > 0 && !c.due[0].when.Add(-c.due[0].lock.slack()).After(now) {
		due = append(due, heap.Pop(&c.due).(*tenure))
	}
	if stepped {
		for _, t := range c.held {
			suspects = append(suspects, t)
		}
	}
	c.next = time.Time{}
	c.setTimer(now)
	c.mu.Unlock()

	for _, t := range suspects {
		t.checkDeadline()
	}
	c.renew(due)
}

// elapsed is the time from start to now by the monotonic or by the wall clock, whichever says more. A
// wall clock that is stepped forward ends a lease early; one stepped back changes nothing.
func elapsed(start, now time.Time) time.Duration {
	return max(now.Sub(start), now.Round(0).Sub(start.Round(0)))
}

// schedule is a heap of tenures by when they are due.
type schedule []*tenure

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].when.Before(s[j].when) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule) Push(x any) {
	t := x.(*tenure)
	t.index = len(*s)
	*s = append(*s, t)
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	t.index = -1
	return t
}
