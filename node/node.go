// Package node is one Redis node, and a Mutex on it:
//
//	n, err := node.Dial("redis://10.0.0.1")
//	lease, err := n.Mutex("myapp:lock:invoice:1042").Lock(ctx)
//
// Packages redlock and multilock make locks of several nodes. For the other kinds of locks on a
// single node, use a redlock.Client of that node alone. A script is sent to a node exactly once,
// because a script may have run even if its reply was lost. A call that fails at the node returns a
// *[quorumlock.NodeError].
package node

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/transport"
)

// Node is one Redis server, or a sentinel group or cluster that counts as one. It does no I/O
// before its first call. It is safe for concurrent use. Its zero value is unusable: see [Dial] and
// [New].
type Node struct {
	_ noCopy // locks know a node by its address
	inner
}

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// inner makes a node known to package redlock.
type inner = transport.Inner

// An Option changes how a Node connects to its server.
type Option func(*config)

type config = transport.Config

// WithName sets the name of the node in errors and logs. Default: its address and database.
func WithName(name string) Option { return func(c *config) { c.Name = name } }

// WithTimeout bounds each call of the Node's own methods. Default 1 s. Locks are bounded by
// [quorumlock.WithNodeTimeout] instead.
func WithTimeout(limit time.Duration) Option { return func(c *config) { c.Timeout = limit } }

// WithTLSConfig sets the TLS configuration for a rediss:// URL, such as trusted authorities or a
// client certificate.
func WithTLSConfig(t *tls.Config) Option { return func(c *config) { c.TLS = t } }

// WithDialer sets the function that opens connections to a dialled node, for instance through a
// tunnel. The connection's Close must end its reads and writes, and must not block. A connection
// without deadlines, such as an SSH channel, must return errors from the methods that set
// deadlines. A connection that is returned after the end of ctx may be used or closed.
//
// Each new connection for locks is dialled twice, and after a restart or a failover four
// times: the others only test whether the address leads to several servers, see
// [quorumlock.ErrSeveralServers]. For a rediss:// URL the dialer must return a connection with TLS.
func WithDialer(d func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.Dialer = d }
}

// Credentials are the user and the password of a connection.
type Credentials struct {
	User     string // empty: the default user
	Password string

	// Expires is the time at which the server closes a connection with these credentials. The zero
	// value means never.
	Expires time.Time
}

// WithCredentials sets a function that returns the credentials of a new connection, for credentials
// that change. It is called for each new connection, also concurrently, and must return when ctx is
// done. If it fails, the calls that need the connection return its error.
//
// The function is called again for an open connection when five eighths to three quarters of the
// time until Expires have passed, for each node at another time, and at most once in 10 s. No call
// waits for the function. The node sends AUTH with its result. If the function fails or the server
// refuses, the connection stays in use until the server closes it or accepts the new credentials on
// another, and the function is called again. Credentials without Expires are not renewed.
//
//   - Amazon ElastiCache and MemoryDB with IAM close a connection 12 hours after its last AUTH:
//     return a new token, and time.Now().Add(12*time.Hour) as Expires.
//   - Azure Redis with Microsoft Entra ID closes a connection when its token expires: return its
//     expiry.
//   - Redis leaves a connection open when its password changes: leave Expires zero.
func WithCredentials(f func(ctx context.Context) (Credentials, error)) Option {
	return func(c *config) {
		if c.Credentials = nil; f != nil {
			c.Credentials = func(ctx context.Context) (transport.Credentials, error) {
				got, err := f(ctx)
				return transport.Credentials(got), err
			}
		}
	}
}

// configure applies options in their order.
func configure(opts []Option) func(*config) {
	return func(c *config) {
		for _, o := range opts {
			if o != nil {
				o(c)
			}
		}
	}
}

// Dial returns the node at a URL. It does not connect yet.
//
//	redis://user:password@host:6379/0      plain
//	rediss://user:password@host:6379/0     TLS
//	unix://user:password@/run/redis.sock?db=0
//
// Characters such as / and @ in a password are percent-encoded. Parameters of go-redis's ParseURL,
// such as pool_size, may follow. No error contains the password.
//
// While the connections lead to several servers, every call fails with
// [quorumlock.ErrSeveralServers]. Calls work again once the connections have led to one server for
// a second.
//
// A server cannot make the process allocate without limit. The limits are 16 MiB and 1,048,576
// elements for a reply, and 64 KiB for a line. A reply beyond them, or one that violates the
// protocol, ends the connection with an error.
func Dial(rawURL string, opts ...Option) (*Node, error) {
	n, err := transport.Dial(rawURL, configure(opts))
	if err != nil {
		return nil, err
	}
	return &Node{inner: transport.NewInner(n)}, nil
}

// New returns a node over the caller's client, which may be one of a sentinel group or a cluster.
// Close leaves that client open. The client's retries do not apply to locks. New returns an error if
// the client is nil or a Ring, or if an option is for [Dial] only.
//
// Calls of a node from Dial share pipelines. They also share scripts, unless the server is part of
// a cluster or behind a proxy. Calls of a node from New go one by one over the client's
// connections, like its other commands, and wait in the node while PoolSize of them are in use (not
// for a cluster client). Calls for one waiter are sent in order, and so are those that queue the
// callers of one exclusive lock. Two callers of one process that come within a round trip may still
// be served in another order: if an answer takes longer than a sixteenth of WithNodeTimeout, or of
// the time until the deadline of ctx, or if they want the lock in different ways, such as a reader
// and a writer, or a Mutex and a MultiLock that contains it. The client's hooks see each call, with
// the values of the waiting caller's ctx. A cluster client sends each call to the server of the
// key.
//
// After a call's node timeout, the client goes on reading its answer, so that a slow server does
// not lose its connections: for its ReadTimeout. With ContextTimeoutEnabled, that is at most the
// longest of 1.5 s, WithTimeout and the node timeout, from the sending on. The limits of [Dial] on
// replies do not apply. The node does not detect an address that leads to several servers; only
// redlock.Client.Diagnose does. go-redis logs the client's failed dials to stderr: see
// redis.SetLogger.
func New(client redis.UniversalClient, opts ...Option) (*Node, error) {
	n, err := transport.New(client, configure(opts))
	if err != nil {
		return nil, err
	}
	return &Node{inner: transport.NewInner(n)}, nil
}

// String returns the node's name: its address and database, without user and password.
func (n *Node) String() string { return transport.Of(n).String() }

// Client returns the node's go-redis client.
func (n *Node) Client() redis.UniversalClient { return transport.Of(n).Client() }

// Close ends the node's goroutines and connections, and returns when all are gone. It waits about a
// second at most for answers of the node, and for code that is not the library's: the Logger, the
// Observer, the dialer, the function of WithCredentials, and a client given to New. That client
// stays open. Leases of the node's own locks that are still held are lost: unlock first.
func (n *Node) Close() error { return transport.Of(n).Close() }
