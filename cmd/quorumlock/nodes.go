package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
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

// urls returns the URLs of the nodes: from the flags, or else from the environment. Its errors do
// not repeat URLs.
func (s sources) urls(command string) (urls []string, err error) {
	switch {
	case s.Nodes != nil && s.NodesFile != nil:
		return nil, usageError(command + ": --nodes and --nodes-file are both given: use one of them")
	case s.Nodes != nil:
		urls, err = options.SplitNodes("--nodes", *s.Nodes)
	case s.NodesFile != nil:
		urls, err = options.ReadNodes("--nodes-file", *s.NodesFile)
	default:
		urls, _, err = options.NodesFromEnv()
	}
	if err != nil {
		return nil, usageError(fmt.Sprintf("%s: %v", command, err))
	}
	if len(urls) == 0 {
		return nil, usageError(fmt.Sprintf("%s: no nodes: give their URLs as --nodes redis://host:6379,redis://..., in a file as --nodes-file FILE, or in the environment as %s or %s",
			command, options.NodesVariable, options.NodesFileVariable))
	}
	return urls, nil
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
	urls, err := c.urls(command)
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
	nodes := make([]*node.Node, len(urls))
	for i, u := range urls {
		own := opts
		if secure != nil && strings.HasPrefix(u, "rediss://") {
			own = append(own[:len(own):len(own)], node.WithTLSConfig(secure))
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

// tls returns the TLS configuration from the flags, or nil.
func (c *connection) tls() (*tls.Config, error) {
	if c.TLSCA == "" && c.TLSCert == "" && c.TLSKey == "" {
		return nil, nil
	}
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
