package transport

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Ready tests whether the node would grant the lock name, which no caller uses, and returns the
// round trip. It leaves no keys. s has the prefix of the locks and the restart guard. Ready returns
// when ctx is done, or after the node's timeout. The error is a *[quorumlock.NodeError] with the
// reason of a refusal: the node is unreachable, a replica, out of memory, the wrong shard or
// quarantined, or denies the user a command. Ready needs only the permissions of a lock.
func (n *Node) Ready(ctx context.Context, s options.Settings, name string) (time.Duration, error) {
	if ctx == nil {
		return 0, quorumlock.ErrNilContext
	}
	asked := time.Now()
	err := n.call(ctx, wire.Ready(s.Prefix+name, options.Quarantine(&s)), nil).Readied()
	return time.Since(asked), n.typed(err)
}
