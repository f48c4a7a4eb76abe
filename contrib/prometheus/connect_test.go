package promlock_test

import (
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// connect stands in for redlock.Dial(urls): three servers in the process.
func connect(opts ...quorumlock.Option) (client *redlock.Client, stop func()) {
	servers, nodes, err := embedded.Nodes(3)
	if err != nil {
		panic(err)
	}
	// On a busy machine, they may take longer to answer than the default node timeout.
	if client, err = redlock.New(nodes, append(opts, quorumlock.WithNodeTimeout(5*time.Second))...); err != nil {
		panic(err)
	}
	return client, func() {
		_ = client.Close()
		for _, s := range servers {
			s.Close()
		}
	}
}
