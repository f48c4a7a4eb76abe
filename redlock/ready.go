package redlock

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// Readiness is the result of [Client.Ready]: the nodes that would grant a lock.
type Readiness struct {
	Quorum int             // how many nodes must grant a lock
	Nodes  []NodeReadiness // in the order of the client's nodes
}

// NodeReadiness says whether one node would grant a lock.
type NodeReadiness struct {
	Node      string
	RoundTrip time.Duration // how long the node took to answer, with connecting if that was necessary
	Err       error         // why it would not: a *quorumlock.NodeError; nil if it would
}

// Ready returns the number of nodes that would grant a lock.
func (r Readiness) Ready() int {
	ready := 0
	for _, n := range r.Nodes {
		if n.Err == nil {
			ready++
		}
	}
	return ready
}

// MayFail returns how many more nodes may fail before no lock is granted any more. With 0, the next failure is an outage.
// It is negative if there is no quorum now: that many nodes are missing.
func (r Readiness) MayFail() int { return r.Ready() - r.Quorum }

// Ready tests whether all nodes would grant a lock now. It is for the health check of a service, which may call it every second:
// it sends one small script to each node, and needs only the permissions of a lock. The script leaves no keys, except the time of
// the server's promotion under [quorumlock.WithRestartGuard], as every lock does. Ready waits for each node until ctx is done,
// for the node's timeout at most.
//
// The error is nil if a quorum of the nodes would grant. Otherwise it is a *[quorumlock.QuorumError] that names what is wrong
// with each node, and the Readiness is there along with it. With a nil ctx it is [quorumlock.ErrNilContext], and after
// Close [quorumlock.ErrClosed].
//
// Ready looks at the present only. [Client.Diagnose] finds what is about to go wrong: servers that forget, evict or are
// the same one.
func (c *Client) Ready(ctx context.Context) (Readiness, error) {
	r := Readiness{Quorum: c.set.Quorum, Nodes: make([]NodeReadiness, len(c.nodes))}
	err := c.askAll(c.set.Quorum, func(i int, n *node.Node) error {
		took, err := transport.Of(n).Ready(ctx, c.set, wire.ReadyName)
		r.Nodes[i] = NodeReadiness{Node: n.String(), RoundTrip: took, Err: err}
		return err
	})
	return r, err
}
