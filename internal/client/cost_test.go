//go:build !race

// The race detector makes pools drop memory, so there are more allocations.

package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// prompt is yes, but it answers at once and makes no garbage.
type prompt struct {
	yes
	replies [8]wire.Reply
}

func (n *prompt) Do(_ context.Context, _ client.Lane, _ time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	for i := range calls {
		n.replies[i] = wire.Reply{Value: one}
		if calls[i].Script == release {
			n.replies[i].Value = zero
		}
	}
	answer(n.replies[:len(calls)])
}

func prompts(n int) (nodes []*prompt) {
	for i := range n {
		nodes = append(nodes, &prompt{yes: yes{name: fmt.Sprint("node-", i+1)}})
	}
	return nodes
}

var (
	release   = wire.Release("", "", 0).Script
	one, zero = any(int64(1)), any(int64(0))
)

// A Lock and Unlock without an Observer. The number of allocations may only fall.
func TestNobodyObservingCostsNoAllocation(t *testing.T) {
	const most = 22
	l, ctx := lockAt(t, newClient(t), "x", prompts(3)), context.Background()
	n := testing.AllocsPerRun(1000, func() {
		lease, err := l.Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if n > most {
		t.Errorf("a Lock and Unlock take %v allocations, want %v", n, most)
	}
}

// Programs make a Mutex for each call, by its name. The number of nodes must not matter.
func TestNewTakesTwoAllocationsAtAnyNumberOfNodes(t *testing.T) {
	c := newClient(t)
	set, err := options.Resolve()
	testkit.Must(t, err, "Resolve")
	for _, n := range []int{1, 3, 5, 33} {
		var cells []client.Cell
		for _, node := range yeses(n) {
			cells = append(cells, client.Cell{Node: node, Name: "x"})
		}
		form := client.NewForm(core.Majority(n/2+1, n), set)
		if got := testing.AllocsPerRun(100, func() { client.New(c, "x", form, cells, nil) }); got > 2 {
			t.Errorf("a lock of %d nodes takes %v allocations, want at most 2", n, got)
		}
	}
}

// The boot clock is a system call on Linux. A Lock and Unlock at five nodes read it for its ticket,
// for the start of the attempt, for each reply to it, for the lease, and for the Unlock.
func TestAnEventReadsTheBootClockAtMostOnce(t *testing.T) {
	began, reads := time.Now(), 0
	c := newClient(t)
	c.Simulate(time.Now, func() time.Duration {
		reads++
		return time.Since(began)
	}, nil)
	l := lockAt(t, c, "x", prompts(5))
	reads = 0
	testkit.Unlock(t, testkit.Lock(t, l))
	if most := 9; reads > most {
		t.Errorf("a Lock and Unlock read the clock %d times, want at most %d", reads, most)
	}
}
