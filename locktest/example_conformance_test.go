package locktest_test

import (
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/locktest"
)

// testMyLocker is a test of a Locker of your own; here it is that of this package.
func testMyLocker(t *testing.T) {
	locktest.Conformance{
		New: func(t *testing.T) (a, b quorumlock.Locker) {
			lock := locktest.New("x")
			return lock, lock // as two processes have it
		},
		Bubble: true, // it uses no sockets
	}.Run(t)
}

func ExampleConformance() {
	// In a file of tests, name it TestMyLocker: go test finds it.
	var _ func(t *testing.T) = testMyLocker
}
