package redlock

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/node"
)

// Dial returns a client over the nodes at the URLs, which [node.Dial] explains: [New] with a node for each URL. The options are
// the defaults of its locks, see New; [WithNodeOptions] is for the nodes:
//
//	client, err := redlock.Dial(urls, quorumlock.WithTTL(30*time.Second), quorumlock.WithLogger(log),
//		redlock.WithNodeOptions(node.WithCredentials(credentials)))
//
// It does no I/O, and after an error nothing is left open. No error holds a password. For nodes with options of their own, or over
// your own go-redis clients, use New.
func Dial(urls []string, opts ...quorumlock.Option) (*Client, error) {
	return dial("redlock.Dial", urls, opts)
}

// DialEnv is [Dial] with the URLs of the environment, by the same variables as the quorumlock tool. QUORUMLOCK_NODES has URLs
// separated by commas, with %2C for a comma in a password. If it is empty, QUORUMLOCK_NODES_FILE is the name of a file with one URL
// a line, such as a mounted secret; empty lines and lines that begin with # are ignored. The file is read once.
//
// The error names the variable. It matches [quorumlock.ErrMisuse], unless the file cannot be read.
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

// WithNodeOptions sets options of the nodes of [Dial] and [DialEnv], such as [node.WithTimeout] or [node.WithTLSConfig]. They apply to
// each node. Other functions refuse it: give the options to node.Dial.
func WithNodeOptions(opts ...node.Option) quorumlock.Option {
	return func(s *options.Settings) {
		earlier, _ := s.NodeOptions.([]node.Option)
		s.NodeOptions = slices.Concat(earlier, opts)
	}
}

// nodeOptions returns those of WithNodeOptions among opts.
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

// dial is Dial for a caller, which its errors name.
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

// closeAll closes nodes that were never used: they have no connections to lose.
func closeAll(nodes []*node.Node) {
	for _, n := range nodes {
		_ = n.Close()
	}
}
