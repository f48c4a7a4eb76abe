package redlock

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// Latch lets some wait until n different things are done, each of which has an id: the shards of a job, or the members
// of a fleet. It is kept by a majority of the client's nodes. It is safe for concurrent use; its zero value is not usable.
//
// # What is promised
//
//  1. An id counts once, however often Done is called with it, in whichever process, and whatever replies are lost. It
//     may count though Done returned an error.
//  2. A Latch is linearizable while at most f nodes forget in all, over its life: what Done has returned nil for, every
//     later call knows, and once a Wait has returned nil, or a Count n, every later one does. It never closes again.
//  3. A Wait is woken when the latch opens. If the message is lost, or may not be heard, it finds out within 5 s and two
//     node timeouts, once there is a quorum.
//  4. A node that is slow or down costs nothing while the others are a quorum.
//
// The reason: ids are never removed, so a repeated or late call does no harm. Done adds its id at
// all nodes. Each node answers with the count and a digest of its ids. If a quorum has the same
// ids, Done returns after this one round trip, however many ids there are. Otherwise Done reads the
// ids in which nodes may differ, and adds their union at all nodes, until a quorum agrees. Wait and
// Count do the same before they return. Calls of Done that come during a round trip share the next
// one. Any two quorums share more nodes than may forget, so every later call finds these ids. This
// is how Attiya, Bar-Noy and Dolev make a register of servers that may fail ("Sharing memory
// robustly in message-passing systems", 1995). A node that has the latch counts once, though a call
// sees two of its addresses.
//
// # For how long
//
// The nodes keep a latch until nobody has called Done or Wait for [quorumlock.WithRetention], 24 hours by default, and
// then forget it, one shortly after the other. A Wait that waits keeps it. A Latch value that has seen the latch says so
// if it is gone, or lacks what it had: its calls return [quorumlock.ErrLatchForgotten] and add nothing to a latch that is
// gone. But a Done or a Wait of a Latch value that has not seen it makes a new latch with no ids. So use a name once: put
// what it is for into it, such as the number of the job.
//
// WithRestartGuard does not help a latch: it is kept for longer than a guard lasts. Nodes that restart without their data
// count among those that may forget.
type Latch struct{ latch *quorum.Latch }

// Latch returns the latch of that name, which n different ids open: 1 to 4096. It costs nothing and starts nothing. If
// the name, n or an option is bad, its calls return an error with the reason. [quorumlock.MaxName] bounds the
// name.
//
// All who use a latch give the same n. The calls of another n return [quorumlock.ErrLatchMismatch]. If the name was that
// of a mutex within the last day, or holds something else, they return [quorumlock.ErrWrongKind]; so does a mutex on the
// name of a latch. In all of these cases a quorum of the nodes is unchanged. The error names the first node that refused.
func (c *Client) Latch(name string, n int, opts ...quorumlock.Option) *Latch {
	set, err := c.resolve(opts)
	if err == nil {
		err = c.sameLabel(set)
	}
	return &Latch{quorum.NewLatch(c.locks, name, n, set.Quorum, c.cells(quorum.Cell{Name: set.Prefix + name}), set, err)}
}

// Name returns the name of the latch.
func (l *Latch) Name() string { return l.latch.Name() }

// Done adds an id to the latch: 1 to 200 bytes. It returns nil only when a quorum of the nodes has the id, or the latch is
// open. It asks until it has succeeded or ctx is done; [quorumlock.WithWait] bounds it, too. Then it returns ctx's error,
// joined with a *[quorumlock.QuorumError] if there was no quorum; the id may have been added all the same, or may be
// added by a later call. It returns [quorumlock.ErrClosed] if the client is closed or shutting down.
func (l *Latch) Done(ctx context.Context, id string) error { return l.latch.Done(ctx, id) }

// Wait returns nil when the latch is open. If a Wait of this Latch value has returned nil before, it asks no node. It
// waits until ctx is done, and rides out a time without a quorum; [quorumlock.WithWait] bounds it, too. Then it returns
// ctx's error, joined with an error that says how many ids were done, or why nobody knows. It returns
// [quorumlock.ErrClosed] if the client is closed or shutting down. A Wait that failed leaves nothing behind but the
// latch, without an id, if it made it.
func (l *Latch) Wait(ctx context.Context) error { return l.latch.Wait(ctx) }

// Count returns how many different ids are done: n if the latch is open, and 0 if there is no such latch. It makes no latch.
// It asks each node once, or several times if the nodes differ, and returns ctx's error, or a *[quorumlock.QuorumError] if fewer nodes answered than the quorum.
func (l *Latch) Count(ctx context.Context) (int, error) { return l.latch.Count(ctx) }
