package quorum

import (
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/scripts"
)

// subscriptions are a client's, to its wake channel at each node. One is opened when a caller first waits there, and kept
// for a while after the last has gone, so that callers who come and go find it open.
//
// A node may call heard while it subscribes. So nobody subscribes with the mutex of a call held.
type subscriptions struct {
	mu     sync.Mutex
	closed bool
	of     map[Node]*subscription
}

type subscription struct {
	stop    func()
	waiters int
	closer  *time.Timer // set while there are no waiters
}

// linger is how long a subscription is kept for the next waiter.
const linger = 10 * time.Second

// listen subscribes a call that waits, when it is first called, until unlisten.
func (c *call) listen() {
	if c.listens {
		return
	}
	c.listens = true
	for _, n := range c.lock.nodes {
		c.lock.client.listen(n)
	}
	if !c.lock.set.Redisson {
		return
	}
	for i, cell := range c.lock.cells {
		c.foreign = append(c.foreign, cell.Node.Listen(scripts.UnlockChannel(cell.Name), func(string) { c.freed(i) }))
	}
}

// unlisten ends what listen began, when the call returns.
func (c *call) unlisten() {
	if c.listens {
		for _, n := range c.lock.nodes {
			c.lock.client.unlisten(n)
		}
	}
	for _, stop := range c.foreign {
		stop()
	}
}

// freed notes that somebody has released the lock at a cell. It concerns only the first in the queue: Redisson's clients
// do not know the queue, so their releases call nobody in it.
func (c *call) freed(cell int) {
	if c.lock.client.Begin() != nil {
		return
	}
	defer c.lock.client.End()
	c.mu.Lock()
	if c.machine.Cells[cell].Position == 0 {
		c.take(core.Event{Kind: core.Turn, Cell: int32(cell)})
	}
	c.flush()
}

func (c *Client) listen(n Node) {
	s := &c.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	sub := s.of[n]
	if sub == nil {
		if s.of == nil {
			s.of = make(map[Node]*subscription)
		}
		sub = &subscription{}
		s.of[n] = sub
		sub.stop = n.Listen(scripts.WakeChannel(c.id), func(message string) { c.heard(n, message) })
	}
	sub.waiters++
	if sub.closer != nil {
		sub.closer.Stop()
		sub.closer = nil
	}
}

func (c *Client) unlisten(n Node) {
	s := &c.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.of[n]
	if sub == nil {
		return
	}
	if sub.waiters--; sub.waiters > 0 {
		return
	}
	sub.closer = time.AfterFunc(linger, func() {
		s.mu.Lock()
		if sub.waiters > 0 || s.of[n] != sub {
			s.mu.Unlock()
			return
		}
		delete(s.of, n)
		s.mu.Unlock()
		sub.stop()
	})
}

// close ends all subscriptions.
func (s *subscriptions) close() {
	s.mu.Lock()
	all := s.of
	s.of, s.closed = nil, true
	s.mu.Unlock()
	for _, sub := range all {
		sub.stop()
		if sub.closer != nil {
			sub.closer.Stop()
		}
	}
}

// heard takes a message of queue.lua, or "" when messages may have been missed. Anybody who may publish can send one. So
// a handoff counts only with its proof, and other messages only make a waiter look.
func (c *Client) heard(n Node, message string) {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	if message == "" {
		for _, w := range c.all() {
			w.told(core.Turn, func(cell Cell) bool { return cell.Node == n })
		}
		return
	}
	what, rest, _ := strings.Cut(message, " ")
	if what == "handoff" {
		h, ok := scripts.ParseHandoff(rest)
		if !ok {
			return
		}
		w := c.waiter(h.Waiter)
		if w == nil || h.Cell < 0 || h.Cell >= len(w.lock.cells) || w.lock.cells[h.Cell] != (Cell{n, h.Lock}) || !h.ProvenBy(w.caller.Secret) {
			return
		}
		w.lock.saw(h.Token)
		w.step(core.Event{Kind: core.Handoff, Cell: int32(h.Cell), Attempt: int32(h.Attempt), Token: h.Token})
		return
	}
	id, name, _ := strings.Cut(rest, " ")
	w := c.waiter(quorumlock.Owner(id))
	switch {
	case w == nil: // it has its lock already, or has gone
	case what == "turn":
		w.told(core.Turn, func(cell Cell) bool { return cell == Cell{n, name} })
	case what == "next":
		w.step(core.Event{Kind: core.Next})
	}
}

// told passes on a message of some cells to the machine.
func (c *call) told(kind core.EventKind, by func(Cell) bool) {
	c.mu.Lock()
	for i, cell := range c.lock.cells {
		if by(cell) {
			c.take(core.Event{Kind: kind, Cell: int32(i)})
		}
	}
	c.flush()
}
