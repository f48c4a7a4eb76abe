package redlock

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// Attach takes over the hold of a text from [quorumlock.Lease.Detach], usually in another process.
// The lease has the same fencing token and is renewed here. Its options are the client's and opts;
// its context descends from ctx. The client must have the same nodes, in any order, and the same
// quorum and prefix as the client that detached. Another number of nodes, quorum or prefix, and a
// damaged text, match [quorumlock.ErrMisuse]. With other nodes, Attach returns ErrLost and may end
// the hold.
//
// At most one caller gets the lease. Everyone else, and anyone whose text has expired or whose lock
// was freed by ForceUnlock, gets a *[quorumlock.LostError], which matches ErrLost, and the present
// holder keeps the lock. If too few nodes answer, Attach returns a *[quorumlock.QuorumError]. If
// other calls of Attach, perhaps of dead processes, keep the quorum from it, Attach returns a
// *[quorumlock.HeldError]. If ctx is done first, Attach returns ctx's error. After these errors the
// text stays valid until its time is over, which a failed Attach may prolong by the TTL of this
// client.
//
// Attach waits for no holder. It takes a round trip to a quorum, or two if the nodes are in another
// order. It takes about two node timeouts if the hold was attached before. If others attach at the
// same time, it begins its last attempt after a second or four node timeouts, whichever is longer.
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
