package nodetest_test

import (
	"context"
	"errors"
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

// testServe is a test of it: serve goes on while two of five nodes are down, and ends soon when
// three are.
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
		another := nodes.NewClient().Mutex("leader") // of another process
		if _, err := another.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("TryLock beside serve: %v, want ErrHeld", err)
		}
		nodes.Cut(3) // its packets vanish
		time.Sleep(quorumlock.DefaultTTL + time.Second)
		if len(done) == 0 {
			t.Error("serve goes on without its lock")
		}
		<-done
	})
}

// testTroubles is a test with all that can happen to nodes. None of it costs serve its lock.
func testTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 5)
		done := make(chan error, 1)
		go func() { done <- serve(t.Context(), nodes.Client().Mutex("leader")) }()
		for range 10 {
			nodes.Delay(20*time.Millisecond, 1) // it is slow
			nodes.Freeze(2)                     // it does nothing until Thaw
			time.Sleep(time.Minute)
			nodes.Thaw(2)
			nodes.Mute(3) // it does what it is asked, and its answers do not come
			time.Sleep(time.Minute)
			nodes.Thaw(3)
			nodes.Forget(4) // it restarts without its data
			nodes.Kill(5)
			time.Sleep(time.Minute)
			nodes.Restart(5) // with its data
		}
		if len(done) > 0 {
			t.Errorf("serve ended: %v", <-done)
		}
	})
}

// testOneNode is a test of code that has its locks on a single Redis: it loses them with that one.
func testOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 1)
		done := make(chan error, 1)
		go func() { done <- serve(t.Context(), nodes.Node().Mutex("leader")) }()
		time.Sleep(time.Minute)
		nodes.Forget() // it restarts without its data
		if err := <-done; !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("serve ended with %v", err)
		}
	})
}

func Example() {
	// In a file of tests, name them TestServe and so on: go test finds them.
	var _, _, _ func(t *testing.T) = testServe, testTroubles, testOneNode
}
