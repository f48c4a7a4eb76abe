package redlock

import (
	"context"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/options"
)

// Latch is a count-down latch over a majority of the client's nodes: Wait returns when n different
// ids are done. The ids are, for example, the shards of a job, or the members of a fleet. A Latch
// is safe for concurrent use; its zero value is not usable.
//
// # Promises
//
//  1. An id counts once, for any number of calls of Done, in any process, with any lost replies. An
//     id may count even if Done returned an error.
//  2. A Latch is linearizable while at most f nodes forget in all, over its life. Every call sees
//     the ids for which an earlier Done has returned nil. Once a Wait has returned nil, or a Count
//     n, so does every later one. A latch never closes again.
//  3. A Wait is woken when the latch opens. If the message is lost, or the client may not
//     subscribe, the Wait still returns within 5 s plus two node timeouts, if there is a quorum.
//  4. A slow or dead node costs nothing while the others are a quorum.
//
// # Why it is sound
//
// Ids are never removed, so a repeated or late call does no harm. Done adds its id at all nodes.
// Each node answers with the count and a digest of its ids. If a quorum has the same ids, Done
// returns after this one round trip, however many ids there are. Otherwise Done reads the ids that
// may differ between nodes, and adds their union at all nodes, until a quorum agrees. Wait and
// Count do the same before they return. Calls of Done during a round trip share the next one. Any
// two quorums share more nodes than may forget, so every later call finds these ids. This is the
// register of Attiya, Bar-Noy and Dolev for servers that may fail ("Sharing memory robustly in
// message-passing systems", 1995). A node with two addresses in the list counts once.
//
// # Retention
//
// The nodes keep a latch until [quorumlock.WithRetention] after the last Done or Wait, 24 hours by
// default. Then they forget it, one shortly after the other. A waiting Wait keeps it. If a Latch
// value has seen the latch, and the latch is gone or has lost ids, the methods of that value return
// [quorumlock.ErrLatchForgotten]. They add nothing to a latch that is gone. But a Done or Wait of a
// Latch value that has not seen it makes a new latch without ids. So use a name once: include its
// purpose, such as the number of the job.
//
// WithRestartGuard does not help a latch, which lives longer than a quarantine. Nodes that restart
// without their data count among the nodes that may forget.
type Latch struct{ latch *client.Latch }

// Latch returns the latch of that name, which opens when n different ids are done: 1 to 4096. It
// does no I/O and starts no goroutine. If the name, n or an option is invalid, the methods of the
// Latch return an error that matches [quorumlock.ErrMisuse]. The name has at most 1,024 bytes.
//
// All users of a latch must pass the same n. Calls with another n return
// [quorumlock.ErrMismatch]. If the name was that of a mutex within the last few minutes, or
// belongs to another kind, calls return [quorumlock.ErrWrongKind]. So does a mutex with the name of
// a latch. In all of these cases a quorum of the nodes is unchanged. The error names the first node
// that refused.
func (c *Client) Latch(name string, n int, opts ...quorumlock.Option) *Latch {
	set, err := c.resolve(opts)
	if err == nil {
		err = c.sameLabel(set)
	}
	if err == nil && set.Data != "" {
		err = options.NoData("a Latch")
	}
	return &Latch{client.NewLatch(c.locks, name, n, set.Quorum, c.cells(client.Cell{Name: set.Prefix + name}), set, err)}
}

// Name returns the name of the latch, without its prefix.
func (l *Latch) Name() string { return l.latch.Name() }

// Done adds an id of 1 to 200 bytes to the latch. It returns nil only when a quorum of the nodes
// has the id, or the latch is open. Done repeats its request until it succeeds or ctx is done;
// [quorumlock.WithWait] bounds it, too. Then it returns ctx's error, joined with a
// *[quorumlock.QuorumError] if there was no quorum. After an error the id may have been added, or a
// later call may add it. Done returns [quorumlock.ErrClosed] if the client is closed or shutting
// down.
func (l *Latch) Done(ctx context.Context, id string) error { return l.latch.Done(ctx, id) }

// Wait waits until the latch is open, also during a time without a quorum, or until ctx is done;
// [quorumlock.WithWait] bounds it, too. It returns nil if the latch is open. If a Wait of this
// Latch value has returned nil before, it sends no request. If ctx is done first, Wait returns
// ctx's error, joined with an error that has the count of ids, or the reason why the count is
// unknown. Wait returns [quorumlock.ErrClosed] if the client is closed or shutting down. A failed
// Wait leaves at most a latch without ids.
func (l *Latch) Wait(ctx context.Context) error { return l.latch.Wait(ctx) }

// Count returns the number of different ids that are done: n if the latch is open, and 0 if there
// is no such latch. It makes no latch. It asks each node once, or several times if the nodes
// differ. It returns ctx's error if ctx is done first, and a *[quorumlock.QuorumError] if fewer
// nodes answered than the quorum.
func (l *Latch) Count(ctx context.Context) (int, error) { return l.latch.Count(ctx) }
