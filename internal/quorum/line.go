package quorum

import (
	"container/list"
	"context"
	"slices"

	"github.com/quorumlock/quorumlock"
)

// The callers of one lock at one client stand in a local line, and only its head goes to the nodes: a
// process with many callers waits for one turn at a time, like any other.

// line is the local line of one lock.
type line struct {
	lock  *Lock
	turns list.List // of chan struct{}, closed when the turn has come: always for the first
}

// enqueue waits for the caller's turn in the local line of l. The turn must be ended with done. It returns
// neither a turn nor an error if the owner of l has got the lock meanwhile: its callers enter together,
// past those who wait for it to end.
func (c *Client) enqueue(ctx context.Context, l *Lock) (done func(), err error) {
	turn := make(chan struct{})
	var entered chan struct{}
	c.mu.Lock()
	if l.set.Owner != "" {
		if c.has(l.set.Owner, l) != nil {
			c.mu.Unlock()
			return nil, nil
		}
		entered = c.entered
	}
	q := c.lineOf(l)
	place := q.turns.PushBack(turn)
	if q.turns.Front() == place {
		close(turn)
	}
	c.mu.Unlock()

	done = func() { c.dequeue(q, place) }
	select {
	case <-turn:
		return done, nil
	case <-entered:
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.done:
		err = quorumlock.ErrClosed
	}
	done()
	return nil, err
}

// dequeue takes a turn out, whether it has come or not, and passes it on if it had.
func (c *Client) dequeue(q *line, place *list.Element) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := q.turns.Front() == place
	q.turns.Remove(place)
	next := q.turns.Front()
	switch {
	case next == nil:
		key := q.lock.cells[0]
		if c.lines[key] = slices.DeleteFunc(c.lines[key], func(other *line) bool { return other == q }); len(c.lines[key]) == 0 {
			delete(c.lines, key)
		}
	case first:
		close(next.Value.(chan struct{}))
	}
}

// lineOf is called with mu held.
func (c *Client) lineOf(l *Lock) *line {
	key := l.cells[0]
	for _, q := range c.lines[key] {
		if q.lock.same(l) {
			return q
		}
	}
	q := &line{lock: l}
	c.lines[key] = append(c.lines[key], q)
	return q
}
