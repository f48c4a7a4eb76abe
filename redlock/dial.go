package redlock

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
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

// DialEnv is [Dial] with URLs from the environment variables of the quorumlock tool.
// QUORUMLOCK_NODES has URLs separated by commas, with %2C for a comma in a password. If it is
// empty, QUORUMLOCK_NODES_FILE is the name of a file with one URL per line, such as a mounted
// secret. Empty lines and lines that begin with # are ignored. DialEnv reads the file once.
//
// The error names the variable. It matches [quorumlock.ErrMisuse], unless reading the file failed.
func DialEnv(opts ...quorumlock.Option) (*Client, error) {
	const caller = "redlock.DialEnv"
	urls, variable, err := options.NodesFromEnv()
	if err != nil {
		return nil, fmt.Errorf("quorumlock: %s: %w", caller, err)
	}
	if variable == "" {
		return nil, errs.Misusef("quorumlock: %s: no nodes: set %s to their URLs, such as redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3, or %s to a file with one URL a line",
			caller, options.NodesVariable, options.NodesFileVariable)
	}
	return dial(caller+": "+variable, urls, opts)
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
