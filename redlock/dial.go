package redlock

import (
	"fmt"

	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/node"
)

// Dial returns a client over the nodes at the URLs, which [node.Dial] explains: [New] with a node for each URL. It
// does no I/O, and after an error nothing is left open. No error holds a password.
//
// Its locks have the default options; give others to [Client.Mutex]. For options of the client or of its nodes, use
// node.Dial and New, where it is clear which of the two an option is for.
func Dial(urls ...string) (*Client, error) {
	if len(urls) == 0 {
		return nil, errs.Misuse("quorumlock: redlock.Dial: no URLs: give at least one, and three or five for a lock that survives failures")
	}
	nodes := make([]*node.Node, 0, len(urls))
	for i, url := range urls {
		n, err := node.Dial(url)
		if err != nil {
			closeAll(nodes)
			return nil, fmt.Errorf("quorumlock: redlock.Dial: URL %d of %d: %w", i+1, len(urls), err)
		}
		nodes = append(nodes, n)
	}
	c, err := New(nodes)
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
