package client

import (
	"container/heap"
	"sync"
	"time"
)

// alarms wakes the held calls of a client. Many of them are due at the same moment, since renewals
// are due at rounded times. So they share one timer and one goroutine. The zero value has none.
type alarms struct {
	mu    sync.Mutex
	due   map[time.Duration]*alarm
	queue alarmQueue
	timer *time.Timer   // nil before the first alarm
	set   time.Duration // when timer fires, by the monotonic clock; 0 if not set
}

// alarm has the calls to wake at one moment of the monotonic clock.
type alarm struct {
	at    time.Duration
	calls []*session
	index int // in the queue
}

// alarmed is the place of a call among the alarms; guarded by alarms.mu.
type alarmed struct {
	in    *alarm // nil: none
	index int    // in the calls of in
}

// wakeAt wakes a call at a moment of the monotonic clock, in place of an earlier choice.
func (c *Client) wakeAt(w *session, at time.Duration) {
	a := &c.alarms
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remove(w)
	next := a.due[at]
	if next == nil {
		if a.due == nil {
			a.due = make(map[time.Duration]*alarm)
		}
		next = &alarm{at: at}
		a.due[at] = next
		heap.Push(&a.queue, next)
	}
	w.alarm.place = alarmed{next, len(next.calls)}
	next.calls = append(next.calls, w)
	c.setAlarm()
}

// setAlarm sets the timer to the next alarm. The caller holds alarms.mu.
func (c *Client) setAlarm() {
	a := &c.alarms
	if len(a.queue) == 0 || a.set != 0 && a.set <= a.queue[0].at {
		return
	}
	a.set = a.queue[0].at
	if in := a.set - c.mono(); a.timer == nil {
		a.timer = time.AfterFunc(in, c.ring)
	} else {
		a.timer.Reset(in)
	}
}

// cancelAlarm cancels the alarm of a call.
func (c *Client) cancelAlarm(w *session) {
	c.alarms.mu.Lock()
	defer c.alarms.mu.Unlock()
	c.alarms.remove(w)
}

// remove takes a call out of its alarm. The caller holds mu.
func (a *alarms) remove(w *session) {
	from, i := w.alarm.place.in, w.alarm.place.index
	if from == nil {
		return
	}
	last := len(from.calls) - 1
	from.calls[i] = from.calls[last]
	from.calls[i].alarm.place.index = i
	from.calls[last] = nil
	from.calls = from.calls[:last]
	w.alarm.place = alarmed{}
	if last == 0 {
		delete(a.due, from.at)
		heap.Remove(&a.queue, from.index)
	}
}

// ring wakes the calls that are due.
func (c *Client) ring() {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	a := &c.alarms
	a.mu.Lock()
	a.set = 0
	var due []*session
	for now := c.mono(); len(a.queue) > 0 && a.queue[0].at <= now; {
		next := heap.Pop(&a.queue).(*alarm)
		delete(a.due, next.at)
		for _, w := range next.calls {
			w.alarm.place = alarmed{}
		}
		due = append(due, next.calls...)
	}
	c.setAlarm()
	a.mu.Unlock()
	for i, now := range c.times(len(due)) {
		due[i].tick(now)
	}
}

// alarmQueue orders alarms by time. It implements heap.Interface.
type alarmQueue []*alarm

func (q alarmQueue) Len() int           { return len(q) }
func (q alarmQueue) Less(i, j int) bool { return q[i].at < q[j].at }

func (q alarmQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *alarmQueue) Push(x any) {
	a := x.(*alarm)
	a.index = len(*q)
	*q = append(*q, a)
}

func (q *alarmQueue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return a
}
