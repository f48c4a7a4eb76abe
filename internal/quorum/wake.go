package quorum

import (
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// ear is the client's subscription to its wake channel at one node. It is opened when a caller first waits there,
// and kept for a while after the last has gone, so that callers who come and go find it open.
type ear struct {
	stop    func()
	waiters int
	closer  *time.Timer // set while there are no waiters
}

// earLinger is how long a subscription is kept for the next waiter.
const earLinger = 10 * time.Second

// listen makes sure that the client hears its wake channel at n, until unlisten.
func (c *Client) listen(n Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	e := c.ears[n]
	if e == nil {
		e = &ear{}
		c.ears[n] = e
		e.stop = n.Listen(scripts.WakeChannel(c.id), func(message string) { c.heard(n, message) })
	}
	e.waiters++
	if e.closer != nil {
		e.closer.Stop()
		e.closer = nil
	}
}

func (c *Client) unlisten(n Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.ears[n]
	if e == nil {
		return
	}
	if e.waiters--; e.waiters > 0 {
		return
	}
	e.closer = time.AfterFunc(earLinger, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.waiters == 0 && c.ears[n] == e {
			delete(c.ears, n)
			e.stop()
		}
	})
}

// deafen is called with mu held, by Close.
func (c *Client) deafen() {
	for _, e := range c.ears {
		e.stop()
		if e.closer != nil {
			e.closer.Stop()
		}
	}
	clear(c.ears)
}

// heard takes a message of queue.lua, or "" when messages may have been missed. Anybody who may publish can send
// one. So a handoff counts only with its proof, and other messages only make a waiter look.
func (c *Client) heard(n Node, message string) {
	if message == "" {
		for _, w := range c.everyWaiter() {
			w.missed(n)
		}
		return
	}
	what, rest, _ := strings.Cut(message, " ")
	if what == "handoff" {
		h, ok := scripts.ParseHandoff(rest)
		if !ok {
			return
		}
		if w := c.waiter(h.Waiter); w != nil && h.ProvenBy(w.secret) {
			w.handed(Cell{n, h.Lock}, h)
		}
		return
	}
	id, name, _ := strings.Cut(rest, " ")
	w := c.waiter(quorumlock.Owner(id))
	switch {
	case w == nil: // it has its lock already, or has gone
	case what == "turn":
		w.turn(Cell{n, name})
	case what == "next":
		w.next()
	}
}

func (c *Client) waiter(id quorumlock.Owner) *waiter {
	c.waitersMu.Lock()
	defer c.waitersMu.Unlock()
	return c.waiters[id]
}

func (c *Client) everyWaiter() []*waiter {
	c.waitersMu.Lock()
	defer c.waitersMu.Unlock()
	ws := make([]*waiter, 0, len(c.waiters))
	for _, w := range c.waiters {
		ws = append(ws, w)
	}
	return ws
}
