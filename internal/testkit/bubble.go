package testkit

import (
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// Bubble runs a test in a bubble of virtual time, in parallel with other tests. It may be called
// once for a T: a test with several bubbles makes each a subtest with [Run].
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// Run runs a subtest as Bubble does. It begins when the function of t has returned.
func Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { Bubble(t, f) })
}

// Clean runs a test with a client of n new servers as Bubble does, and checks at its end that the
// servers have [Nothing].
func Clean(t *testing.T, n int, f func(t *testing.T, c *redlock.Client, servers []*embedded.Server)) {
	t.Helper()
	Bubble(t, func(t *testing.T) {
		c, servers := Client(t, n)
		f(t, c, servers)
		Nothing(t, servers)
	})
}
