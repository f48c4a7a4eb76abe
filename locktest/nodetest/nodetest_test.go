package nodetest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A holder keeps its lease while a minority is broken, and loses it in time when a majority is,
// however it is broken.
func TestBrokenMajorityLosesTheLease(t *testing.T) {
	for name, harm := range map[string]func(*nodetest.Nodes, ...int){
		"Kill": (*nodetest.Nodes).Kill, "Forget": (*nodetest.Nodes).Forget, "Freeze": (*nodetest.Nodes).Freeze,
		"Cut": (*nodetest.Nodes).Cut, "Mute": (*nodetest.Nodes).Mute,
		"Delay": func(n *nodetest.Nodes, numbers ...int) { n.Delay(time.Minute, numbers...) },
	} {
		testkit.Run(t, name, func(t *testing.T) {
			nodes := nodetest.Start(t, 5)
			lease := testkit.Lock(t, nodes.Client().Mutex("x"))
			harm(nodes, 1, 2)
			// Not in the moment of a renewal, which could restore the lease at a third node
			// that has just forgotten it.
			time.Sleep(time.Minute + time.Second)
			testkit.Held(t, lease)
			harm(nodes, 3, 4, 5)
			testkit.Lost(t, lease, quorumlock.DefaultTTL)
			nodes.Thaw()
			nodes.Delay(0)
			nodes.Restart()
			_ = lease.Unlock(t.Context()) // it is lost
			other := testkit.Lock(t, nodes.NewClient().Mutex("x"))
			testkit.Rises(t, lease, other)
			testkit.Unlock(t, other)
		})
	}
}

func TestClientsOfTheSameNodesShareLocks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3, quorumlock.WithTTL(time.Second))
		lease := testkit.Lock(t, nodes.Client().Mutex("x"))
		testkit.Refused(t, nodes.NewClient().Mutex("x"))
		testkit.Refused(t, nodes.Node().Mutex("x"))
		testkit.Unlock(t, lease)
	})
}

func TestTheExamples(t *testing.T) {
	t.Run("serve", testServe)
	t.Run("troubles", testTroubles)
	t.Run("one node", testOneNode)
}

// It works in real time, too.
func TestNodesOutsideABubble(t *testing.T) {
	nodes := nodetest.Start(t, 3)
	lease := testkit.Lock(t, nodes.Client().Mutex("x"))
	nodes.Kill(1)
	testkit.Unlock(t, lease)
	nodes.Kill(2)
	_, err := nodes.Client().Mutex("x").Lock(testkit.Within(t, 100*time.Millisecond))
	if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok {
		t.Errorf("Lock while two of three nodes are down: %v, want a *QuorumError", err)
	}
}
