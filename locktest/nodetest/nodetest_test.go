package nodetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// A holder keeps its lease while a minority is broken, and loses it in time when a majority is,
// however it is broken.
func TestBrokenMajorityLosesTheLease(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*nodetest.Nodes, ...int){
		"Kill": (*nodetest.Nodes).Kill, "Forget": (*nodetest.Nodes).Forget, "Freeze": (*nodetest.Nodes).Freeze,
		"Cut": (*nodetest.Nodes).Cut, "Mute": (*nodetest.Nodes).Mute,
		"Delay": func(n *nodetest.Nodes, numbers ...int) { n.Delay(time.Minute, numbers...) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := nodetest.Start(t, 5)
				lease := locktest.Lock(t, nodes.Client().Mutex("x"))
				harm(nodes, 1, 2)
				// Not in the moment of a renewal, which could restore the lease at a third node
				// that has just forgotten it.
				time.Sleep(time.Minute + time.Second)
				locktest.Held(t, lease)
				harm(nodes, 3, 4, 5)
				locktest.Lost(t, lease, quorumlock.DefaultTTL)
				nodes.Thaw()
				nodes.Delay(0)
				nodes.Restart()
				_ = lease.Unlock(t.Context()) // it is lost
				other := locktest.Lock(t, nodes.NewClient().Mutex("x"))
				if other.Token() <= lease.Token() {
					t.Errorf("token %d after %d", other.Token(), lease.Token())
				}
				locktest.Unlock(t, other)
			})
		})
	}
}

func TestClientsOfTheSameNodesShareLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3, quorumlock.WithTTL(time.Second))
		lease := locktest.Lock(t, nodes.Client().Mutex("x"))
		locktest.Refused(t, nodes.NewClient().Mutex("x"))
		locktest.Refused(t, nodes.Node().Mutex("x"))
		locktest.Unlock(t, lease)
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
	lease := locktest.Lock(t, nodes.Client().Mutex("x"))
	nodes.Kill(1)
	locktest.Unlock(t, lease)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	nodes.Kill(2)
	_, err := nodes.Client().Mutex("x").Lock(ctx)
	if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok {
		t.Errorf("Lock while two of three nodes are down: %v, want a *QuorumError", err)
	}
}
