package engine

// maxAdmitted is the number of callers of a local queue that are queued at the nodes. With one, the
// next caller would join the queues of the nodes only when the first has the lock, behind later
// calls of other processes. With three, it is queued long before a short hold ends.
const maxAdmitted = 3

// maxSlots limits the slots of a semaphore for which more callers are admitted.
const maxSlots = 64

// LocalQueue has the callers of one lock at one client, in the order of their calls. Only the first
// few go to the nodes, so the queues of the nodes stay short. The zero value is an empty queue.
type LocalQueue[T any] struct {
	Shared bool // the callers share the lock
	Slots  int  // number of simultaneous holders, unless Shared; 0 is 1

	first, last *Place[T]
	length      int
	admitted    int // they come first
}

// Place is a caller's entry in a local queue.
type Place[T any] struct {
	Caller T
	Ticket int64 // of the call, by the client's own time

	queue      *LocalQueue[T]
	prev, next *Place[T]
	sent       int64 // the ticket that all nodes have, or were sent; 0 before; never rises
	admitted   bool
}

// Push adds a caller. Call Admit next.
func (q *LocalQueue[T]) Push(t *Place[T]) {
	t.queue, t.prev = q, q.last
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
	q.length++
}

// Leave removes a caller, admitted or not. Call Admit next.
func (t *Place[T]) Leave() {
	q := t.queue
	if t.prev == nil {
		q.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	q.length--
	if t.admitted {
		q.admitted--
	}
}

// InOrder reports whether a caller is admitted only after the attempt of the one before it was
// sent, so that the nodes queue them in order.
func (q *LocalQueue[T]) InOrder() bool { return !q.Shared && q.Slots <= 1 }

// Empty reports whether the queue has no callers.
func (q *LocalQueue[T]) Empty() bool { return q.length == 0 }

// Admit admits and returns the next caller that may go to the nodes, nil if there is none: one of
// the first few, or any that shares the lock, since no reader waits for another. A caller is
// admitted only when the nodes have the ticket of the one before, since a node may replace an
// unsure ticket.
func (q *LocalQueue[T]) Admit() *Place[T] {
	t, few := q.first, maxAdmitted
	if q.Shared {
		t, few = q.last, 1 // all before it have been admitted
	}
	few += min(max(q.Slots, 1), maxSlots) - 1
	for ; few > 0 && t != nil; few-- {
		if !t.admitted {
			t.admitted = true
			q.admitted++
			return t
		}
		// Several callers may get slots in one round trip.
		if t.sent == 0 && q.InOrder() {
			return nil
		}
		t = t.next
	}
	return nil
}

// Admitted reports whether the caller has been admitted.
func (t *Place[T]) Admitted() bool { return t.admitted }

// Callers returns the number of calls that a place stands for at the nodes. The last admitted place
// also stands for all behind it.
func (t *Place[T]) Callers() int {
	if t.next != nil && t.next.admitted {
		return 1
	}
	return 1 + t.queue.length - t.queue.admitted
}

// Settle records that all nodes have this ticket, or have been sent it. From now on, the nodes
// queue later calls behind it. It reports whether this ticket is the first. If so, call Admit next.
func (t *Place[T]) Settle(ticket int64) (first bool) {
	if t.sent == 0 {
		t.sent = ticket
		return true
	}
	t.sent = min(t.sent, ticket)
	return false
}

// sentBeside returns the tickets of the nearest calls before and after this one that the nodes
// have; 0 if there is none. Readers have no order.
func (t *Place[T]) sentBeside() (before, after int64) {
	if t.queue.Shared {
		return 0, 0
	}
	for p := t.prev; p != nil && before == 0; p = p.prev {
		before = p.sent
	}
	for n := t.next; n != nil && after == 0 && n.admitted; n = n.next {
		after = n.sent
	}
	return before, after
}
