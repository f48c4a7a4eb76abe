package client

import (
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// subscriptions are the client's subscriptions to its wake channels at the nodes. The first waiter
// at a node opens one. It stays open for a while after the last, because callers come and go.
//
// A node may call heard while it subscribes. So the caller of Node.Listen holds no mutex of a call.
type subscriptions struct {
	mu     sync.Mutex
	closed bool
	of     map[source]*subscription
}

// source is a channel at a node.
type source struct {
	node    Node
	channel string
}

type subscription struct {
	stop    func()
	waiters int
	closer  *time.Timer // ends the subscription after linger; nil while there are waiters
}

// ears are the subscriptions of a waiting call.
type ears struct {
	listens bool     // subscribed to the client's channel
	hears   bool     // subscribed to Redisson's channel at some cell
	sources []source // its channels if a node has shard channels; nil otherwise
}

// linger is how long a subscription without waiters stays open.
const linger = 10 * time.Second

// listen subscribes a waiting call, until unlisten. It is called again when the call goes on
// waiting, and when messages of a node may have been missed. The node may have turned out since to
// have shard channels, and to call the waiter there.
func (c *session) listen() {
	if now := c.lock.shardSources(); !c.ears.listens || !slices.Equal(now, c.ears.sources) {
		was, listened := c.ears.sources, c.ears.listens
		c.ears.sources, c.ears.listens = now, true
		c.eachSource(now, c.lock.client.listen)
		if listened {
			c.eachSource(was, c.lock.client.unlisten)
		}
	}
	if c.lock.client.redisson.some.Load() > 0 {
		c.listenToRedisson()
	}
}

// unlisten ends the effect of listen, when the call returns.
func (c *session) unlisten() {
	if c.ears.listens {
		c.eachSource(c.ears.sources, c.lock.client.unlisten)
	}
	if c.ears.hears {
		c.ignoreRedisson()
	}
}

// eachSource calls f with each source, or, if sources is nil, with the wake channel of each node.
func (c *session) eachSource(sources []source, f func(source)) {
	if sources == nil {
		for _, n := range c.lock.nodes {
			f(c.lock.client.source(n))
		}
	}
	for _, from := range sources {
		f(from)
	}
}

// source returns the client's wake channel at a node.
func (c *Client) source(n Node) source { return source{n, c.wake} }

// shardSources returns the channels for the lock's waiters if a node has shard channels, and
// otherwise nil. With shard channels, each lock has a channel of its own.
func (l *Lock) shardSources() []source {
	sharded := false
	for _, n := range l.nodes {
		s, ok := n.(interface{ Sharded() bool })
		sharded = sharded || ok && s.Sharded()
	}
	if !sharded {
		return nil
	}
	var all []source
	for _, cell := range l.cells {
		from := l.client.source(cell.Node)
		if s, ok := cell.Node.(interface{ Sharded() bool }); ok && s.Sharded() {
			from.channel = wire.ShardWakeChannel(cell.Name, l.client.id)
		}
		if !slices.Contains(all, from) {
			all = append(all, from)
		}
	}
	return all
}

// wantListen makes the goroutine of a waiting call call listen.
func (c *session) wantListen() {
	select {
	case c.waits <- struct{}{}:
	default:
	}
}

func (c *Client) listen(from source) {
	s := &c.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	sub := s.of[from]
	if sub == nil {
		if s.of == nil {
			s.of = make(map[source]*subscription)
		}
		sub = &subscription{}
		s.of[from] = sub
		sub.stop = from.node.Listen(from.channel, func(message string) { c.heard(from, message) })
	}
	sub.waiters++
	if sub.closer != nil {
		sub.closer.Stop()
		sub.closer = nil
	}
}

func (c *Client) unlisten(from source) {
	s := &c.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.of[from]
	if sub == nil {
		return
	}
	if sub.waiters--; sub.waiters > 0 {
		return
	}
	sub.closer = time.AfterFunc(linger, func() {
		s.mu.Lock()
		if sub.waiters > 0 || s.of[from] != sub {
			s.mu.Unlock()
			return
		}
		delete(s.of, from)
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

// heard handles a message of queue.lua, or "" when messages of the source may have been missed.
func (c *Client) heard(from source, message string) {
	if c.Begin() != nil {
		return
	}
	defer c.End()
	if message == "" {
		for _, w := range c.waiting() {
			w.missed(from)
		}
		return
	}
	m, ok := engine.ParseMessage(message)
	if !ok {
		return
	}
	w := c.waiter(m.Waiter)
	if w == nil { // the call has ended
		return
	}
	cell := w.lock.indexOf(Cell{Node: from.node, Name: m.Lock})
	if e, ok := m.Event(cell, w.caller.Secret); ok && cell >= 0 {
		w.mu.Lock()
		now := c.time()
		if e.Kind == core.Handoff {
			w.lock.saw(now.Mono, e.Token)
			w.handedBeside(now, cell)
		}
		w.applyAt(now, e)
		w.flush()
	}
}

// look makes the machine look at a cell.
func (c *session) look(at Cell) {
	if i := c.lock.indexOf(at); i >= 0 {
		c.step(core.Event{Kind: core.Turn, Cell: int32(i)})
	}
}

// missed makes the machine look at the cells that call the waiter through a source, after messages
// may have been missed there. The channel decides, and not the call's subscriptions: a waiter is in
// the queues of the nodes before the call listens.
func (c *session) missed(from source) {
	client := c.lock.client
	var turns []core.Event
	for i, cell := range c.lock.cells {
		if cell.Node == from.node && (from.channel == client.wake || from.channel == wire.ShardWakeChannel(cell.Name, client.id)) {
			turns = append(turns, core.Event{Kind: core.Turn, Cell: int32(i)})
		}
	}
	if len(turns) > 0 {
		c.step(turns...)
		c.wantListen()
	}
}
