package client

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Methods for packages that keep something beside a lock at each cell, such as an election's value.

// Settings returns the lock's resolved options.
func (l *Lock) Settings() options.Settings { return l.set }

// Quorum returns the quorum and the number of cells of a lock that is no MultiLock.
func (l *Lock) Quorum() (need, cells int) { return l.config.Tree.Need(), len(l.cells) }

// Key returns the key of the lock at a cell.
func (l *Lock) Key(cell int) string { return l.cells[cell].Name }

// Ask sends a script to the node of a cell, and returns at once. The node timeout is the call's
// limit. answer is called once, perhaps before Ask returns, and must not block. Calls of one owner
// run in the order of Ask and of the lock's own calls, unless a connection breaks. Once the client
// is closed, Ask returns ErrClosed and does not call answer.
func (l *Lock) Ask(cell int, call wire.Call, answer func(wire.Reply)) error {
	if err := l.client.Begin(); err != nil {
		return err
	}
	defer l.client.End()
	n, sent := l.cells[cell].Node, l.client.mono()
	l.client.send(context.Background(), n, Foreground, l.set.NodeTimeout, []wire.Call{call}, func(replies []wire.Reply) {
		defer l.client.End()
		l.client.answered(n, replies, sent, l.client.mono(), false, &l.set)
		answer(replies[0].Boxed())
	})
	return nil
}

// Gather sends a script to every cell, as Ask does to one, but with the values of ctx. It passes
// the replies to answer, one at a time, until answer returns true or every cell has answered. Every
// cell answers by the node timeout. If ctx is done first, Gather returns ctx's error; the scripts
// may still run.
func (l *Lock) Gather(ctx context.Context, request func(cell int) wire.Call, answer func(cell int, reply wire.Reply) (enough bool)) error {
	if err := l.client.Begin(); err != nil {
		return err
	}
	defer l.client.End()
	return l.client.gather(ctx, l.cells, &l.set, request, answer)
}

// gather is [Lock.Gather] for callers between Begin and End.
func (c *Client) gather(ctx context.Context, cells []Cell, set *options.Settings, request func(cell int) wire.Call, answer func(cell int, reply wire.Reply) (enough bool)) error {
	type came struct {
		cell  int
		reply wire.Reply
	}
	replies := make(chan came, len(cells)) // late replies need no receiver
	sent := c.mono()
	for i, cell := range cells {
		c.send(ctx, cell.Node, Foreground, set.NodeTimeout, []wire.Call{request(i)}, func(r []wire.Reply) {
			c.answered(cell.Node, r, sent, c.mono(), false, set)
			replies <- came{i, r[0].Boxed()}
			c.End()
		})
	}
	for range cells {
		select {
		case r := <-replies:
			if answer(r.cell, r.reply) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Listen calls heard with every message on a channel of any node, and with "" when messages may
// have been missed. A mutex of the node is held then, so heard must not block or send calls.
func (l *Lock) Listen(channel string, heard func(message string)) (stop func()) {
	stops := make([]func(), len(l.nodes))
	for i, n := range l.nodes {
		stops[i] = n.Listen(channel, heard)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// NodeError returns err as an error of a cell's node, or unchanged if it is one already.
func (l *Lock) NodeError(cell int, err error) *quorumlock.NodeError {
	return nodeError(l.cells[cell].Node, err)
}
