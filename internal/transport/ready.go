package transport

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Ready asks whether the node would grant a lock now, and returns how long it took to say so. It changes nothing. s has the prefix of
// the locks and the restart guard. It returns when ctx is done, or after the node's timeout. The error is a
// *[quorumlock.NodeError] that says why the node does not serve: it cannot be reached, is a replica, has no memory left, or
// is kept out by the guard. It needs no more permissions than a lock.
func (n *Node) Ready(ctx context.Context, s options.Settings) (time.Duration, error) {
	if ctx == nil {
		return 0, quorumlock.ErrNilContext
	}
	asked := time.Now()
	err := n.call(ctx, wire.Ready(s.Prefix, options.Quarantine(&s)), nil).Readied()
	return time.Since(asked), n.typed(err)
}
