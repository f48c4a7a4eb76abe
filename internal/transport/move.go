package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// target is the server that a node connects to. Its fields never change: Move replaces it.
type target struct {
	name    string         // of the node, in errors and logs
	dial    Dialer         // nil for a client of New
	session *redis.Options // of go-redis's handshakes for the lanes
	bar     error          // the error of each dial; nil if the server may be dialled
	shaking *atomic.Bool   // the last TLS handshake has not ended, or not with an answer

	// The errors of calls that were not sent within their limit, not answered by then, or recalled.
	unsent, late, recalled *quorumlock.NodeError
}

// nameErrors makes the errors of the target, which is the node's.
func (n *Node) nameErrors(t *target) {
	t.unsent, t.late = n.Failure(errUnsent, true), n.Failure(context.DeadlineExceeded, true)
	t.recalled = n.Failure(notSent{wire.ErrRecalled}, false)
}

// Move makes the node use the server, the credentials and the name of another node, which Dial made
// with the same options from a URL that differs only in these. If bar is not nil, no connection is
// opened, and every call fails with it, until the next Move. Connections to another address are
// closed, and none is made later; only the credentials of those to the same address may be older.
//
// Calls under way to the old server have an unknown outcome, as after its restart. Package redlock
// decides when a Move is safe.
func (n *Node) Move(to *Node, bar error) {
	from, other := n.target.Load(), to.target.Load()
	t := &target{name: other.name, dial: other.dial, session: other.session, bar: bar,
		shaking: other.shaking, unsent: other.unsent, late: other.late, recalled: other.recalled}
	n.target.Store(t)
	if bar == nil && from.bar == nil && from.session.Addr == t.session.Addr {
		return
	}
	for _, l := range n.lanes {
		l.mu.Lock()
		if l.conn != nil {
			l.cut(l.conn, errMoved)
		}
		l.mu.Unlock()
	}
	n.hub.reconnect()
}

// Rename is Introduce, also for the present connections.
func (n *Node) Rename(title string) {
	n.Introduce(title)
	for _, l := range n.lanes {
		if l != nil && l.isConnected() {
			l.sayTitle()
		}
	}
}

// sayTitle sends the name of the node's connections. A user without permission for it can lock.
func (l *lane) sayTitle() {
	if l.node.target.Load().session.ClientName == "" {
		l.add(newOther(l, []string{"client", "setname", *l.node.title.Load()}, func([]wire.Reply) {}), nil)
	}
}

// IsConnected reports whether the node has a connection for calls.
func (n *Node) IsConnected() bool {
	for _, l := range n.lanes {
		if l != nil && l.isConnected() {
			return true
		}
	}
	return false
}

// Answers reports whether anything at the address answers within the node's timeout, with an error
// if need be. A server that accepts connections and says nothing does not.
func (n *Node) Answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, n.config.Timeout)
	defer cancel()
	var said error
	if err := n.With(ctx, func(conn redis.Cmdable) { said = conn.Ping(ctx).Err() }); err != nil {
		said = err
	}
	if said == nil {
		return true
	}
	_, reply := errors.AsType[redis.Error](said)
	_, last := errors.AsType[lastWord](said)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](said)
	return reply || last || certificate
}
