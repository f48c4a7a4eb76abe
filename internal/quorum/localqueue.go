package quorum

import (
	"container/list"
	"context"
	"slices"

	"github.com/quorumlock/quorumlock"
)

// The callers of one lock at one client wait in a local queue, and only the first few of them go to the nodes: the
// nodes' queues stay short, however many callers a process has.

// admitted is how many callers of a local queue are queued at the nodes. With one, the next caller would join the
// nodes' queues only when the first has the lock, and could be overtaken by others that called later. With three, it
// is queued long before a short hold is over.
const admitted = 3

// maxSlots is for how many slots of a semaphore callers are admitted beside these.
const maxSlots = 64

// localQueue is the local queue of one lock.
type localQueue struct {
	lock  *Lock
	turns list.List // of *turn, in the order of their calls: first those that are admitted
	open  int       // how many are
}

// turn is a caller's entry in a local queue.
type turn struct {
	queue  *localQueue
	place  *list.Element
	ticket int64         // by the client's own clock
	sent   int64         // the ticket that all nodes have, or have been sent; 0 until then
	come   chan struct{} // closed when the caller is admitted
	open   bool          // come is closed
}

// enqueue waits until the caller is admitted from the local queue of l. The caller must end the turn. It returns
// neither a turn nor an error if the owner of l has got the lock meanwhile: the callers of that owner enter the hold
// together, past those who wait for its end.
func (c *Client) enqueue(ctx context.Context, l *Lock, w *watch) (*turn, error) {
	t := &turn{come: make(chan struct{})}
	var entered <-chan struct{}
	c.mu.Lock()
	if l.set.Owner != "" {
		if c.has(l.set.Owner, l) != nil {
			c.mu.Unlock()
			return nil, nil
		}
		entered = c.named[l.set.Owner].entered // somebody waits: see waitAndLock
	}
	t.ticket = c.newTicket()
	t.queue = c.localQueueOf(l)
	t.place = t.queue.turns.PushBack(t)
	t.queue.admit()
	if !t.open {
		w.note(quorumlock.StepQueued, nil)
	}
	c.mu.Unlock()

	var err error
	for has := false; err == nil && !has; {
		select {
		case <-t.come:
			return t, nil
		case <-entered: // for some lock: the turn is kept unless it is this one
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

// endTurn takes a turn out of its queue, admitted or not, and admits the next.
func (c *Client) endTurn(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := t.queue
	q.turns.Remove(t.place)
	if t.open {
		q.open--
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

// admit lets the first few go to the nodes, or all of those who share the lock: no reader waits for another. Nobody
// goes before the nodes have the ticket of the caller before, since a node may replace an unsure one. It is called with
// the client's mu held.
func (q *localQueue) admit() {
	e, few := q.turns.Front(), admitted
	if q.lock.shared {
		e, few = q.turns.Back(), 1 // all before it have been admitted
	}
	few += min(q.lock.slots, maxSlots) - 1
	for range few {
		if e == nil {
			return
		}
		if t := e.Value.(*turn); !t.open {
			t.open = true
			q.open++
			close(t.come)
		}
		if e.Value.(*turn).sent == 0 && q.lock.slots <= 1 { // several callers may get slots in one round trip
			return
		}
		e = e.Next()
	}
}

// callers returns how many calls a turn stands for at the nodes: the last one admitted stands for all behind it.
func (c *Client) callers(t *turn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := t.place.Next(); next != nil && next.Value.(*turn).open {
		return 1
	}
	return 1 + t.queue.turns.Len() - t.queue.open
}

// localQueueOf is called with mu held.
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
