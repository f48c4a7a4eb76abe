package client_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// counting is a node that counts its requests. Another owner has every lock there.
type counting struct {
	yes
	asked atomic.Int64
}

func (n *counting) Do(_ context.Context, _ client.Lane, _ time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	n.asked.Add(1)
	replies := make([]wire.Reply, len(calls))
	for i, c := range calls {
		switch c.Script {
		case wire.Acquire("", "", 0, 0, 0).Script:
			replies[i].Value = []any{int64(0), int64(1000), int64(-1), "other:1"}
		case wire.Release("", "", 0).Script:
			replies[i].Value = []any{int64(-1), int64(0)}
		default:
			replies[i].Value = int64(0)
		}
	}
	answer(replies)
}

// Either a call begins before Shutdown first looks for operations under way, or it is refused.
func TestNothingIsAskedOnceShutdownHasReturned(t *testing.T) {
	for range testkit.Thorough(1000, 100) {
		n := &counting{}
		c := client.NewClient("test")
		l := lockAt(t, c, "x", []*counting{n})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					if _, err := l.TryLock(t.Context()); errors.Is(err, quorumlock.ErrClosed) {
						return
					}
				}
			})
		}
		for n.asked.Load() < 10 {
			runtime.Gosched()
		}
		testkit.OK(t, c.Shutdown(t.Context()), "Shutdown")
		before := n.asked.Load()
		wg.Wait()
		c.Close()
		if after := n.asked.Load(); after != before {
			t.Fatalf("a node was asked %d times after Shutdown had returned", after-before)
		}
	}
}
