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
	Quorum int             // the number of nodes that must grant a lock
	Nodes  []NodeReadiness // in the order of the client's nodes
}

// NodeReadiness is the readiness of one node.
type NodeReadiness struct {
	Node      string
	RoundTrip time.Duration // the time to the answer, including a new connection
	Err       error         // a *quorumlock.NodeError; nil if the node would grant a lock
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

// MayFail returns the number of further nodes that may fail before no lock is granted. With 0, the
// next failure is an outage. Without a quorum, it is negative: that many nodes are missing.
func (r Readiness) MayFail() int { return r.Ready() - r.Quorum }

// Ready tests whether each node would grant a lock now. It is for the health check of a service,
// which may call it every second. Ready sends one small script to each node, and needs only the
// permissions of a lock. The script leaves no keys, except the server's age under
// [quorumlock.WithRestartGuard], as every lock does. Ready waits for each node until ctx is done,
// for the node's timeout at most.
//
// The error is nil if a quorum of the nodes would grant a lock. Otherwise Ready returns a
// *[quorumlock.QuorumError] with the error of each node, along with the Readiness. With a nil ctx
// it returns [quorumlock.ErrNilContext], and after Close [quorumlock.ErrClosed].
//
// Ready tests the present only, and no channels. [Client.Diagnose] finds future failures, such as
// servers that may forget or evict, or two addresses of one server. It also finds users without
// permission for the channels, which makes handoffs slow.
func (c *Client) Ready(ctx context.Context) (Readiness, error) {
	r := Readiness{Quorum: c.set.Quorum, Nodes: make([]NodeReadiness, len(c.nodes))}
	err := c.askAll(c.set.Quorum, func(i int, n *node.Node) error {
		took, err := transport.Of(n).Ready(ctx, c.set, wire.ReadyName)
		r.Nodes[i] = NodeReadiness{Node: n.String(), RoundTrip: took, Err: err}
		return err
	})
	return r, err
}
