package quorum

import (
	"container/list"
	"context"
	"slices"

	"github.com/quorumlock/quorumlock"
)

// The callers of one lock at one client wait in a local queue. Only the first few go to the nodes,
// so the queues of the nodes stay short.

// maxAdmitted is the number of callers of a local queue that are queued at the nodes. With one, the
// next caller would join the queues of the nodes only when the first has the lock, behind later
// calls of other processes. With three, it is queued long before a short hold ends.
const maxAdmitted = 3

// maxSlots limits the slots of a semaphore for which more callers are admitted.
const maxSlots = 64

// localQueue is the local queue of one lock; guarded by Client.mu, as its turns are.
type localQueue struct {
	lock     *Lock
	turns    list.List // of *turn, in the order of their calls; the admitted ones come first
	admitted int       // number of admitted turns
}

// turn is a caller's entry in a local queue.
type turn struct {
	queue    *localQueue
	place    *list.Element
	ticket   int64         // by the client's own clock
	sent     int64         // the ticket that all nodes have, or were sent; 0 before; never rises
	come     chan struct{} // closed when the caller is admitted
	admitted bool          // come is closed
}

// enqueue waits until the caller is admitted from the local queue of l. The caller must end the
// turn. Without a turn and an error, the owner of l has acquired the lock meanwhile: its callers
// enter that hold together, past the callers that wait for the end of the hold.
func (c *Client) enqueue(ctx context.Context, l *Lock, w *watch) (*turn, error) {
	t := &turn{come: make(chan struct{})}
	var entered <-chan struct{}
	c.mu.Lock()
	if l.set.Owner != "" {
		if c.has(l.set.Owner, l) != nil {
			c.mu.Unlock()
			return nil, nil
		}
		entered = c.named[l.set.Owner].entered // not nil: waitAndLock has called awaitOwner
	}
	t.ticket = c.newTicket()
	t.queue = c.localQueueOf(l)
	t.place = t.queue.turns.PushBack(t)
	t.queue.admit()
	if !t.admitted {
		w.note(quorumlock.StepQueued, nil)
	}
	c.mu.Unlock()

	var err error
	for has := false; err == nil && !has; {
		select {
		case <-t.come:
			return t, nil
		case <-entered: // for any lock; the turn stays unless the owner has l
			has, entered = c.enters(l)
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.stopping:
			err = quorumlock.ErrClosed
		}
	}
	c.endTurn(t)
	return nil, err
}

// endTurn removes a turn from its queue, admitted or not, and admits the next.
func (c *Client) endTurn(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := t.queue
	q.turns.Remove(t.place)
	if t.admitted {
		q.admitted--
	}
	q.admit()
	if q.turns.Len() > 0 {
		return
	}
	key := q.lock.cells[0]
	if c.queues[key] = slices.DeleteFunc(c.queues[key], func(other *localQueue) bool { return other == q }); len(c.queues[key]) == 0 {
		delete(c.queues, key)
	}
}

// admit admits the first few turns, or all turns that share the lock: no reader waits for another.
// A turn is admitted only when the nodes have the ticket of the one before, since a node may
// replace an unsure ticket. The caller holds Client.mu.
func (q *localQueue) admit() {
	e, few := q.turns.Front(), maxAdmitted
	if q.lock.shared {
		e, few = q.turns.Back(), 1 // all before it have been admitted
	}
	few += min(q.lock.slots, maxSlots) - 1
	for range few {
		if e == nil {
			return
		}
		if t := e.Value.(*turn); !t.admitted {
			t.admitted = true
			q.admitted++
			close(t.come)
		}
		// Several callers may get slots in one round trip.
		if e.Value.(*turn).sent == 0 && q.lock.slots <= 1 {
			return
		}
		e = e.Next()
	}
}

// callers returns the number of calls that a turn stands for at the nodes. The last admitted turn
// stands for all behind it.
func (c *Client) callers(t *turn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := t.place.Next(); next != nil && next.Value.(*turn).admitted {
		return 1
	}
	return 1 + t.queue.turns.Len() - t.queue.admitted
}

// localQueueOf returns the local queue of l, which it creates if necessary. The caller holds mu.
func (c *Client) localQueueOf(l *Lock) *localQueue {
	key := l.cells[0]
	for _, q := range c.queues[key] {
		if q.lock.same(l) {
			return q
		}
	}
	q := &localQueue{lock: l}
	c.queues[key] = append(c.queues[key], q)
	return q
}
