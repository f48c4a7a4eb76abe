package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Do runs scripts at the node, each exactly once, and calls answer with their replies in the order of the calls. It
// does not wait. answer is called once, at the deadline at the latest, perhaps before Do returns; then the calls that
// are not answered have errors: those may or may not have run, or may run still, unless the error says that they
// were not sent. Every error is a *[quorumlock.NodeError]. answer must not block, and must not keep the slice.
//
// ctx is for the hooks of a client that New was given: its values, not its end, matter. receipt may be nil.
func (n *Node) Do(ctx context.Context, lane quorum.Lane, deadline time.Time, calls []wire.Call, receipt *quorum.Receipt, answer func([]wire.Reply)) {
	switch {
	case len(calls) == 0:
		answer(nil)
	case n.err != nil:
		answer(n.unanswered(len(calls), n.err))
	case n.lanes[0] != nil:
		n.lanes[lane].do(deadline, calls, receipt, answer)
	default:
		n.single.do(&errand{ctx: ctx, line: line{lane, calls[0].Waiter()}, deadline: deadline, calls: detached(calls), answer: answer})
	}
}

// Recall cancels the Do that was given receipt, while it waits in its lane's queue. It returns false if it is too late, if the Do is
// the first in the queue, or if the node has no lanes.
func (n *Node) Recall(lane quorum.Lane, receipt *quorum.Receipt) bool {
	l := n.lanes[lane]
	return l != nil && l.recall(receipt)
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
	n.Do(ctx, quorum.Foreground, deadline, calls, nil, func(rs []wire.Reply) {
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

// Failure says what went wrong at this node. A deadline shows up in several guises.
func (n *Node) Failure(err error, late bool) *quorumlock.NodeError {
	err = namingPassword(withoutArguments(err))
	if (late || errors.Is(err, os.ErrDeadlineExceeded)) && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w: %w", context.DeadlineExceeded, err)
	}
	return &quorumlock.NodeError{Node: n.config.Name, Err: err}
}

// namingPassword says what is missing where a server may not: one that wants a password cuts off whoever
// sends many arguments without it.
func namingPassword(err error) error {
	if said := err.Error(); strings.Contains(said, "NOAUTH") || strings.Contains(said, "unauthenticated") {
		return fmt.Errorf("the node wants a password: give it in the URL or the client's options: %w", err)
	}
	return err
}

// repeated precedes the arguments that a server quotes.
const repeated = ", with args beginning with"

// withoutArguments cuts off what a server repeats of a command that it does not know: those of AUTH
// and HELLO, which it may have by another name, are the password.
func withoutArguments(err error) error {
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return err
	}
	said, _, repeats := strings.Cut(e.Error(), repeated)
	if !repeats {
		return err
	}
	return errors.New(said)
}

// answered is whether the server sent that error: it was reached, and refuses.
func answered(err error) bool {
	_, ok := err.(redis.Error)
	return ok
}
