package election

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
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
		testkit.Run(t, name, func(t *testing.T) {
			c, _ := testkit.Client(t, 1)
			e := New(c.Mutex("job"), "v")
			lease, _ := quorumlock.NewLease(t.Context(), pausedHold{heldBy{testkit.Lock(t, c.Mutex("job"))}})
			e.term = newTerm(t.Context(), e, lease, false)
			testkit.Must(t, client.ClientOf(c.Mutex("job")).Go(e.term.keep), "Go")
			testkit.Is(t, call(t.Context(), e, e.term), quorumlock.ErrLost, "call")
			_ = e.term.Resign(t.Context())
		})
	}
}

// heldBy is the hold of a lease.
type heldBy struct{ *quorumlock.Lease }

func (h heldBy) Extend(ctx context.Context, _ time.Duration) error { return h.Lease.Extend(ctx) }

func (h heldBy) EndLease(ctx context.Context, _ *quorumlock.Lease, keep time.Duration) error {
	return h.UnlockAfter(ctx, keep)
}

type said string

func (e said) Error() string { return string(e) }
func (said) RedisError()     {}

// Each version of Redis has its own text for a command without permission in a script.
func TestForbiddenCommandsAndWrongKeysAreIncurable(t *testing.T) {
	for _, err := range []error{
		said("NOPERM this user has no permissions to run the 'evalsha' command"),
		said("ERR ACL failure in script: User app has no permissions to run the 'hexists' command script: 0c5, on @user_script:24."),
		said("ERR Error running script (call to 0c5): @user_script:24: The user executing the script can't run this command or subcommand"),
		said("NOPERM No permissions to access a key script: 0c5, on @user_script:24."),
		said("ERR unknown command 'evalsha'"),
		quorumlock.ErrNotALock,
	} {
		testkit.Equal(t, client.IsIncurable(&quorumlock.NodeError{Node: "n", Err: err}), true, "%v is incurable", err)
	}
	for _, err := range []error{said("LOADING Redis is loading the dataset in memory"), said("OOM command not allowed"), redis.Nil, errors.New("NOPERM")} {
		testkit.Equal(t, client.IsIncurable(&quorumlock.NodeError{Node: "n", Err: err}), false, "%v is incurable", err)
	}
}

func TestResignOfATermThatWasNeverWonIsErrNotLeader(t *testing.T) {
	for name, term := range map[string]*Term{"nil": nil, "zero": {}} {
		testkit.Is(t, term.Resign(t.Context()), ErrNotLeader, "%s", name)
	}
}
