package testkit

import (
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// Connect replaces redlock.Dial(urls) in examples. It returns a client of n servers in the process,
// the servers, and a function that closes both. On a busy machine, servers may take longer to
// answer than the default node timeout, so Connect sets a longer one.
func Connect(n int, opts ...quorumlock.Option) (client *redlock.Client, servers []*embedded.Server, stop func()) {
	servers, nodes, err := embedded.Nodes(n)
	if err != nil {
		panic(err)
	}
	client, err = redlock.New(nodes, append([]quorumlock.Option{quorumlock.WithNodeTimeout(5 * time.Second)}, opts...)...)
	if err != nil {
		panic(err)
	}
	return client, servers, func() {
		if err := client.Close(); err != nil {
			panic(err)
		}
		for _, s := range servers {
			s.Close()
		}
	}
}
