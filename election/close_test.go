package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
)

// Close loses the lease, so there is no drain to wait for.
func TestCloseDoesNotWaitForADrain(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		term, err := c[0].Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(time.Second)
		began := time.Now()
		if err := c[0].client.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := term.Resign(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Resign: %v, want ErrLost", err)
		}
	})
}

// After that, the lead function may take its own time.
func TestCloseWhileTheLeadFunctionDrains(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		end := make(chan struct{})
		go func() {
			got <- c[0].Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				<-end
				return nil
			})
		}()
		time.Sleep(time.Second)
		cancel()
		time.Sleep(time.Second)
		began := time.Now()
		if err := c[0].client.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		close(end)
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want that its context is done", err)
		}
	})
}

// An observer that waits for a message learns of it, too.
func TestObserveEndsAtOnceWithItsClient(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 1)
		o := c[0].watches(t)
		time.Sleep(time.Second)
		now := time.Now()
		if err := c[0].client.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		o.saw(t, now, time.Second, "-", quorumlock.ErrClosed.Error())
	})
}
