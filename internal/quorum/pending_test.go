package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// mute is a node that is away.
type mute struct{}

func (mute) String() string { return "mute" }

func (mute) Do(_ context.Context, _ Lane, _ time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	replies := make([]wire.Reply, len(calls))
	for i := range replies {
		replies[i].Err = context.DeadlineExceeded
	}
	answer(replies)
}

func (mute) Listen(string, func(string)) (stop func()) { return func() {} }

// The pending releases of a node are limited, however long the node is away.
func TestPendingReleasesAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewClient("test")
		defer c.Close()
		for range 3 {
			for range maxPending {
				c.addPending(mute{}, pendingRelease{call: wire.Release("x", "a:1", 1)}, false)
			}
			time.Sleep(time.Minute)
		}
		c.retries.mu.Lock()
		defer c.retries.mu.Unlock()
		if n := len(c.retries.of[mute{}].unconfirmed); n > maxPending {
			t.Errorf("%d releases are pending, want %d at most", n, maxPending)
		}
	})
}
