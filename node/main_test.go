package node_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	alice quorumlock.Owner = "alice:1"
	bob   quorumlock.Owner = "bob:1"

	ttl = 10 * time.Second
)

// inBubble runs a test with one embedded server, and a node for it, on a clock of its own.
func inBubble(t *testing.T, test func(t *testing.T, s *embedded.Server, n *node.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 1)
		test(t, servers[0], nodes[0])
	})
}

// dial is node.Dial for a node of the test, closed with it.
func dial(t *testing.T, url string, opts ...node.Option) *node.Node {
	t.Helper()
	n, err := node.Dial(url, opts...)
	testkit.Must(t, err, "Dial of %s", url)
	t.Cleanup(func() { mustClose(t, n) })
	return n
}

func mustClose(t *testing.T, n *node.Node) {
	t.Helper()
	testkit.OK(t, n.Close(), "Close")
}

func mustAcquire(t *testing.T, n *node.Node, owner quorumlock.Owner, hold int) {
	t.Helper()
	a, err := n.Acquire(t.Context(), "x", owner, ttl, hold)
	if err != nil || !a.Granted {
		t.Fatalf("Acquire %d for %s: %+v, %v", hold, owner, a, err)
	}
}

// says checks that an error contains each of some texts.
func says(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v, want %q in it", what, err, text)
		}
	}
}

// checkCount checks how often owner holds x at s, past all faults; "" is not at all.
func checkCount(t *testing.T, s *embedded.Server, owner quorumlock.Owner, want string) {
	t.Helper()
	testkit.Equal(t, s.Redis.HGet("x", string(owner)), want, "entries of %s in x", owner)
}
