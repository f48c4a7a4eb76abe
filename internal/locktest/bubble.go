package locktest

import (
	"testing"
	"testing/synctest"
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
