package redlock

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// Attach takes over the hold that [quorumlock.Lease.Detach] has returned as text, most likely in another process: the lease has the same
// fencing token and is renewed here. Its options are the client's and opts; its context descends from ctx. The client must have the same
// nodes, quorum and prefix as the one that detached; otherwise, and for a text that is damaged, the error matches
// [quorumlock.ErrMisuse].
//
// One caller at most gets the lease. For the others, and if the time of the text is over or the lock was freed by ForceUnlock, Attach
// returns a *[quorumlock.LostError] (errors.Is ErrLost), and takes nothing from whoever has the lock. If too few nodes answer, it returns a
// *[quorumlock.QuorumError]: then the text is as good as before, while its time lasts, and the same is true if ctx is done first, whose error
// it returns. An Attach that fails may lengthen that time by the TTL of this client. Attach does not wait for anybody: it takes a round trip to
// a quorum, one node timeout at most, and a second at most while others attach, too.
//
// To release the lock from here, attach and unlock:
//
//	lease, err := client.Attach(ctx, text)
//	if err == nil {
//		err = lease.Unlock(ctx)
//	}
func (c *Client) Attach(ctx context.Context, text string, opts ...quorumlock.Option) (*quorumlock.Lease, error) {
	if ctx == nil {
		return nil, fmt.Errorf("quorumlock: Attach: %w", quorumlock.ErrNilContext)
	}
	p, err := quorum.ParseParked(text)
	if err != nil {
		return nil, err
	}
	set, err := c.resolve(opts)
	if err != nil {
		return nil, err
	}
	name, ok := strings.CutPrefix(p.Key, set.Prefix)
	if !ok {
		return nil, errs.Misusef("quorumlock: Attach: the text is of the key %q, and this client has the prefix %q: use the client, or WithPrefix, of the one that detached", p.Key, set.Prefix)
	}
	return c.Mutex(name, opts...).lock.Attach(ctx, p)
}
