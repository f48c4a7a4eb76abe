package node_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
)

func TestInspectOfAMutexShowsItsHolder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, _ *embedded.Server, n *node.Node) {
		m := n.Mutex("x")
		lease := testkit.MustLock(t, m)
		if got, err := n.Inspect(t.Context(), "x"); m.Name() != "x" || err != nil || got.Owner != lease.Owner() || got.HoldCount != 1 || got.Token != lease.Token() || got.TTL != quorumlock.DefaultTTL {
			t.Errorf("Inspect of %q: %+v, %v", m.Name(), got, err)
		}
		testkit.MustUnlock(t, lease)
	})
}

func TestTryLockNamesTheNodeAndTheCause(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(*embedded.Server)
		want  string
	}{
		"down":       {(*embedded.Server).Kill, "connection refused"},
		"stalled":    {(*embedded.Server).Stall, "context deadline exceeded"},
		"wrong type": {func(s *embedded.Server) { _ = s.Redis.Set("x", "a value") }, "WRONGTYPE"},
		"read only":  {func(s *embedded.Server) { s.Redis.SetError("READONLY") }, "READONLY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
				testkit.Must(t, testkit.Err(n.Inspect(t.Context(), "y")), "Inspect")
				tt.fault(s)
				_, err := n.Mutex("x").TryLock(t.Context())
				if e, ok := errors.AsType[*quorumlock.NodeError](err); !ok || e.Node != "node-1" || !strings.Contains(e.Error(), tt.want) {
					t.Errorf("error %v, want a *NodeError of node-1 with %q", err, tt.want)
				}
				q, few := errors.AsType[*quorumlock.QuorumError](err)
				if wrong := errors.Is(err, quorumlock.ErrNotALock); wrong == few || few && (q.Granted != 0 || q.Needed != 1 || len(q.Nodes) != 1) {
					t.Errorf("error %v, want either ErrNotALock or a *QuorumError of one node", err)
				}
				if errors.Is(err, quorumlock.ErrHeld) {
					t.Error("a failure counts as held")
				}
				s.Resume()
				synctest.Wait()
				if got, _ := s.Redis.Get("x"); name == "wrong type" && got != "a value" {
					t.Errorf("what was at the key is %q now", got)
				}
			})
		})
	}
}

// A zero Node has no server. Its locks return an error, and nothing panics.
func TestAZeroNodeHasAnError(t *testing.T) {
	var n node.Node
	ctx := t.Context()
	for what, err := range map[string]error{
		"Lock":        testkit.Err(n.Mutex("x").Lock(ctx)),
		"TryLock":     testkit.Err(n.Mutex("x").TryLock(ctx)),
		"Inspect":     testkit.Err(n.Inspect(ctx, "x")),
		"ForceUnlock": n.ForceUnlock(ctx, "x"),
		"Status":      testkit.Err(n.Status(ctx)),
	} {
		says(t, what, err, "use node.Dial or node.New")
	}
	testkit.Equal(t, n.String(), "zero node", "its name")
	if err := n.Close(); err != nil || n.Client() != nil {
		t.Errorf("Close: %v; its client is %v", err, n.Client())
	}
}

// A call with a bad option does nothing: without its prefix it would be a call for another lock.
func TestABadOptionKeepsInspectAndForceUnlockFromAnotherLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, _ *embedded.Server, n *node.Node) {
		m := testkit.MustLock(t, n.Mutex("x"))
		bad := quorumlock.WithPrefix("a prefix: ")
		for what, err := range map[string]error{
			"ForceUnlock": n.ForceUnlock(t.Context(), "x", bad),
			"Inspect":     testkit.Err(n.Inspect(t.Context(), "x", bad)),
		} {
			if err == nil || !strings.Contains(err.Error(), "WithPrefix") {
				t.Errorf("%s: %v, want an error that names the option", what, err)
			}
		}
		testkit.OK(t, m.Extend(t.Context()), "Extend")
		testkit.MustUnlock(t, m)
	})
}
