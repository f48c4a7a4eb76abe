package node_test

import (
	"fmt"
	"os"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
)

// inProcess starts a server in the process and takes connections to any address there, so that the
// examples run without a Redis. A program that has one leaves the option out.
func inProcess() (node.Option, *embedded.Server) {
	s := embedded.Start("redis")
	return node.WithDialer(s.DialContext), s
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
