package transport

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Do runs scripts at the node in the order of calls, none of them twice, and returns at once. It
// calls answer once, with a reply for each, and perhaps before Do returns. The limit bounds the
// silence of the node: see lane, and pool for a client that New was given. A call without a reply
// has an error, a *[quorumlock.NodeError]. Such a call may have run, or may run later, unless the
// error marks it as not sent. answer must not block, and must not keep the slice. Do adds to
// guarded calls what the node knows of the server's age.
//
// ctx is for the hooks of a client that New was given: its values count, but not its end.
func (n *Node) Do(ctx context.Context, lane client.Lane, limit time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	answer = n.sight.join(calls, answer)
	switch {
	case len(calls) == 0:
		answer(nil)
	case n.lanes[0] != nil:
		n.lane(lane, len(calls)).do(limit, calls, answer)
	default:
		n.single.do(ctx, line{min(lane, client.Background), calls[0].Waiter()}, limit, detached(calls), answer)
	}
}

// lane returns the lane for so many calls. The first renewal of a process would wait for a
// connection, which takes long in a busy process or to a distant node. So the other lane takes a
// few renewals meanwhile. It takes no pending release, which may wait for its answer for longer than
// the calls behind it may.
func (n *Node) lane(number client.Lane, calls int) *lane {
	const few = 16
	l := n.lanes[min(number, client.Background)]
	if number == client.Background && !l.prepare() && calls <= few && n.lanes[client.Foreground].isConnected() {
		return n.lanes[client.Foreground]
	}
	return l
}

// detached returns copies of calls that stay valid after Do has returned and answer was called.
func detached(calls []wire.Call) []wire.Call {
	own := make([]wire.Call, len(calls))
	for i, c := range calls {
		own[i] = c.Detached()
	}
	return own
}

// unanswered returns replies to the calls, all with err.
func unanswered(calls []wire.Call, err error) []wire.Reply {
	replies := make([]wire.Reply, len(calls))
	for i := range replies {
		replies[i].Err = err
	}
	return replies
}
