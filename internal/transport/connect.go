package transport

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// connector makes a connection in the background, one at a time. Connecting takes several round trips, and a client
// that heeds the deadlines of its calls begins again with every call: if connecting takes longer than a call may take,
// no call would ever get a connection.
type connector struct {
	mu      sync.Mutex
	busy    bool
	closed  bool
	cancel  context.CancelFunc // of the latest
	running sync.WaitGroup
}

// connect makes a connection for the calls to come, within the node's own timeout. It is called when a call on key has
// run out of time, for a client that heeds deadlines.
func (n *Node) connect(key string) {
	c := &n.connector
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.closed {
		return
	}
	c.busy = true
	var ctx context.Context
	ctx, c.cancel = context.WithTimeout(context.Background(), n.config.Timeout)
	cancel := c.cancel
	c.running.Go(func() {
		defer cancel()
		n.ping(ctx, key)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy = false
	})
}

// ping leaves its connection to the calls to come. In a cluster it asks the server that has key. It drops its error: the
// next call finds out.
func (n *Node) ping(ctx context.Context, key string) {
	cluster, ok := n.client.(*redis.ClusterClient)
	if !ok {
		_ = n.client.Ping(ctx).Err()
		return
	}
	if server, err := cluster.MasterForKey(ctx, key); err == nil {
		_ = server.Ping(ctx).Err()
	}
}

// stop begins no more connections, and ends the one under way. That takes until the node's timeout at most; if
// the client is closed as well, it ends at once.
func (c *connector) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
}
