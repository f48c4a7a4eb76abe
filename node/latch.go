package node

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// Latch is a latch on a single node: a node that forgets its data forgets the latch. It is safe for
// concurrent use; its zero value is not usable. See
// [github.com/quorumlock/quorumlock/redlock.Latch] for the rules of its calls, and for a latch that
// survives the loss of nodes.
type Latch struct{ latch *quorum.Latch }

// Latch returns the latch of that name, which opens at count different ids. It does no I/O. If the
// name, the count or an option is invalid, the methods of the latch return an error.
func (n *Node) Latch(name string, count int, opts ...quorumlock.Option) *Latch {
	set, err := n.resolve(opts)
	cells := []quorum.Cell{{Node: transport.Of(n), Name: set.Prefix + name}}
	return &Latch{quorum.NewLatch(transport.Of(n).Locks(), name, count, 1, cells, set, err)}
}

// Name returns the name of the latch.
func (l *Latch) Name() string { return l.latch.Name() }

// Done adds an id to the latch. It returns nil only when the node has the id, or the latch is open.
// After an error, the id may have been added.
func (l *Latch) Done(ctx context.Context, id string) error { return l.latch.Done(ctx, id) }

// Wait returns nil when the latch is open, and ctx's error when ctx is done first.
func (l *Latch) Wait(ctx context.Context) error { return l.latch.Wait(ctx) }

// Count returns the number of different ids, at most the count of the latch.
func (l *Latch) Count(ctx context.Context) (int, error) { return l.latch.Count(ctx) }
