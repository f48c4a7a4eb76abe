package client

import (
	"context"
	"slices"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/engine"
)

// localQueue is the local queue of one lock; guarded by Client.mu, as are its places.
type localQueue struct {
	engine.LocalQueue[chan struct{}]
	lock *Lock
}

// place is a caller's entry in a local queue. Its channel is closed when the caller is admitted.
// The channel is nil if the caller was admitted at once.
type place struct {
	engine.Place[chan struct{}]
	queue *localQueue
}

// enqueue waits until the caller is admitted from the local queue of l. The caller must
// call leaveLocalQueue. If both results are nil, the owner of l has acquired the lock meanwhile:
// its callers enter that hold together, past the callers that wait for the end of the hold.
func (c *Client) enqueue(ctx context.Context, l *Lock, w *watch, entered <-chan struct{}) (*place, error) {
	t := &place{}
	c.mu.Lock()
	t.Ticket = c.newTicket()
	t.queue = c.localQueueOf(l)
	t.queue.Push(&t.Place)
	t.queue.admit()
	if t.Admitted() {
		c.mu.Unlock()
		return t, nil
	}
	t.Caller = make(chan struct{})
	w.note(quorumlock.StepQueued, nil)
	c.mu.Unlock()

	var err error
	for has := false; err == nil && !has; {
		select {
		case <-t.Caller:
			return t, nil
		case <-entered: // the caller stays queued if the hold has ended since
			has = c.enters(l)
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.stopping:
			err = quorumlock.ErrClosed
		}
	}
	c.leaveLocalQueue(t)
	return nil, err
}

// placeOf returns the place of a call whose ticket is that of an earlier call. It waits for no other
// place: at the nodes, the ticket decides.
func (c *Client) placeOf(l *Lock, ticket int64) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &place{queue: &localQueue{lock: l}}
	p.Ticket, p.queue.Slots = ticket, l.slots
	p.queue.Push(&p.Place)
	p.queue.admit()
	return p
}

// leaveLocalQueue removes a caller, admitted or not, and admits the next.
func (c *Client) leaveLocalQueue(t *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := t.queue
	t.Leave()
	q.admit()
	if !q.Empty() {
		return
	}
	key := q.lock.names
	if c.queues[key] = slices.DeleteFunc(c.queues[key], func(other *localQueue) bool { return other == q }); len(c.queues[key]) == 0 {
		delete(c.queues, key)
	}
}

// admit lets callers go to the nodes. The caller holds Client.mu.
func (q *localQueue) admit() {
	for t := q.Admit(); t != nil; t = q.Admit() {
		if t.Caller != nil {
			close(t.Caller)
		}
	}
}

// callers returns the number of calls that a place stands for at the nodes.
func (c *Client) callers(t *place) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.Callers()
}

// localQueueOf returns the local queue of l, which it creates if necessary. The caller holds mu.
func (c *Client) localQueueOf(l *Lock) *localQueue {
	key := l.names
	for _, q := range c.queues[key] {
		if q.lock.same(l) {
			return q
		}
	}
	q := &localQueue{lock: l}
	q.Shared, q.Slots = l.shared, l.slots
	c.queues[key] = append(c.queues[key], q)
	return q
}
