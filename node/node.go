// Package node speaks to one Redis node. It has the re-entrant lock primitive that the other kinds of locks are
// made of, and a [Mutex] for those who have one Redis:
//
//	n, err := node.Dial("redis://10.0.0.1")
//	lease, err := n.Mutex("myapp:lock:invoice:1042").Lock(ctx)
//
// The primitive ([Node.Acquire], [Node.Renew], [Node.Release]) sends each script exactly once, because a script
// whose reply was lost may have run. Every call has its own deadline. A call that fails at the node returns a
// *[quorumlock.NodeError].
//
// The primitive trusts the owner that it is given: whoever passes the owner of somebody else's hold can renew or
// release it. Use [quorumlock.NewOwner] for owners of your own.
package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/scripts"
)

// DefaultTimeout bounds a call of a Node's own methods when no [WithTimeout] is given. Locks are bound
// by [quorumlock.WithNodeTimeout] instead.
const DefaultTimeout = time.Second

// Node is one Redis server, or a sentinel group or cluster that counts as one. It does no I/O before
// it is used, and is safe for concurrent use. Its zero value is not usable: see [Dial] and [New].
type Node struct {
	name    string
	err     error // why it cannot be used
	client  redis.UniversalClient
	owned   bool // whether Close closes client
	cluster bool // whether client spreads the locks over several servers
	prompt  bool // whether client itself ends a call at its ctx's deadline
	timeout time.Duration
	tls     *tls.Config
	dialer  Dialer

	lanes    [2]*lane       // by quorum.Lane; nil if the calls go alone
	load     load           // of the lanes
	workers  errgroup.Group // of the lanes
	patience time.Duration  // for how long a lane tries to connect

	unsent, late *quorumlock.NodeError // of calls that were not sent, or not answered, by their deadline

	connector connector // of calls that go alone

	single single         // of a client that New was given
	locks  *quorum.Client // of the node's own Mutexes, and of its own goroutines
	hub    hub
	title  atomic.Pointer[string] // see Introduce
	shards shards
}

// An Option changes how a Node is reached.
type Option func(*Node)

// WithName sets the name of the node in errors and logs. Default: its address and database.
func WithName(name string) Option { return func(n *Node) { n.name = name } }

// WithTimeout bounds each call of the Node's own methods. Default [DefaultTimeout].
func WithTimeout(limit time.Duration) Option { return func(n *Node) { n.timeout = limit } }

// WithTLSConfig sets the TLS configuration of a node dialled as rediss://, such as the authorities it
// trusts or a client certificate.
func WithTLSConfig(c *tls.Config) Option { return func(n *Node) { n.tls = c } }

// A Dialer opens a connection to a node.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// WithDialer sets how a dialled node is connected to, for instance through a tunnel. It is not used
// for TLS: a dialer given for a rediss:// node returns a connection that has it.
func WithDialer(d Dialer) Option { return func(n *Node) { n.dialer = d } }

// Dial returns the node at a URL, without connecting to it yet:
//
//	redis://user:password@host:6379/0      plain
//	rediss://user:password@host:6379/0     TLS
//	unix://user:password@/run/redis.sock?db=0
//
// Characters such as / and @ in a password are percent-encoded. Parameters of go-redis's ParseURL,
// such as pool_size, may follow. No error holds the password.
//
// A server cannot make the process allocate without limit. A reply of more than 16 MiB or 1,048,576 elements, a line of
// more than 64 KiB, or bytes that no Redis sends, end the connection with an error that says so.
func Dial(rawURL string, opts ...Option) (*Node, error) {
	o, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	n := &Node{name: address(o), owned: true, prompt: true}
	if err := n.apply(opts); err != nil {
		return nil, err
	}
	if n.tls != nil {
		if o.TLSConfig == nil {
			return nil, fmt.Errorf("quorumlock: node %s: WithTLSConfig needs a rediss:// URL", n.name)
		}
		o.TLSConfig = n.tls.Clone()
		if host, _, err := net.SplitHostPort(o.Addr); err == nil && o.TLSConfig.ServerName == "" {
			o.TLSConfig.ServerName = host
		}
	}
	// One try and no more: the quorum is what rides out a failure, and a refused connection is told
	// at once.
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	if !strings.Contains(rawURL, "dial_timeout=") {
		o.DialTimeout = n.timeout // a subscription is opened under no other limit
	}
	dial := n.dialer
	if dial == nil {
		dial = redis.NewDialer(o)
	}
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	n.patience = max(n.timeout, o.DialTimeout)
	for i := range n.lanes {
		n.lanes[i] = newLane(n, *o, dial)
	}
	o.Dialer = quiet(bounding(dial, nil))
	return n.start(redis.NewClient(o)), nil
}

// New returns a node over the caller's own client, which may be one of a sentinel group or a cluster.
// The client's retries do not apply to locks. Close leaves the client open. If the node cannot work,
// for example without a client, [Node.Err], every call of the node, and redlock.New say so.
//
// The calls of a node that Dial made share pipelines. Those of a node that New made go one by one over the connections
// of the client, as its other commands do: its hooks see each of them, and a cluster's go to the server that has the key. Calls for one
// waiter go one after the other.
//
// If the client heeds the deadlines of its calls (ContextTimeoutEnabled), and connecting takes longer than a call may
// take, the node makes the connection with a PING of its own. The limits that [Dial] sets on replies do not apply.
// go-redis writes the client's failed dials to stderr: see redis.SetLogger.
func New(client redis.UniversalClient, opts ...Option) *Node {
	n := &Node{name: "custom client"}
	n.err = n.adopt(client, opts)
	n.start(client)
	return n
}

func (n *Node) adopt(client redis.UniversalClient, opts []Option) error {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		n.timeout = DefaultTimeout
		return errors.New("quorumlock: node.New: client is nil: use a go-redis client, or node.Dial")
	}
	var err error
	switch c := client.(type) {
	case *redis.Client:
		n.name, n.prompt = address(c.Options()), c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		n.cluster = true
		n.name, n.prompt = "cluster "+strings.Join(c.Options().Addrs, ","), c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		// Its wake-ups would be published on another of its servers than they are listened for.
		err = errors.New("quorumlock: node.New: a Ring is not one node: give each of its servers to a node of its own")
	}
	if e := n.apply(opts); e != nil {
		return e
	}
	if n.tls != nil || n.dialer != nil {
		return fmt.Errorf("quorumlock: node %s: WithTLSConfig and WithDialer are for node.Dial: set them in the client's own options", n.name)
	}
	return err
}

// Introduce sets the name that the server shows of the node's connections from now on. It is how redlock.New tells
// redlock.Client.Check of other clients which nodes its client has, and not for use elsewhere. A node of [New] ignores it.
func (n *Node) Introduce(name string) { n.title.Store(&name) }

// Err returns why the node cannot be used: what New was given cannot work. It is nil for a node of Dial.
func (n *Node) Err() error { return n.err }

func (n *Node) apply(opts []Option) error {
	n.timeout = DefaultTimeout
	for _, o := range opts {
		if o != nil {
			o(n)
		}
	}
	if n.timeout <= 0 {
		return fmt.Errorf("quorumlock: node %s: WithTimeout(%v): use a positive duration", n.name, n.timeout)
	}
	if n.name == "" {
		return errors.New("quorumlock: node: WithName(\"\"): use a name, or leave the option out for the address")
	}
	return nil
}

func (n *Node) start(client redis.UniversalClient) *Node {
	n.client = client
	n.unsent, n.late = n.failure(errUnsent, true), n.failure(context.DeadlineExceeded, true)
	n.single.node = n
	n.locks = quorum.NewClient(quorumlock.DefaultLabel())
	n.hub.init(client)
	return n
}

// Guardable returns why [quorumlock.WithRestartGuard] cannot be used with the node, or nil.
func (n *Node) Guardable() error {
	if n.cluster {
		return fmt.Errorf("quorumlock: WithRestartGuard cannot watch over node %s, a cluster, whose servers restart one by one: use single servers or sentinel groups, or leave the option out", n.name)
	}
	return nil
}

// CheckName returns why the node can keep no lock of that name, or nil: what [quorumlock.CheckName] says, and in a cluster
// all keys of a lock must be at one server.
func (n *Node) CheckName(name string) error {
	if err := quorumlock.CheckName(name); err != nil {
		return err
	}
	if n.cluster && !scripts.SameSlot(name) {
		return fmt.Errorf("quorumlock: the name of the lock %.80q has a brace that makes no hash tag, so that node %s, a cluster, would spread its keys over several servers: use a name without braces, or with a tag such as {billing}:7", name, n.name)
	}
	return nil
}

// String returns the node's name: its address and database, without user and password.
func (n *Node) String() string { return n.name }

// Client returns the go-redis client the node uses.
func (n *Node) Client() redis.UniversalClient { return n.client }

// Close ends what runs for the node and returns when all of it is gone. Leases of the node's own
// Mutexes that are still held are lost: unlock first. A client that New was given stays open.
func (n *Node) Close() error {
	n.locks.Close()
	for _, l := range n.lanes {
		if l != nil {
			l.close()
		}
	}
	_ = n.workers.Wait() // its functions return no error
	n.closeHubs()
	defer n.connector.running.Wait()
	n.connector.stop()
	if !n.owned {
		return nil
	}
	if err := n.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}

// parse returns what a URL says. No error repeats what may be a password.
func parse(rawURL string) (*redis.Options, error) {
	const want = "use redis://user:password@host:6379/0, rediss:// or unix:///path, and percent-encode special characters"
	if strings.TrimSpace(rawURL) != rawURL {
		return nil, errors.New("quorumlock: node.Dial: the URL begins or ends with white space: remove it, and " + want)
	}
	if err := checkScheme(rawURL); err != nil {
		return nil, err
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("quorumlock: node.Dial: the URL cannot be read: " + want)
	}
	switch u.Scheme {
	case "redis", "rediss", "unix":
	default:
		return nil, fmt.Errorf("quorumlock: node.Dial: %q is not a scheme for a node: %s", u.Scheme, want)
	}
	if (u.User != nil) != strings.Contains(rawURL, "@") || strings.Count(rawURL, "@") > 1 {
		// A password with a / or @ of its own ends early: its rest would be taken for a host or a path, and shown.
		return nil, errors.New("quorumlock: node.Dial: the URL has an @ that does not end the password: " + want)
	}
	if u.Scheme == "unix" && u.Host != "" {
		return nil, errors.New("quorumlock: node.Dial: the URL has a host before the path of the socket: " + want)
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("quorumlock: node.Dial: the URL of %s cannot be used: check its port, database and parameters: %s", u.Hostname(), want)
	}
	if u.Scheme != "unix" && u.Hostname() == "" {
		return nil, errors.New("quorumlock: node.Dial: the URL names no host: " + want)
	}
	return o, nil
}

// hostAndPort is an address that somebody may take for a URL.
var hostAndPort = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(/[0-9]+)?$`)

// checkScheme says what to put before an address that has no scheme. url.Parse would take its host for one.
func checkScheme(rawURL string) error {
	switch {
	case rawURL == "":
		return errors.New("quorumlock: node.Dial: the URL is empty: use redis://host:6379, or redis://user:password@host:6379/0")
	case hostAndPort.MatchString(rawURL):
		return fmt.Errorf("quorumlock: node.Dial: the URL has no scheme: use redis://%s, or rediss:// for TLS", rawURL)
	case !strings.Contains(rawURL, "://") && !strings.HasPrefix(rawURL, "unix:"):
		return errors.New("quorumlock: node.Dial: the URL has no scheme: use redis://host:6379, or redis://user:password@host:6379/0")
	}
	return nil
}

func address(o *redis.Options) string {
	name := o.Addr
	if o.Network == "unix" {
		name = "unix:" + name
	}
	if o.DB != 0 {
		name += fmt.Sprintf("/%d", o.DB)
	}
	return name
}

var _ quorum.Node = (*Node)(nil)
