package quorum

import (
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// ear is the client's subscription to its wake channel at one node. It is opened when a caller first
// waits there, and kept for a while after the last has gone: callers who come and go find it open.
type ear struct {
	stop    func()
	waiters int
	closer  *time.Timer // set while there are no waiters
}

// earLinger is how long a subscription is kept for the next one who waits.
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

// heard takes a message of line.lua: `hand <waiter> <attempt> <cell> <token> <lock>`, `turn <waiter> <lock>` or
// `next <waiter> <lock>`; or "", when messages may have been missed.
func (c *Client) heard(n Node, message string) {
	if message == "" {
		for _, w := range c.everyWaiter() {
			w.missed(n)
		}
		return
	}
	what, rest, _ := strings.Cut(message, " ")
	id, name, _ := strings.Cut(rest, " ")
	c.waitersMu.Lock()
	w := c.waiters[quorumlock.Owner(id)]
	c.waitersMu.Unlock()
	switch {
	case what == "hand":
		c.handed(n, w, quorumlock.Owner(id), name)
	case w == nil: // it has its lock already, or has gone
	case what == "turn":
		w.turn(Cell{n, name})
	case what == "next":
		w.next()
	}
}

// handed takes the rest of `hand <waiter> <attempt> <cell> <token> <lock>`. w is nil if the waiter has gone.
func (c *Client) handed(n Node, w *waiter, id quorumlock.Owner, rest string) {
	fields := strings.SplitN(rest, " ", 4)
	if len(fields) < 4 {
		return
	}
	attempt, err := strconv.Atoi(fields[0])
	number, err2 := strconv.Atoi(fields[1])
	token, err3 := strconv.ParseUint(fields[2], 10, 64)
	if err != nil || err2 != nil || err3 != nil {
		return
	}
	cell := Cell{n, fields[3]}
	if w == nil || !w.handed(cell, number, attempt, token) {
		go c.late(cell, number, scripts.HeirOf(id, attempt))
	}
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
