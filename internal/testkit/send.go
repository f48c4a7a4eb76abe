package testkit

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// Send sends calls to a node, and waits for the replies until ctx's deadline, or for the node's
// timeout if there is none.
func Send(ctx context.Context, n *node.Node, calls ...wire.Call) []wire.Reply {
	to := transport.Of(n)
	limit := to.Timeout()
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	answered := make(chan []wire.Reply, 1)
	to.Do(ctx, client.Foreground, limit, calls, func(rs []wire.Reply) {
		replies := make([]wire.Reply, len(rs))
		for i, r := range rs {
			replies[i] = r.Boxed()
		}
		answered <- replies
	})
	return <-answered
}
