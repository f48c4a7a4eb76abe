package engine

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// TicketOf returns the ticket of the next attempt: the time of the call by the clocks of the nodes.
// began is the ticket of the call. After a first attempt without a quorum, the client knows all
// clocks that it can know. In a first attempt the ticket is unsure while the client knows less than
// half of them. If a clock is known, it is sure if and only if the ticket of the call before it in
// the local queue is: a node could replace an unsure one, and so reverse their order. The ticket of
// a Lock never rises, and lies between those of the calls before and after it. place is nil for
// calls that do not queue.
func TicketOf[T any](place *Place[T], began int64, attempt int32, k Known) (ticket int64, unsure bool) {
	var last, before, after int64
	few := 2*k.Clocks < k.Nodes
	if place != nil {
		last = place.sent
		before, after = place.sentBeside()
		if place.prev != nil && !place.queue.Shared {
			few = place.prev.sent == 0
		}
	}
	switch {
	case last == 0 && (k.Clocks == 0 || few && attempt == 1):
		return began, true
	case k.Clocks == 0: // the nodes have last
		return last, false
	}
	ticket = max(began+k.Correction.Microseconds(), before+1)
	if after != 0 {
		ticket = min(ticket, after-1)
	}
	if last != 0 {
		ticket = min(ticket, last)
	}
	return ticket, false
}

// Acceptance counts the cells that accepted or replaced the unsure ticket of an attempt. The second
// attempt has one, too, if the replies to the first had no clock: the replies of cells that grant
// have none. Such a cell queues the waiter at the Yield; that reply does not contain the ticket.
type Acceptance struct {
	attempt            int32
	accepted, replaced int // replaced also counts cells that may have: those with a Yield
}

// Verdict is the consequence of a reply. Called and CalledAtAll count as messages of nodes that
// have called the waiter: the next attempt follows soon, with the same ticket at all nodes.
type Verdict struct {
	Settled     bool // all cells accepted the ticket
	Called      bool // this cell used its own clock instead, or may have
	CalledAtAll bool // some did: the waiter may be first at these alone, and keep out others
}

// Judge judges the reply of a cell to a call that was sent with an unsure ticket, in µs. cells is the
// number of cells. After the first reply that counts, the client knows a clock. So the next attempt has a sure
// ticket.
func (a *Acceptance) Judge(k *core.Call, ticket int64, r *wire.Reply, cells int) (v Verdict) {
	at, ok := r.Clock()
	yielded := k.Do == core.Yield && r.Err == nil // its reply has no clock
	switch {
	case !ok && !yielded:
		return v
	case k.Attempt < a.attempt:
		v.Called = yielded
		return v
	case k.Attempt > a.attempt:
		*a = Acceptance{attempt: k.Attempt}
	}
	switch {
	case !yielded && at.Sub(time.UnixMicro(ticket)).Abs() <= wire.SameClock:
		a.accepted++
		v.Settled = a.accepted == cells
	default:
		a.replaced++
		v.Called = true
	}
	v.CalledAtAll = a.replaced > 0 && a.accepted > 0 && a.replaced+a.accepted >= cells
	return v
}
