package node

import (
	"context"
	"sync"
)

// connector makes a connection in the background, one at a time. Connecting takes several round trips, and
// go-redis begins it anew with every call: where they take longer than a call may, no call would ever get one.
type connector struct {
	mu      sync.Mutex
	busy    bool
	closed  bool
	cancel  context.CancelFunc // of the latest
	running sync.WaitGroup
}

// connect has a connection made for the calls to come, within the node's own timeout. It is called when a
// call has run out of time.
func (n *Node) connect() {
	c := &n.connector
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.closed || !n.owned {
		return
	}
	c.busy = true
	var ctx context.Context
	ctx, c.cancel = context.WithTimeout(context.Background(), n.timeout)
	cancel := c.cancel
	c.running.Go(func() {
		defer cancel()
		_ = n.client.Ping(ctx).Err() // it leaves its connection to the next
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy = false
	})
}

// stop ends what is under way when the client is closed, too, and lets nothing begin.
func (c *connector) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
}
