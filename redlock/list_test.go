package redlock_test

import (
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// over is a client over paths to the servers, under names of its own if there is a suffix.
func over(t *testing.T, servers []*embedded.Server, suffix string, opts ...quorumlock.Option) *redlock.Client {
	t.Helper()
	var nodes []*node.Node
	for _, s := range servers {
		p := s.Path(s.Name + suffix)
		t.Cleanup(p.Close)
		n, err := p.Node()
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	c := locktest.Of(t, nodes, opts...)
	locktest.Warm(t, c)
	synctest.Wait()
	return c
}

// Two clients with different lists may not exclude each other: Diagnose sees that from either side.
func TestCheckSeesClientsWithAnotherListOfNodes(t *testing.T) {
	other := func(says string) []redlock.Finding {
		return []redlock.Finding{{Kind: redlock.OtherList, Severity: redlock.Warning, Problem: says}}
	}
	for name, tt := range map[string]struct {
		theirs func(t *testing.T, all []*embedded.Server)
		want   []redlock.Finding
	}{
		"nobody else":      {func(*testing.T, []*embedded.Server) {}, nil},
		"the same":         {func(t *testing.T, all []*embedded.Server) { over(t, all[:3], "") }, nil},
		"in another order": {func(t *testing.T, all []*embedded.Server) { over(t, []*embedded.Server{all[2], all[0], all[1]}, "") }, nil},
		"by other names":   {func(t *testing.T, all []*embedded.Server) { over(t, all[:3], ".example") }, nil},
		"one replaced": {func(t *testing.T, all []*embedded.Server) { over(t, all[1:4], "") },
			other("3 nodes with a quorum of 2, instead of 3 with a quorum of 2; clients that have it: 1,")},
		"more nodes": {func(t *testing.T, all []*embedded.Server) { over(t, all, ""); over(t, all, "") },
			other("5 nodes with a quorum of 3, instead of 3 with a quorum of 2; clients that have it: 2,")},
		"another quorum": {func(t *testing.T, all []*embedded.Server) { over(t, all[:3], "", quorumlock.WithQuorum(3)) },
			other("3 nodes with a quorum of 3, instead of 3 with a quorum of 2; clients that have it: 1,")},
		"one that is no longer there": {func(t *testing.T, all []*embedded.Server) { _ = over(t, all, "").Close() }, nil},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			all, _ := locktest.Nodes(t, 5)
			mine := over(t, all[:3], "", quorumlock.WithLabel("mine"))
			tt.theirs(t, all)
			synctest.Wait()
			want := tt.want
			finds(t, check(t, mine, true), want...)
		})
	}
}

// Services under prefixes of their own share no locks, so they may have other lists on purpose.
func TestAnotherListUnderAnotherPrefixIsOnlyAdvice(t *testing.T) {
	for name, tt := range map[string]struct {
		mine, theirs string
		want         redlock.Severity
	}{
		"two prefixes": {"a:", "b:", redlock.Advice},
		"the same":     {"a:", "a:", redlock.Warning},
		"only mine":    {"a:", "", redlock.Warning},
		"only theirs":  {"", "b:", redlock.Warning},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			all, _ := locktest.Nodes(t, 5)
			mine := over(t, all[:3], "", quorumlock.WithPrefix(tt.mine))
			over(t, all, "", quorumlock.WithPrefix(tt.theirs))
			synctest.Wait()
			finds(t, check(t, mine, true), redlock.Finding{Kind: redlock.OtherList, Severity: tt.want, Problem: "5 nodes with a quorum of 3"})
		})
	}
}

// A user who may not name connections can still lock. For one who may not list them, the report
// notes that this was not checked.
func TestListsOfNodesNeedNoPermissionToLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		all, _ := locktest.Nodes(t, 3)
		for _, s := range all {
			s.Deny("client")
		}
		c := over(t, all, "")
		finds(t, check(t, c, true),
			redlock.Finding{Kind: redlock.Untold, Severity: redlock.Advice, Node: "node-1", Problem: "NOPERM"},
			redlock.Finding{Kind: redlock.Untold, Severity: redlock.Advice, Node: "node-2", Problem: "NOPERM"},
			redlock.Finding{Kind: redlock.Untold, Severity: redlock.Advice, Node: "node-3", Problem: "NOPERM"})
	})
}
