package quorum

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// If a call that gives something back fails, a key or an entry in a queue may be left at the node until its TTL. The
// node then refuses a lock that nobody holds, and several such nodes, one after another, would block the lock. So the
// call is owed to the node: it is sent again until the node answers or the TTL is over. It may run twice, which does no
// harm: it names an owner that is used once, or a waiter that has gone.

const (
	maxOwed  = 4096 // calls to one node; beyond that, what is left there ends with its TTL
	owedAt   = 500  // calls in one pipeline
	firstTry = 50 * time.Millisecond
	lastTry  = time.Second
)

// debts are the calls that a client owes its nodes. The zero value owes nothing.
type debts struct {
	count atomic.Int64 // of all; looked at before every lock of mu

	mu   sync.Mutex
	of   map[Node]*debt
	done chan struct{} // closed when nothing is owed; nil if nobody asks
}

// debt is what is owed to one node. It is guarded by the mutex of the debts.
type debt struct {
	calls []owed
	timer *time.Timer
	pause time.Duration // until the next try
	busy  bool          // a try is under way
}

type owed struct {
	call  wire.Call
	until time.Time
}

// owe sends a call to a node again and again until the node answers, for as long as what it removes may last.
func (c *Client) owe(n Node, call wire.Call, lasts time.Duration, err error) {
	if !isDown(err) {
		return
	}
	d := &c.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-c.stopping: // Close may have taken the debts away already
		if c.isClosed() {
			return
		}
	default:
	}
	o := d.of[n]
	if o == nil {
		o = &debt{pause: firstTry}
		if d.of == nil {
			d.of = make(map[Node]*debt)
		}
		d.of[n] = o
	}
	if len(o.calls) >= maxOwed {
		return
	}
	o.calls = append(o.calls, owed{call, time.Now().Add(lasts)})
	d.count.Add(1)
	if o.timer == nil {
		o.timer = time.AfterFunc(o.pause, func() { c.pay(n) })
	}
}

// pay sends what is owed to a node.
func (c *Client) pay(n Node) {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	d := &c.debts
	d.mu.Lock()
	o := d.of[n]
	if o == nil || o.busy {
		d.mu.Unlock()
		return
	}
	o.busy = true
	o.timer.Stop()
	due := o.calls
	o.calls = nil
	d.mu.Unlock()
	c.start(func() { c.settle(n, o, due) })
}

// settle sends what is due, and keeps what fails again for the next try.
func (c *Client) settle(n Node, o *debt, due []owed) {
	now := time.Now()
	total := len(due)
	due = slices.DeleteFunc(due, func(w owed) bool { return !w.until.After(now) })
	var left []owed
	for some := range slices.Chunk(due, owedAt) {
		if len(left) > 0 { // it does not answer
			left = append(left, some...)
			continue
		}
		calls := make([]wire.Call, len(some))
		for i, w := range some {
			calls[i] = w.call
		}
		answered := make(chan struct{})
		c.send(context.Background(), n, Background, time.Now().Add(lastTry), calls, func(replies []wire.Reply) {
			for i, r := range replies {
				if r.Err != nil && isDown(r.Err) {
					left = append(left, some[i])
				}
			}
			close(answered)
			c.End()
		})
		<-answered
	}

	d := &c.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	o.busy = false
	o.calls = append(left, o.calls...)
	d.count.Add(int64(len(left) - total))
	switch {
	case len(o.calls) == 0:
		delete(d.of, n)
		d.checkDone()
	case c.isClosed():
		delete(d.of, n)
		d.checkDone()
	default:
		o.pause = min(2*o.pause, lastTry)
		if len(left) == 0 {
			o.pause = firstTry
		}
		o.timer = time.AfterFunc(o.pause, func() { c.pay(n) })
	}
}

// hurry pays at once, since the node has just answered.
func (c *Client) hurry(n Node) {
	d := &c.debts
	if d.count.Load() == 0 {
		return
	}
	d.mu.Lock()
	o := d.of[n]
	owes := o != nil && !o.busy && len(o.calls) > 0
	d.mu.Unlock()
	if owes {
		c.pay(n)
	}
}

// forgive ends all tries, by Close.
func (c *Client) forgive() {
	d := &c.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, o := range d.of {
		if o.timer != nil {
			o.timer.Stop()
		}
		if !o.busy {
			delete(d.of, n)
		}
	}
	d.count.Store(0)
	d.checkDone()
}

// wait returns when nothing is owed, or ctx is done.
func (d *debts) wait(ctx context.Context) error {
	d.mu.Lock()
	if d.done == nil {
		d.done = make(chan struct{})
		d.checkDone()
	}
	done := d.done
	d.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkDone is called with mu held.
func (d *debts) checkDone() {
	if d.done == nil || len(d.of) > 0 {
		return
	}
	closeOnce(d.done)
}
