package scripts_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A server that comes back with old data shows a reader that has gone since. The writer after it is lost. Nobody may share
// that lock now, and nobody may have it when the old share is over: only a fresh key was not lost.
func TestAnOldShareOpensNoQuarantinedServer(t *testing.T) {
	restarting(t, func(h host) {
		time.Sleep(time.Minute)
		share := func(owner quorumlock.Owner) (wire.Answer, error) {
			return transport.Of(h.node).Send(h.Context(), wire.Acquire("x", owner, ttl, 1, 100).Shared().Guarded(quarantine))[0].Acquired()
		}
		if a, err := share(alice); err != nil || !a.Granted {
			t.Fatalf("%+v, %v", a, err)
		}
		h.Restart(true) // from a snapshot: alice has left since, and somebody else holds at a quorum with this server
		if a, err := share(bob); !errors.Is(err, quorumlock.ErrQuarantined) {
			t.Errorf("a reader in the quarantine: %+v, %v, want ErrQuarantined", a, err)
		}
	})
}

func TestAnOverShareOpensNoQuarantinedServer(t *testing.T) {
	restarting(t, func(h host) {
		time.Sleep(time.Minute)
		for owner, life := range map[quorumlock.Owner]time.Duration{alice: ttl, bob: time.Second} {
			transport.Of(h.node).Send(h.Context(), wire.Acquire("x", owner, life, 1, 100).Shared())
		}
		transport.Of(h.node).Send(h.Context(), wire.Release("x", alice, 1)) // the key lasts for alice's TTL, bob's share for a second
		h.Restart(true)
		time.Sleep(1500 * time.Millisecond)
		if a, err := h.acquire("carol:1"); !errors.Is(err, quorumlock.ErrQuarantined) {
			t.Errorf("a mutex in the quarantine: %+v, %v, want ErrQuarantined", a, err)
		}
	})
}
