package quorumlock_test

import (
	"fmt"
	"os"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// connect is testkit.Connect with five nodes, some of which nodes.Kill cuts off.
func connect(opts ...quorumlock.Option) (*redlock.Client, nodes) {
	client, servers, stop := testkit.Connect(5, opts...)
	return client, nodes{servers, stop}
}

type nodes struct {
	servers []*embedded.Server
	Close   func()
}

func (n nodes) Kill(first, last int) {
	for _, s := range n.servers[first-1 : last] {
		s.Kill()
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
