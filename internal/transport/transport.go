// Package transport sends scripts to one Redis node and returns the replies. Calls use shared
// connections, or a client of the caller; messages use a subscription. Package node is its
// interface for users. Package transport also has the primitive of a lock: one script at one node.
//
// No call is sent again that may have run. Every call has its own limit. A call that fails at
// the node returns a *[quorumlock.NodeError].
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Config has the name and the connection settings of a node.
type Config struct {
	Name    string        // in errors and logs
	Timeout time.Duration // limit of each call of the Node's own methods
	TLS     *tls.Config   // nil: the default, if the URL asks for TLS
	Dialer  Dialer        // nil: go-redis's

	Credentials func(context.Context) (Credentials, error) // nil: those of the URL
}

// Dialer opens a connection to a node.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// defaultTimeout bounds a call without node.WithTimeout.
const defaultTimeout = time.Second

// Node is one Redis server, or a sentinel group or a cluster that counts as one. It does no I/O
// before its first use, and is safe for concurrent use. A nil Node has an error.
type Node struct {
	config  Config
	client  redis.UniversalClient
	owned   bool // Close closes client
	cluster bool // client spreads the locks over several servers

	lanes        [2]*lane       // by client.Lane; nil for a client of New
	workers      errgroup.Group // of the lanes
	connectLimit time.Duration  // limit of a lane's attempt to connect
	servers      servers        // of the lanes
	dialling     chan struct{}  // has a value for each call of dial that runs
	asking       chan struct{}  // the same of Credentials

	refuser atomic.Pointer[string] // the run ID of the last server that refused a bundle; nil: none

	open context.Context // done when the node is closed
	end  context.CancelFunc

	single single         // for a client of New
	pool   pool           // the same
	locks  *client.Client // for the node's own Mutexes and goroutines
	hub    hub
	target atomic.Pointer[target] // see Move; never nil
	title  atomic.Pointer[string] // see Introduce
	shards shards
	sight  sight
}

// Dial does the work of node.Dial. configure changes the Config.
func Dial(rawURL string, configure func(*Config)) (*Node, error) {
	o, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	n := &Node{config: Config{Name: address(o)}, owned: true}
	if err := n.configure(configure); err != nil {
		return nil, err
	}
	if n.config.TLS != nil {
		if o.TLSConfig == nil {
			return nil, errs.Misusef("quorumlock: node %s: WithTLSConfig needs a rediss:// URL", n.config.Name)
		}
		o.TLSConfig = n.config.TLS.Clone()
		if host, _, err := net.SplitHostPort(o.Addr); err == nil && o.TLSConfig.ServerName == "" {
			o.TLSConfig.ServerName = host
		}
	}
	if n.config.Credentials != nil && o.Username+o.Password != "" {
		return nil, errs.Misusef("quorumlock: node %s: WithCredentials, and the URL has credentials: leave out one of them", n.config.Name)
	}
	// One try: the quorum covers a failure, and a refused connection must show at once.
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	if !strings.Contains(rawURL, "dial_timeout=") {
		o.DialTimeout = n.config.Timeout // a subscription has no other limit
	}
	t := &target{name: n.config.Name, dial: n.config.Dialer, shaking: new(atomic.Bool)}
	if t.dial == nil {
		t.dial = t.dialerOf(*o)
	}
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	n.connectLimit = max(n.config.Timeout, o.DialTimeout)
	t.session = sessionOptions(*o)
	n.target.Store(t)
	for i := range n.lanes {
		n.lanes[i] = newLane(n, i)
	}
	n.dialling, n.asking = make(chan struct{}, maxHung), make(chan struct{}, maxHung)
	o.Dialer = n.dialGuarded
	if o.CredentialsProviderContext = n.provider(n.authenticates); o.CredentialsProviderContext == nil {
		o.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
			now := n.target.Load().session
			return now.Username, now.Password, nil
		}
	}
	n.hub.accepted, n.hub.limit = n.accepted, n.connectLimit
	protocol := o.Protocol
	if protocol < 2 {
		protocol = 3 // go-redis's default
	}
	o.OnConnect = func(ctx context.Context, conn *redis.Conn) error { // subscriptions, for one
		n.servers.hear(serverOf(ctx, conn, protocol))
		return nil
	}
	return n.start(redis.NewClient(o)), nil
}

// New does the work of node.New. configure changes the Config.
func New(client redis.UniversalClient, configure func(*Config)) (*Node, error) {
	n := &Node{config: Config{Name: "custom client"}}
	if err := n.adopt(client, configure); err != nil {
		return nil, err
	}
	return n.start(client), nil
}

func (n *Node) adopt(client redis.UniversalClient, configure func(*Config)) error {
	if settings.IsNil(client) {
		return errs.Misuse("quorumlock: node.New: client is nil: use a go-redis client, or node.Dial")
	}
	var err error
	switch c := client.(type) {
	case *redis.Client:
		n.config.Name = address(c.Options())
	case *redis.ClusterClient:
		n.cluster = true
		n.config.Name = "cluster " + strings.Join(c.Options().Addrs, ",")
	case *redis.Ring:
		// A Ring would publish wake-ups on another server than the listeners'.
		err = errs.Misuse("quorumlock: node.New: a Ring is not one node: give each of its servers to a node of its own")
	}
	if e := n.configure(configure); e != nil {
		return e
	}
	if n.config.TLS != nil || n.config.Dialer != nil || n.config.Credentials != nil {
		return errs.Misusef("quorumlock: node %s: WithTLSConfig, WithDialer and WithCredentials are for node.Dial: set them in the client's own options", n.config.Name)
	}
	return err
}

// Introduce sets the name that the server shows of the node's connections from now on: redlock.New
// shows its client's nodes to redlock.Client.Diagnose of other clients. A node of [New] ignores it.
func (n *Node) Introduce(name string) { n.title.Store(&name) }

// Database returns the number of the database that the node uses.
func (n *Node) Database() int {
	if single, ok := n.client.(*redis.Client); ok {
		return single.Options().DB
	}
	return 0
}

// errZero is the error of a node that neither Dial nor New made.
var errZero = errs.Misuse("quorumlock: a zero node.Node is no node: use node.Dial or node.New")

// Err returns the reason why the node cannot be used, or nil.
func (n *Node) Err() error {
	if n == nil {
		return errZero
	}
	return nil
}

// Locks returns the client of the node's own locks.
func (n *Node) Locks() *client.Client {
	if n == nil {
		return nil
	}
	return n.locks
}

func (n *Node) configure(configure func(*Config)) error {
	n.config.Timeout = defaultTimeout
	configure(&n.config)
	if n.config.Timeout <= 0 {
		return errs.Misusef("quorumlock: node %s: WithTimeout(%v): use a positive duration", n.config.Name, n.config.Timeout)
	}
	if n.config.Name == "" {
		return errs.Misuse("quorumlock: node: WithName(\"\"): use a name, or leave the option out for the address")
	}
	return nil
}

func (n *Node) start(rdb redis.UniversalClient) *Node {
	n.client = rdb
	if n.target.Load() == nil {
		n.target.Store(&target{name: n.config.Name, shaking: new(atomic.Bool)})
	}
	n.nameErrors(n.target.Load())
	n.single.node = n
	n.pool.init(rdb)
	n.open, n.end = context.WithCancel(context.Background())
	n.locks = client.NewClient(settings.DefaultLabel())
	n.hub.init(rdb)
	n.servers.onMove = n.hub.reconnect
	if n.cluster {
		n.hub.before = n.askForShards // the first listener may come before the first call
	}
	return n
}

// Guardable returns the reason why the node cannot have [quorumlock.WithRestartGuard], or nil.
func (n *Node) Guardable() error {
	if n.cluster {
		return errs.Misusef("quorumlock: WithRestartGuard cannot watch over node %s, a cluster, whose servers restart one by one: use single servers or sentinel groups, or leave the option out", n.config.Name)
	}
	return nil
}

// ValidateName returns the reason why the node cannot keep a lock of that name, or nil.
func (n *Node) ValidateName(name string) error {
	if err := quorumlock.ValidateName(name); err != nil && n != nil {
		return err
	}
	return n.OneSlot(name)
}

// OneSlot returns nil unless the node is a cluster that would keep the keys of a lock of that name
// at several servers.
func (n *Node) OneSlot(name string) error {
	if n == nil {
		return errZero
	}
	if n.cluster && !wire.SameSlot(name) {
		return errs.Misusef("quorumlock: the name of the lock %.80q has a brace that makes no hash tag, so that node %s, a cluster, would spread its keys over several servers: use a name without braces, or with a tag such as {billing}:7", name, n)
	}
	return nil
}

// String returns the node's name: its address and database, without user and password.
func (n *Node) String() string {
	if n == nil {
		return "zero node"
	}
	return n.target.Load().name
}

// Timeout bounds each call of the Node's own methods.
func (n *Node) Timeout() time.Duration { return n.config.Timeout }

// Client returns the go-redis client the node uses.
func (n *Node) Client() redis.UniversalClient {
	if n == nil {
		return nil
	}
	return n.client
}

// Close is CloseBy without a Shutdown.
func (n *Node) Close() error { return n.CloseBy(client.CloseTime(context.Background())) }

// CloseBy closes the node, and returns when its goroutines have ended, or at a time: see
// [client.WaitUntil]. Held leases of the node's own Mutexes are lost: unlock first. A client that
// New was given stays open.
func (n *Node) CloseBy(until time.Time) error {
	if n == nil {
		return nil
	}
	n.end()
	n.locks.CloseBy(until)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var all sync.WaitGroup // answers to calls may block in an Observer
		all.Go(n.closeHubs)
		for _, l := range n.lanes {
			if l != nil {
				all.Go(l.close)
			}
		}
		all.Wait()
		_ = n.workers.Wait() // its functions return no error
	}()
	client.WaitUntil(until, ended)
	n.locks.CloseBy(until) // the calls to a frozen node have failed since
	if !n.owned {
		return nil
	}
	if err := n.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}

var _ client.Node = (*Node)(nil)
