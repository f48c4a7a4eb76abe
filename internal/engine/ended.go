package engine

import "time"

// Ended has the recent calls of a client that have ended, by number. The zero value has none, and
// forgets none without Turn.
type Ended struct {
	// Until when the nodes keep the lock of a call after its hold: because of UnlockAfter or Detach.
	// 0: not at all.
	recent, before map[uint64]time.Duration

	turned time.Duration // when before was recent
	span   time.Duration // the longest of Turn
}

// EndedMemory is the least time for which an ended call is remembered. A lock that a node has for an
// ended call is a release under way, or the late grant of a node that was frozen. A release that
// fails by the node timeout becomes pending, and so does that of a call that may run late. Refresh
// keeps these in memory until the node has confirmed them, however long it is away.
const EndedMemory = 30 * time.Second

// Turn forgets the calls that ended, or were refreshed, before the last turn, if that was span ago.
// So a call is remembered for one span at least, and nothing is ever swept.
func (e *Ended) Turn(now, span time.Duration) {
	if e.span = max(e.span, span); now-e.turned >= e.span {
		e.before, e.recent, e.turned = e.recent, nil, now
	}
}

// Add records that a call has ended.
func (e *Ended) Add(number uint64) {
	until, _ := e.find(number)
	e.set(number, until)
}

// Keep records that the nodes keep the lock of a call after its hold, until a time. A call that is
// forgotten before counts as unknown, and not as ended: its lock is refused in any case.
func (e *Ended) Keep(number uint64, until, now time.Duration) {
	if until > now {
		e.set(number, until)
	}
}

// Refresh remembers a call again, if it is not forgotten yet.
func (e *Ended) Refresh(number uint64) {
	if until, ok := e.find(number); ok {
		e.set(number, until)
	}
}

// Keeps reports whether the nodes keep the lock of a call after its hold.
func (e *Ended) Keeps(number uint64, now time.Duration) bool {
	until, _ := e.find(number)
	return now < until
}

// Has reports whether a call has ended recently. An unknown number belongs to a copy of the
// process, or to a call of long ago.
func (e *Ended) Has(number uint64) bool {
	_, ok := e.find(number)
	return ok
}

func (e *Ended) find(number uint64) (until time.Duration, ok bool) {
	if until, ok = e.recent[number]; !ok {
		until, ok = e.before[number]
	}
	return until, ok
}

func (e *Ended) set(number uint64, until time.Duration) {
	if e.recent == nil {
		e.recent = make(map[uint64]time.Duration)
	}
	e.recent[number] = until
}
