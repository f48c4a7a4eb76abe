package quorumlock_test

import (
	"fmt"
	"os"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// connect stands in for what a program does once, at its start: dial its nodes and make a client. The
// nodes of the examples run in the process; nodes.Kill cuts some of them off. On a busy machine, they may take
// longer to answer than the default node timeout.
func connect(opts ...quorumlock.Option) (*redlock.Client, nodes) {
	servers, dialled, err := embedded.Nodes(5)
	exitOn(err)
	client, err := redlock.New(dialled, append([]quorumlock.Option{quorumlock.WithNodeTimeout(5 * time.Second)}, opts...)...)
	exitOn(err)
	return client, nodes{servers, client}
}

type nodes struct {
	servers []*embedded.Server
	client  *redlock.Client
}

func (n nodes) Kill(first, last int) {
	for _, s := range n.servers[first-1 : last] {
		s.Kill()
	}
}

func (n nodes) Close() {
	exitOn(n.client.Close())
	for _, s := range n.servers {
		s.Close()
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
