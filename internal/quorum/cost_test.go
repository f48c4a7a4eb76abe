//go:build !race

// The race detector makes pools drop memory, so there are more allocations.

package quorum_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// Programs make a Mutex for each call, by its name. The number of nodes must not matter.
func TestALockOfMoreNodesTakesNoMoreAllocations(t *testing.T) {
	c := newClient(t)
	set, err := options.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 3, 5, 33} {
		var cells []quorum.Cell
		for _, node := range yeses(n) {
			cells = append(cells, quorum.Cell{Node: node, Name: "x"})
		}
		tree, most := core.Majority(n/2+1, n), 2.0
		if got := testing.AllocsPerRun(100, func() { quorum.New(c, "x", tree, cells, set, nil) }); got > most {
			t.Errorf("a lock of %d nodes takes %v allocations, want %v", n, got, most)
		}
	}
}
