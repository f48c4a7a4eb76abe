package node

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// Latch is a latch on a single node: it is forgotten with that node. It is safe for concurrent use; its zero value is
// not usable. See [github.com/quorumlock/quorumlock/redlock.Latch], which outlives nodes, for what its calls do.
type Latch struct{ latch *quorum.Latch }

// Latch returns the latch of that name, which count different ids open. If the name, the count or an option is bad, its
// calls return an error that says so.
func (n *Node) Latch(name string, count int, opts ...quorumlock.Option) *Latch {
	set, err := n.resolve(opts)
	cells := []quorum.Cell{{Node: transport.Of(n), Name: set.Prefix + name}}
	return &Latch{quorum.NewLatch(transport.Of(n).Locks(), name, count, 1, cells, set, err)}
}

// Name returns the name of the latch.
func (l *Latch) Name() string { return l.latch.Name() }

// Done adds an id to the latch. It returns nil once the node has it, and not before.
func (l *Latch) Done(ctx context.Context, id string) error { return l.latch.Done(ctx, id) }

// Wait returns nil when the latch is open.
func (l *Latch) Wait(ctx context.Context) error { return l.latch.Wait(ctx) }

// Count returns how many different ids are done, at most as many as open the latch.
func (l *Latch) Count(ctx context.Context) (int, error) { return l.latch.Count(ctx) }
