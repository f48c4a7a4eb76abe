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
	wait   time.Duration // how long queue may wait for more renewals
	flight int           // number of renewals under way
	jammed bool          // a part of queue waits for replies: flight is at its limit
}

// renewal is one queued call that renews a hold.
type renewal[R any] struct {
	call R
	over time.Duration // when the hold's next renewal is due
}

// Add adds a renewal of a hold; left is the validity that the hold has left. atOnce: call Take
// next, because the renewal is urgent (a caller waits for it), or ttl or left is short. Otherwise
// call Schedule next.
func (rs *Renewals[N, R]) Add(n N, call R, ttl, left time.Duration, urgent bool, now time.Duration) (atOnce bool) {
	r := rs.of[n]
	if r == nil {
		if rs.of == nil {
			rs.of = make(map[N]*renewer[N, R])
		}
		r = &renewer[N, R]{node: n}
		rs.of[n] = r
		rs.turns = append(rs.turns, r)
	}
	wait := min(20*time.Millisecond, ttl/1000, left/100)
	if len(r.queue) == 0 || wait < r.wait {
		r.wait = wait
	}
	r.queue = append(r.queue, renewal[R]{call, now + ttl/3})
	return urgent || wait < soonest
}

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
		if len(r.queue) == 0 || r.jammed {
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

// Take returns the renewals to send to a node, and those to drop as late: their hold has queued the
// next one. So renewals do not pile up for a frozen node. Call Landed once those to send are
// answered.
func (rs *Renewals[N, R]) Take(n N, now time.Duration) (send, late []R) {
	r := rs.of[n]
	for ; len(r.queue) > 0; r.queue = r.queue[1:] {
		if q := &r.queue[0]; q.over <= now {
			late = append(late, q.call)
		} else if r.flight+len(send) < MaxRenewals {
			send = append(send, q.call)
		} else {
			break
		}
	}
	r.flight += len(send)
	r.jammed = len(r.queue) > 0
	return send, late
}

// Landed records replies of a node. It reports whether a part of its queue waited for them. If so,
// call Take next.
func (rs *Renewals[N, R]) Landed(n N, replies int) (again bool) {
	r := rs.of[n]
	r.flight -= replies
	return r.jammed
}
