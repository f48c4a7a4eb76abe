package quorum

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// What a package needs that keeps something beside a lock, at each of its cells, such as the value of an election.

// Settings returns what the lock's options come to.
func (l *Lock) Settings() options.Settings { return l.set }

// Quorum returns how many of the lock's cells must agree, and how many there are. It is for a lock that is no MultiLock.
func (l *Lock) Quorum() (need, cells int) { return l.tree.Need(), len(l.cells) }

// Key returns the name of the lock at a cell: its key.
func (l *Lock) Key(cell int) string { return l.cells[cell].Name }

// Ask sends a script to the node of a cell, within the node timeout. It does not wait: answer is called once, with the
// reply, perhaps before Ask returns, and must not block. The calls of one owner run in the order of the Asks, and in that
// of the lock's own calls, unless a connection breaks. It returns ErrClosed, and does not call answer, once the client is
// closed.
func (l *Lock) Ask(cell int, call wire.Call, answer func(wire.Reply)) error {
	if err := l.client.Begin(); err != nil {
		return err
	}
	defer l.client.End()
	deadline := time.Now().Add(l.set.NodeTimeout)
	l.client.send(context.Background(), l.cells[cell].Node, Foreground, deadline, []wire.Call{call}, func(replies []wire.Reply) {
		defer l.client.End()
		answer(replies[0].Boxed())
	})
	return nil
}

// Listen calls heard with every message on a channel of any node, and with "" when some may have been missed. heard is
// called with a mutex of the node's held, so it must not block and must ask nothing.
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

// NodeError makes what went wrong at a cell an error of its node, unless it is one.
func (l *Lock) NodeError(cell int, err error) *quorumlock.NodeError {
	return nodeError(l.cells[cell].Node, err)
}
