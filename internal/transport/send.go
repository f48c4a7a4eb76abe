package transport

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Do runs scripts at the node, each exactly once, and calls answer with their replies in the order of the calls. It
// does not wait. answer is called once, at the deadline at the latest, perhaps before Do returns; then the calls that
// are not answered have errors: those may or may not have run, or may run still, unless the error says that they
// were not sent. Every error is a *[quorumlock.NodeError]. answer must not block, and must not keep the slice.
//
// ctx is for the hooks of a client that New was given: its values, not its end, matter.
func (n *Node) Do(ctx context.Context, lane quorum.Lane, deadline time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	switch {
	case len(calls) == 0:
		answer(nil)
	case n.err != nil:
		answer(n.unanswered(len(calls), n.err))
	case n.lanes[0] != nil:
		n.lanes[lane].do(deadline, calls, answer)
	default:
		n.single.do(&singleRequest{ctx: ctx, line: line{lane, calls[0].Waiter()}, deadline: deadline, calls: detached(calls), answer: answer})
	}
}

// detached returns calls that may be read after Do has returned, and after they are answered.
func detached(calls []wire.Call) []wire.Call {
	own := make([]wire.Call, len(calls))
	for i, c := range calls {
		own[i] = c.Detached()
	}
	return own
}

// Send is Do for a caller that waits for the replies, until ctx's deadline, or for the node's timeout if it has none.
// It need not notice that ctx is cancelled.
func (n *Node) Send(ctx context.Context, calls ...wire.Call) []wire.Reply {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(n.config.Timeout)
	}
	answered := make(chan []wire.Reply, 1)
	n.Do(ctx, quorum.Foreground, deadline, calls, func(rs []wire.Reply) {
		replies := make([]wire.Reply, len(rs))
		for i, r := range rs {
			replies[i] = r.Boxed()
		}
		answered <- replies
	})
	return <-answered
}

func (n *Node) unanswered(calls int, err error) []wire.Reply {
	replies := make([]wire.Reply, calls)
	for i := range replies {
		replies[i].Err = n.Failure(err, false)
	}
	return replies
}
