package redlock

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// Attach takes over the hold of a text from [quorumlock.Lease.Detach], usually in another process.
// The lease has the same fencing token and is renewed here. Its options are the client's and opts;
// those of the first lock, such as its TTL, do not travel with the text. Its context descends from
// ctx. The client must have the same nodes, in any order, and the same quorum and prefix as the
// client that detached. With another number of nodes, quorum or prefix, or a damaged text, the
// error matches [quorumlock.ErrMisuse]. With as many nodes, but others, Attach returns ErrLost and
// may end the hold.
//
// At most one caller gets the lease. Everyone else, and anyone whose text has expired or whose lock
// was freed by ForceUnlock, gets a *[quorumlock.LostError], which matches ErrLost. The present
// holder keeps the lock. ErrLost does not show whether the work was done: a queue also redelivers
// after a worker's death. Before you drop the job, take the lock again and look at its effects.
//
// If too few nodes answer, Attach returns a *[quorumlock.QuorumError]. If other calls of Attach,
// perhaps of dead processes, keep the quorum from it, Attach returns a *[quorumlock.HeldError]. If
// ctx is done first, Attach returns ctx's error. If the rest of d is shorter than this client's TTL
// and than four times the duration of the Attach, Attach returns ErrTooLate. After a QuorumError, a
// HeldError, ErrTooLate or ctx's error, the text stays valid until d is over.
//
// Attach does not wait for a holder: it succeeds or fails within seconds. It takes a round trip to
// a quorum, or two if the nodes are in another order. It takes about two node timeouts if the hold
// was attached before. Against other calls of Attach, it tries for a second or four node timeouts,
// whichever is longer.
//
// An attached hold is valid until the end of d or for this client's TTL, whichever is shorter, and
// is renewed at once. If the process dies before that, the lock stays taken until the end of d. The
// lease can be detached again.
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
	p, err := client.ParseParked(text)
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
