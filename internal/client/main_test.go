package client_test

import (
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// lockAt returns a lock of a majority of the nodes.
func lockAt[N client.Node](tb testing.TB, c *client.Client, name string, nodes []N, opts ...quorumlock.Option) *client.Lock {
	tb.Helper()
	set, err := options.Resolve(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	cells := make([]client.Cell, len(nodes))
	for i, n := range nodes {
		cells[i] = client.Cell{Node: n, Name: name}
	}
	return client.New(c, name, client.NewForm(core.Majority(len(nodes)/2+1, len(nodes)), set), cells, nil)
}
