package quorumlock

import (
	"context"

	"github.com/quorumlock/quorumlock/internal/held"
)

// Stopping returns a channel that is closed when the client of a lease begins its Shutdown, or is closed. ctx is the lease's
// context, or descends from it, as in a function of [Do]. Of several leases, the innermost counts. The result is nil, a channel
// on which a receive waits for ever, if ctx descends from no lease, or the lock is none of a client's.
//
// A Shutdown waits for leases, and cancels none of their contexts: work under way is finished. So a function that works until
// its context is done should also end when this channel is closed. It has the lock until it returns.
func Stopping(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	if h, ok := ctx.Value(held.Key{}).(interface{ Stopping() <-chan struct{} }); ok {
		return h.Stopping()
	}
	return nil
}
