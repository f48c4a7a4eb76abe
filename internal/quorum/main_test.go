package quorum_test

import (
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// lockAt returns a lock of a majority of the nodes.
func lockAt[N quorum.Node](tb testing.TB, c *quorum.Client, name string, nodes []N, opts ...quorumlock.Option) *quorum.Lock {
	tb.Helper()
	set, err := options.Resolve(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	cells := make([]quorum.Cell, len(nodes))
	for i, n := range nodes {
		cells[i] = quorum.Cell{Node: n, Name: name}
	}
	return quorum.New(c, name, core.Majority(len(nodes)/2+1, len(nodes)), cells, set, nil)
}
