package election

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/quorum"
)

// pausedHold is a hold that is over, in a process that was paused and has fired no timer since.
type pausedHold struct{ quorumlock.Hold }

func (pausedHold) ValidUntil() time.Time { return time.Now().Add(-time.Second) }

// The timer of the lease fires late in a process that was paused. Each call of the term looks at
// the clock first, so the leader learns before the call returns.
func TestAPausedLeaderLearnsBeforeItsNextCallReturns(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, e *Election, term *Term) error{
		"Err":      func(_ context.Context, _ *Election, term *Term) error { return term.Err() },
		"Context":  func(_ context.Context, _ *Election, term *Term) error { return context.Cause(term.Context()) },
		"Proclaim": func(ctx context.Context, _ *Election, term *Term) error { return term.Proclaim(ctx, "late") },
		"Resign":   func(ctx context.Context, _ *Election, term *Term) error { return term.Resign(ctx) },
		"Health": func(_ context.Context, e *Election, term *Term) error {
			if e.Health(500*time.Millisecond) == nil {
				return nil
			}
			return context.Cause(term.ctx)
		},
		"Leading": func(_ context.Context, e *Election, term *Term) error {
			if _, ok := e.Leading(); ok {
				return nil
			}
			return context.Cause(term.ctx)
		},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			_, nodes := locktest.Nodes(t, 1)
			c := locktest.Of(t, nodes)
			e := New(c.Mutex("job"), "v")
			held := locktest.Lock(t, c.Mutex("job"))
			var hold quorumlock.Hold = heldBy{held}
			lease, _ := quorumlock.NewLease(t.Context(), pausedHold{hold})
			e.term = newTerm(t.Context(), e, lease, false)
			if err := quorum.ClientOf(c.Mutex("job")).Go(e.term.keep); err != nil {
				t.Fatal(err)
			}
			if err := call(t.Context(), e, e.term); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("%v, want ErrLost", err)
			}
			_ = e.term.Resign(t.Context())
		})
	}
}

// heldBy is the hold of a lease.
type heldBy struct{ *quorumlock.Lease }

func (h heldBy) EndLease(ctx context.Context, _ *quorumlock.Lease, keep time.Duration) error {
	return h.UnlockAfter(ctx, keep)
}
