package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
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

// fleet returns the settings of the environment and its file, with the nodes of the flags, if they
// are given. Its errors do not repeat URLs.
func (s sources) fleet(command string) (f options.Fleet, err error) {
	var urls []string
	instead := map[string]string{}
	switch {
	case s.Nodes != nil && s.NodesFile != nil:
		return f, usageError(command + ": --nodes and --nodes-file are both given: use one of them")
	case s.Nodes != nil:
		urls, err = options.SplitNodes("--nodes", *s.Nodes)
		instead[options.NodesVariable], instead[options.NodesFileVariable] = "", ""
	case s.NodesFile != nil:
		instead[options.NodesVariable], instead[options.NodesFileVariable] = "", *s.NodesFile
	}
	if err == nil {
		f, err = options.ReadFleet(instead)
	}
	if err != nil {
		text := err.Error()
		if s.NodesFile != nil {
			text = strings.ReplaceAll(text, options.NodesFileVariable, "--nodes-file")
		}
		return f, usageError(command + ": " + text)
	}
	if urls != nil {
		f.Nodes, f.File = urls, ""
	}
	if len(f.Nodes) == 0 {
		return f, usageError(fmt.Sprintf("%s: no nodes: give their URLs as --nodes redis://host:6379,redis://..., in a file as --nodes-file FILE, or in the environment as %s, %s or %s",
			command, options.NodesVariable, options.NodesFileVariable, options.FileVariable))
	}
	return f, nil
}

// take sets the flags that are not given from the settings.
func (c *connection) take(f *options.Fleet) {
	c.Prefix, c.TLSCA = cmp.Or(c.Prefix, f.Prefix), cmp.Or(c.TLSCA, f.TLSCA)
	if c.Quorum == nil && f.Quorum != 0 {
		c.Quorum = &f.Quorum
	}
	if c.RestartGuard == nil && f.RestartGuard != 0 {
		c.RestartGuard = &f.RestartGuard
	}
	if c.NodeTimeout == nil && f.NodeTimeout != 0 {
		c.NodeTimeout = &f.NodeTimeout
	}
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
	fleet, err := c.fleet(command)
	if err != nil {
		return nil, err
	}
	c.take(&fleet)
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
	dialNode := func(u string) (*node.Node, error) {
		own := opts[:len(opts):len(opts)]
		if strings.HasPrefix(u, "rediss://") && (c.TLSCA != "" || c.TLSCert != "") {
			own = append(own, node.WithDialer(dial))
		}
		return node.Dial(u, own...)
	}
	nodes := make([]*node.Node, len(fleet.Nodes))
	for i, u := range fleet.Nodes {
		if nodes[i], err = dialNode(u); err != nil {
			return nil, usageError(fmt.Sprintf("%s: node %d of %d: %v", command, i+1, len(nodes), err))
		}
	}
	lock = append(lock, options.Following(&options.Follow{
		Settings: fleet, Dial: func(u string) (any, error) { return dialNode(u) },
	}))
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
