package engine

import (
	"slices"
	"time"
)

// MaxRenewals limits the renewals under way at a node. More would delay the node's other clients.
const MaxRenewals = 500

// soonest is the shortest pause that is worth a timer: timers may be that late.
const soonest = time.Millisecond

// Renewals groups the renewals of a client's holds by node. With many leases, a write costs far
// more than its bytes, so the watchdog's renewals wait a moment for more. The zero value has none.
type Renewals[N comparable, R any] struct {
	of    map[N]*renewer[N, R]
	turns []*renewer[N, R] // the values of of, in the order of their turns
	due   time.Duration    // when the next turn is due; 0 if none
}

// renewer has the renewals of one node.
type renewer[N comparable, R any] struct {
	node   N
	queue  []renewal[R]
	taken  int           // how many at the front of queue have left it
	wait   time.Duration // how long queue may wait for more renewals
	flight int           // number of renewals under way
	each   time.Duration // time of a renewal in large requests, which rises slowly; see eachAt
	eachAt time.Duration // when each was measured
	expect int64         // renewals that the holds take, in PerSecond
	trip   time.Duration // the shortest time of a request; 0 before the first
	landed time.Duration // when the last request landed
	jammed bool          // a part of queue waits for replies: flight is at its limit
}

// renewal is one queued call that renews a hold.
type renewal[R any] struct {
	call  R
	since time.Duration // when it was queued
	ttl   time.Duration // of its hold
}

// waits reports whether the renewal has waited for a part of its TTL.
func (q *renewal[R]) waits(now, part time.Duration) bool { return now-q.since >= q.ttl/part }

// Add adds a renewal of a hold; left is the validity that the hold has left. atOnce: call Take
// next, because the renewal is urgent (a caller waits for it), or ttl or left is short. Otherwise
// call Schedule next.
func (rs *Renewals[N, R]) Add(n N, call R, ttl, left time.Duration, urgent bool, now time.Duration) (atOnce bool) {
	r := rs.at(n)
	wait := min(20*time.Millisecond, ttl/1000, left/100)
	if r.waiting() == 0 || wait < r.wait {
		r.wait = wait
	}
	r.queue = append(r.queue, renewal[R]{call, now, ttl})
	return urgent || wait < soonest
}

func (rs *Renewals[N, R]) at(n N) *renewer[N, R] {
	r := rs.of[n]
	if r == nil {
		if rs.of == nil {
			rs.of = make(map[N]*renewer[N, R])
		}
		r = &renewer[N, R]{node: n}
		rs.of[n] = r
		rs.turns = append(rs.turns, r)
	}
	return r
}

// PerSecond is the unit of Expect: a millionth of a renewal per second.
const PerSecond = 1e6

// Expect adds to the renewals that the holds take at a node, in PerSecond.
func (rs *Renewals[N, R]) Expect(n N, more int64) { rs.at(n).expect += more }

// Schedule returns the time of the next turn, and whether to set the timer to it.
func (rs *Renewals[N, R]) Schedule(now time.Duration) (at time.Duration, set bool) {
	first, pause, _ := rs.next()
	if at = now + pause; first == nil || rs.due != 0 && at >= rs.due {
		return 0, false
	}
	rs.due = at
	return at, true
}

// next returns the node with the next turn, the pause before that turn, and whether all nodes share
// it. first is nil if no node can have one. Nodes take turns, so that most calls meet the renewals
// of one node at most. If turns would follow too quickly, all nodes share one.
func (rs *Renewals[N, R]) next() (first *renewer[N, R], pause time.Duration, all bool) {
	for _, r := range rs.turns {
		if r.waiting() == 0 || r.jammed {
			continue
		}
		if first == nil {
			first, pause = r, r.wait
		}
		pause = min(pause, r.wait)
	}
	if turn := pause / max(time.Duration(len(rs.turns)), 1); turn >= soonest {
		return first, turn, false
	}
	return first, pause, true
}

// Turn begins a turn, and returns its nodes. Call Take for each, and then Schedule.
func (rs *Renewals[N, R]) Turn() (nodes []N) {
	rs.due = 0
	first, _, all := rs.next()
	if first == nil {
		return nil
	}
	if !all {
		i := slices.Index(rs.turns, first)
		rs.turns = append(slices.Delete(rs.turns, i, i+1), first)
		return []N{first.node}
	}
	for _, r := range rs.turns {
		nodes = append(nodes, r.node)
	}
	return nodes
}

// Take returns the renewals to send to a node, and those to drop as late. A renewal is due after a
// third of the TTL, and late after a half of it: even if the next one waits as long, it comes
// before the end of the validity. So renewals do not pile up for a frozen node, and a node that is
// too slow for a renewal in each third of the TTL keeps all leases if it can do one in each half.
// Call Landed once those to send are answered.
func (rs *Renewals[N, R]) Take(n N, now time.Duration) (send, late []R) {
	r := rs.of[n]
	send = make([]R, 0, min(r.waiting(), max(MaxRenewals-r.flight, 0)))
	for ; r.waiting() > 0; r.taken++ {
		q := &r.queue[r.taken]
		if q.waits(now, 2) {
			late = append(late, q.call)
		} else if r.flight+len(send) < MaxRenewals {
			send = append(send, q.call)
		} else {
			break
		}
		*q = renewal[R]{}
	}
	if 2*r.taken >= len(r.queue) { // so that each renewal is moved once on average
		r.queue, r.taken = slices.Delete(r.queue, 0, r.taken), 0
	}
	r.flight += len(send)
	r.jammed = r.waiting() > 0
	return send, late
}

// waiting returns the number of renewals in the queue.
func (r *renewer[N, R]) waiting() int { return len(r.queue) - r.taken }

// mostRenewing is the largest part of its time that a node may spend on the renewals of one client.
// The rest is for attempts, releases and other clients.
const mostRenewing = 0.5

// Behind reports whether new attempts have to wait, because held locks come first. That is so if a
// renewal has waited for an eighth of its TTL, or if the client's holds need more than mostRenewing
// of the node's time. Waiting renewals alone would show this too late: a new hold is first renewed
// after a third of its TTL.
func (rs *Renewals[N, R]) Behind(n N, now time.Duration) bool {
	r := rs.of[n]
	return r != nil && (r.waiting() > 0 && r.queue[r.taken].waits(now, 8) ||
		now-r.eachAt < eachFor && float64(r.expect)/PerSecond*r.each.Seconds() > mostRenewing)
}

// eachFor is how long a measured time of a renewal counts.
const eachFor = 10 * time.Second

// Landed records replies of a node that came after took; 0 if they are none. It reports whether a part of its queue
// waited for them. If so, call Take next.
func (rs *Renewals[N, R]) Landed(n N, replies int, took, now time.Duration) (again bool) {
	r := rs.of[n]
	r.flight -= replies
	if took == 0 {
		return r.jammed
	}
	if r.trip == 0 || took < r.trip {
		r.trip = took
	}
	// What came before the request before it did not take the node's time.
	busy := max(min(took, now-r.landed)-r.trip, 0)
	r.landed = now
	// A slow process makes some requests look long, a slow node makes all of them long.
	if each := busy / time.Duration(replies); replies >= MaxRenewals/10 {
		if now-r.eachAt < eachFor {
			each = min(each, r.each+max(r.each/4, time.Microsecond))
		}
		r.each, r.eachAt = each, now
	}
	return r.jammed
}
