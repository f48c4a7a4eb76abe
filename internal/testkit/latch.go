package testkit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Latch is the method set of the latches of packages redlock and node.
type Latch interface {
	Name() string
	Done(ctx context.Context, id string) error
	Wait(ctx context.Context) error
	Count(ctx context.Context) (int, error)
}

// Done adds ids to a latch, or ends the test.
func Done(t *testing.T, l Latch, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := l.Done(t.Context(), id); err != nil {
			t.Fatalf("Done(%q): %v", id, err)
		}
	}
}

// Counts checks the number of ids in a latch.
func Counts(t *testing.T, l Latch, want int) {
	t.Helper()
	if n, err := l.Count(t.Context()); n != want || err != nil {
		t.Errorf("Count: %d, %v, want %d", n, err, want)
	}
}

// Open checks that a Wait returns at once.
func Open(t *testing.T, l Latch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := l.Wait(ctx); err != nil {
		t.Errorf("Wait: %v, want it open", err)
	}
}

// Closed checks that a Wait does not return.
func Closed(t *testing.T, l Latch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := l.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: %v, want it closed", err)
	}
}

// Awaits calls Wait in a goroutine of a bubble, and returns when it waits at all nodes.
func Awaits(t *testing.T, l Latch) <-chan error {
	t.Helper()
	got := make(chan error, 1)
	go func() { got <- l.Wait(t.Context()) }()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	select {
	case err := <-got:
		t.Fatalf("Wait returned %v", err)
	default:
	}
	return got
}
