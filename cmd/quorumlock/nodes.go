package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// sources are the ways to name nodes.
type sources struct {
	Nodes     *string `placeholder:"URL,URL,..." help:"Redis servers: redis://user:password@host:6379/0, rediss:// for TLS, unix:///path/to/socket. A password here is hidden from process listings once the program runs, but not from the shell's history: prefer the other ways."`
	NodesFile *string `placeholder:"FILE" help:"A file with one URL per line. Empty lines and lines that begin with # are ignored."`
}

// timeoutVariable is the environment variable with the default of --node-timeout.
const timeoutVariable = "QUORUMLOCK_NODE_TIMEOUT"

// connection has the flags of a client, including those that all clients of a lock must share.
type connection struct {
	sources
	Prefix       string         `placeholder:"TEXT" help:"The prefix of every name: WithPrefix of the clients."`
	Quorum       *int           `placeholder:"N" help:"The number of nodes that must agree: WithQuorum of the clients. Default: a majority."`
	RestartGuard *time.Duration `placeholder:"MAXTTL" help:"WithRestartGuard(MAXTTL) of the clients, such as 30s."`
	NodeTimeout  *time.Duration `env:"QUORUMLOCK_NODE_TIMEOUT" placeholder:"D" help:"How long one node may take to answer. Default: 1s, and a twentieth of the TTL for locks."`
	TLSCA        string         `name:"tls-ca" placeholder:"FILE" help:"For rediss://: the authorities that sign the certificates of the nodes, as PEM."`
	TLSCert      string         `name:"tls-cert" placeholder:"FILE" help:"For rediss://: the certificate of this client, as PEM. It needs --tls-key."`
	TLSKey       string         `name:"tls-key" placeholder:"FILE" help:"For rediss://: the key of the certificate, as PEM."`
}

// urls returns the URLs of the nodes, from the flags or else from the environment, and the file
// that has them, if there is one. Its errors do not repeat URLs.
func (s sources) urls(command string) (urls []string, file string, err error) {
	switch {
	case s.Nodes != nil && s.NodesFile != nil:
		return nil, "", usageError(command + ": --nodes and --nodes-file are both given: use one of them")
	case s.Nodes != nil:
		urls, err = options.SplitNodes("--nodes", *s.Nodes)
	case s.NodesFile != nil:
		file = *s.NodesFile
		urls, err = options.ReadNodes("--nodes-file", file)
	default:
		var variable string
		if urls, variable, err = options.NodesFromEnv(); variable == options.NodesFileVariable {
			file = os.Getenv(variable)
		}
	}
	if err != nil {
		return nil, "", usageError(fmt.Sprintf("%s: %v", command, err))
	}
	if len(urls) == 0 {
		return nil, "", usageError(fmt.Sprintf("%s: no nodes: give their URLs as --nodes redis://host:6379,redis://..., in a file as --nodes-file FILE, or in the environment as %s or %s",
			command, options.NodesVariable, options.NodesFileVariable))
	}
	return urls, file, nil
}

// reread returns the URL of a node without its credentials, and an option that reads them from the
// file again for each connection, since they may change. While the file has none, the last ones
// count. For a URL without credentials the option is nil.
func reread(file, rawURL string) (string, node.Option) {
	u, err := url.Parse(rawURL)
	if err != nil || u.User == nil {
		return rawURL, nil
	}
	var last atomic.Pointer[url.Userinfo]
	last.Store(u.User)
	u.User = nil
	bare := u.String()
	return bare, node.WithCredentials(func(context.Context) (node.Credentials, error) {
		all, _ := options.ReadNodes(options.NodesFileVariable, file)
		for _, other := range all {
			if u, err := url.Parse(other); err == nil && u.User != nil {
				user := u.User
				if u.User = nil; u.String() == bare {
					last.Store(user)
					break
				}
			}
		}
		user := last.Load()
		password, _ := user.Password()
		return node.Credentials{User: user.Username(), Password: password}, nil
	})
}

// cluster is a client and its nodes.
type cluster struct {
	*redlock.Client
	nodes  []*node.Node
	quorum int
	prefix string
}

// dial returns a client of the nodes, without connecting to them yet. Its errors are mistakes on
// the command line.
func (c *connection) dial(command string, more ...quorumlock.Option) (*cluster, error) {
	urls, file, err := c.urls(command)
	if err != nil {
		return nil, err
	}
	var opts []node.Option
	lock := []quorumlock.Option{quorumlock.WithPrefix(c.Prefix)}
	if d := c.NodeTimeout; d != nil {
		if *d <= 0 {
			return nil, usageError(fmt.Sprintf("%s: --node-timeout %v: use a positive duration, such as 500ms", command, *d))
		}
		opts, lock = append(opts, node.WithTimeout(*d)), append(lock, quorumlock.WithNodeTimeout(*d))
	}
	if c.Quorum != nil {
		lock = append(lock, quorumlock.WithQuorum(*c.Quorum))
	}
	if d := c.RestartGuard; d != nil {
		lock = append(lock, quorumlock.WithRestartGuard(*d), quorumlock.WithTTL(min(max(*d, quorumlock.MinTTL), quorumlock.DefaultTTL)))
	}
	secure, err := c.tls()
	if err != nil {
		return nil, usageError(fmt.Sprintf("%s: %v", command, err))
	}
	dial := c.tlsDialer(secure)
	nodes := make([]*node.Node, len(urls))
	for i, u := range urls {
		own := opts[:len(opts):len(opts)]
		if strings.HasPrefix(u, "rediss://") && (c.TLSCA != "" || c.TLSCert != "") {
			own = append(own, node.WithDialer(dial))
		}
		if areFiles(file) {
			var credentials node.Option
			u, credentials = reread(file, u)
			own = append(own, credentials)
		}
		if nodes[i], err = node.Dial(u, own...); err != nil {
			return nil, usageError(fmt.Sprintf("%s: node %d of %d: %v", command, i+1, len(urls), err))
		}
	}
	client, err := redlock.New(nodes, append(lock, more...)...)
	if err != nil {
		return nil, usageError(fmt.Sprintf("%s: %v", command, err))
	}
	quorum := len(nodes)/2 + 1
	if c.Quorum != nil {
		quorum = *c.Quorum
	}
	return &cluster{client, nodes, quorum, c.Prefix}, nil
}

// tlsDialer returns a dialer with TLS. It reads the files of the flags again for each connection,
// since certificates are rotated. After a failure it uses the last ones, at first those in config.
func (c *connection) tlsDialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var last atomic.Pointer[tls.Config]
	last.Store(config)
	rotates := areFiles(c.TLSCA, c.TLSCert, c.TLSKey)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if rotates {
			if now, err := c.tls(); err == nil {
				last.Store(now)
			}
		}
		return (&tls.Dialer{Config: last.Load()}).DialContext(ctx, network, addr)
	}
}

// areFiles reports whether the names, of which some may be empty, are those of files that can be
// read again, unlike a pipe.
func areFiles(names ...string) bool {
	some := false
	for _, name := range names {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
			return false
		}
		some = true
	}
	return some
}

// tls returns the TLS configuration from the flags.
func (c *connection) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSCA != "" {
		pem, err := os.ReadFile(c.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: %s has no certificate in PEM", c.TLSCA)
		}
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, errors.New("--tls-cert and --tls-key go together: give both")
	}
	if c.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
