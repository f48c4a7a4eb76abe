package transport

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Ready asks whether the node would grant the lock name, which nobody uses, and returns how long it took to answer. It leaves
// nothing behind. s has the prefix of the locks and the restart guard. It returns when ctx is done, or after the node's timeout. The
// error is a *[quorumlock.NodeError] that says why the node does not serve: it cannot be reached, is a replica, has no memory left,
// refuses a command to the user, has other names only, or is kept out by the guard. It needs no more permissions than a lock.
func (n *Node) Ready(ctx context.Context, s options.Settings, name string) (time.Duration, error) {
	if ctx == nil {
		return 0, quorumlock.ErrNilContext
	}
	asked := time.Now()
	err := n.call(ctx, wire.Ready(s.Prefix+name, options.Quarantine(&s)), nil).Readied()
	return time.Since(asked), n.typed(err)
}
