package redlock

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// Dial returns a client over the nodes at the URLs. [node.Dial] documents the URLs. The options are
// the defaults of the client's locks, see [New]; [WithNodeOptions] has options of the nodes:
//
//	client, err := redlock.Dial(urls,
//		quorumlock.WithTTL(30*time.Second), quorumlock.WithLogger(log),
//		redlock.WithNodeOptions(node.WithCredentials(credentials)))
//
// Dial does no I/O, and leaves nothing open after an error. No error contains a password. For nodes
// with different options, or over your own go-redis clients, use New.
func Dial(urls []string, opts ...quorumlock.Option) (*Client, error) {
	return dial("redlock.Dial", urls, opts)
}

// DialEnv is [Dial] with the settings that all clients of a lock must share, from the environment
// variables of the quorumlock tool:
//
//	QUORUMLOCK_NODES          URLs separated by commas, with %2C for a comma in a password
//	QUORUMLOCK_QUORUM         WithQuorum
//	QUORUMLOCK_PREFIX         WithPrefix
//	QUORUMLOCK_TTL            WithTTL, such as 10s
//	QUORUMLOCK_RESTART_GUARD  WithRestartGuard
//	QUORUMLOCK_NODE_TIMEOUT   WithNodeTimeout, and node.WithTimeout
//	QUORUMLOCK_TLS_CA         a file with the authorities that sign the nodes' certificates, as PEM
//	QUORUMLOCK_FILE           a file with lines of the form NAME=value for the variables above
//	QUORUMLOCK_NODES_FILE     a file with one URL per line, if QUORUMLOCK_NODES is not set
//
// The database is that of the URLs. An empty variable counts as not set. In a file, empty lines and
// lines that begin with # are ignored, and values have no quotes. Options may set what the
// variables leave out. An option or a variable that contradicts another one is an error with both
// values. The error names the variable. It matches [quorumlock.ErrMisuse], unless reading a file
// failed.
//
// The client reads the file with the nodes again twice a second, until it is closed. If the address of
// one node has changed, and WithRestartGuard is set, the client replaces the node, when that is safe:
// docs/upgrades.md has the steps and the conditions. It takes over changed credentials at once. Any
// other change, and a file that is wrong, changes nothing. The client logs the reason as a warning,
// see [quorumlock.WithLogger].
//
// With a Logger, the client also lists the clients of the nodes once, in the background, within a
// second after its first connections to a quorum. It logs a warning for each other list of nodes,
// quorum, database or restart guard in use, with both values. It sees what [Client.Diagnose] sees.
func DialEnv(opts ...quorumlock.Option) (*Client, error) {
	const caller = "redlock.DialEnv"
	wrong := func(err error) error { return fmt.Errorf("quorumlock: %s: %w", caller, err) }
	fleet, err := options.ReadFleet(nil)
	if err != nil {
		return nil, wrong(err)
	}
	if fleet.Where == "" {
		return nil, errs.Misusef("quorumlock: %s: no nodes: set %s to their URLs, such as redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3, or %s to a file with such a line, or %s to a file with one URL a line",
			caller, options.NodesVariable, options.FileVariable, options.NodesFileVariable)
	}
	if err := fleet.Contradiction(opts); err != nil {
		return nil, wrong(err)
	}
	shared, err := sharedNodeOptions(&fleet, nodeOptions(opts))
	if err != nil {
		return nil, wrong(err)
	}
	own := slices.Concat(shared, nodeOptions(opts))
	follow := options.Following(&options.Follow{
		Settings: fleet,
		Dial:     func(url string) (any, error) { return node.Dial(url, own...) },
	})
	return dial(caller+": "+fleet.Where, fleet.Nodes, slices.Concat([]quorumlock.Option{WithNodeOptions(shared...), follow}, fleet.Options(), opts))
}

// sharedNodeOptions returns the options of nodes that the settings of a fleet have. given are those
// of the code.
func sharedNodeOptions(fleet *options.Fleet, given []node.Option) (shared []node.Option, err error) {
	if fleet.NodeTimeout != 0 {
		shared = append(shared, node.WithTimeout(fleet.NodeTimeout))
	}
	if fleet.TLSCA == "" {
		return shared, nil
	}
	var of transport.Config
	for _, o := range given {
		if o != nil {
			o(&of)
		}
	}
	if of.TLS != nil || of.Dialer != nil {
		return nil, errs.Misusef("%s is %s, and the code has node.WithTLSConfig or node.WithDialer: remove one of them", options.TLSCAVariable, fleet.TLSCA)
	}
	pem, err := os.ReadFile(fleet.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", options.TLSCAVariable, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errs.Misusef("%s: %s has no certificate in PEM: name a file of certificates", options.TLSCAVariable, fleet.TLSCA)
	}
	return append(shared, node.WithTLSConfig(config)), nil
}

// WithNodeOptions sets options of all nodes of [Dial] and [DialEnv], such as [node.WithTimeout] or
// [node.WithTLSConfig]. Other functions refuse it: pass the options to node.Dial.
func WithNodeOptions(opts ...node.Option) quorumlock.Option {
	return func(s *options.Settings) {
		earlier, _ := s.NodeOptions.([]node.Option)
		s.NodeOptions = slices.Concat(earlier, opts)
	}
}

// nodeOptions returns the arguments of WithNodeOptions among opts.
func nodeOptions(opts []quorumlock.Option) []node.Option {
	var set options.Settings
	for _, o := range opts {
		if o != nil {
			o(&set)
		}
	}
	own, _ := set.NodeOptions.([]node.Option)
	return own
}

// dial implements Dial. Its errors begin with caller.
func dial(caller string, urls []string, opts []quorumlock.Option) (*Client, error) {
	if len(urls) == 0 {
		return nil, errs.Misusef("quorumlock: %s: no URLs: give at least one, and three or five for a lock that survives failures", caller)
	}
	own := nodeOptions(opts)
	nodes := make([]*node.Node, 0, len(urls))
	for i, url := range urls {
		n, err := node.Dial(url, own...)
		if err != nil {
			closeAll(nodes)
			return nil, fmt.Errorf("quorumlock: %s: URL %d of %d: %w", caller, i+1, len(urls), err)
		}
		nodes = append(nodes, n)
	}
	used := quorumlock.Option(func(s *options.Settings) { s.NodeOptions = nil })
	c, err := New(nodes, slices.Concat(opts, []quorumlock.Option{used})...)
	if err != nil {
		closeAll(nodes)
		return nil, err
	}
	return c, nil
}

// closeAll closes nodes that were never used. There are no connections yet, so errors do not
// matter.
func closeAll(nodes []*node.Node) {
	for _, n := range nodes {
		_ = n.Close()
	}
}
