package nodetest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

// serve is the code under test: it works until it loses its lock.
func serve(ctx context.Context, lock quorumlock.Locker) error {
	return quorumlock.Do(ctx, lock, func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// testServe is a test of it: serve goes on while two of five nodes are down, and ends soon when three are.
func testServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 5)
		done := make(chan error, 1)
		go func() { done <- serve(t.Context(), nodes.Client().Mutex("leader")) }()

		nodes.Kill(1, 2)
		time.Sleep(time.Hour) // takes no time in a bubble
		if len(done) > 0 {
			t.Fatalf("serve ended: %v", <-done)
		}
		nodes.Cut(3) // its packets vanish
		time.Sleep(quorumlock.DefaultTTL + time.Second)
		if len(done) == 0 {
			t.Error("serve goes on without its lock")
		}
		<-done
	})
}

func Example() {
	// In a file of tests, name it TestServe: go test finds it.
	var _ func(t *testing.T) = testServe
}
