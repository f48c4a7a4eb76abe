package quorumlock

import (
	"context"

	"github.com/quorumlock/quorumlock/internal/settings"
)

// Stopping returns a channel that is closed when the client of a lease begins its Shutdown, or is
// closed. The argument is the lease's context, or a descendant, as in a function of [Do]. Of
// several leases, the innermost counts. If ctx descends from no lease, or the lock has no client,
// Stopping returns nil, a channel on which a receive blocks forever.
//
// A Shutdown waits for leases without cancelling their contexts, so that current work can finish. A
// function that runs until its context is done should therefore also return when this channel is
// closed. It keeps the lock until its return.
func Stopping(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	if h, ok := ctx.Value(settings.HeldKey{}).(interface{ Stopping() <-chan struct{} }); ok {
		return h.Stopping()
	}
	return nil
}
