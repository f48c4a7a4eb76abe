//go:build !race

// The race detector makes pools drop memory, so there are more allocations.

package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// Programs make a Mutex for each call, by its name. The number of nodes must not matter.
func TestNewTakesTwoAllocationsAtAnyNumberOfNodes(t *testing.T) {
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
			t.Errorf("a lock of %d nodes takes %v allocations, want at most %v", n, got, most)
		}
	}
}

// The boot clock is a system call on Linux. A Lock and Unlock at five nodes read it for its ticket,
// for the start of the attempt, for each of ten replies, for the lease, and for the Unlock.
func TestEachEventReadsTheBootClockOnce(t *testing.T) {
	nodes, began, reads := make([]*prompt, 5), time.Now(), 0
	for i := range nodes {
		nodes[i] = &prompt{yes: yes{name: fmt.Sprint("node-", i+1)}}
	}
	c := newClient(t)
	c.Simulate(time.Now, func() time.Duration {
		reads++
		return time.Since(began)
	}, nil)
	l := lockAt(t, c, "x", nodes)
	reads = 0
	locktest.Unlock(t, locktest.Lock(t, l))
	if most := 14; reads > most {
		t.Errorf("a Lock and Unlock read the clock %d times, want at most %d", reads, most)
	}
}
