package main

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

// Over nodes whose round trip is longer than a quarter of the TTL, no renewal makes the lease long
// enough. The lock must not stay held by a program that never starts its command.
func TestRunGivesUpALockWhoseRenewalsAreTooSlow(t *testing.T) {
	for name, tt := range map[string]struct {
		delay  time.Duration // one way
		starts bool
	}{
		"near":     {10 * time.Millisecond, true},
		"far":      {200 * time.Millisecond, true},
		"too slow": {260 * time.Millisecond, false},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			const ttl = 2 * time.Second
			client, servers := testkit.Client(t, 3, quorumlock.WithTTL(ttl), quorumlock.WithNodeTimeout(1900*time.Millisecond))
			warm, err := client.Mutex("x").Lock(t.Context()) // later calls do not have to connect
			testkit.Must(t, err, "Lock")
			testkit.Must(t, warm.Extend(t.Context()), "Extend")
			testkit.Must(t, warm.Unlock(t.Context()), "Unlock")
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(tt.delay) })
			began := time.Now()
			lease, err := (&runCommand{TTL: ttl}).acquire(t.Context(), client.Mutex("x"))
			if tt.starts {
				testkit.Must(t, err, "acquire")
				testkit.OK(t, lease.Unlock(t.Context()), "Unlock")
				return
			}
			if e, ok := errors.AsType[*statusError](err); !ok || e.status != exitNoQuorum || lease != nil {
				t.Errorf("%v, %v, want status %d", lease, err, exitNoQuorum)
			}
			if took := time.Since(began); took > 4*ttl {
				t.Errorf("the lock was kept for %v", took)
			}
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(0) })
			testkit.OK(t, testkit.Err(client.Mutex("x").TryLock(t.Context())), "TryLock after it")
		})
	}
}

// The jobs of a cron may be the only clients with the restart guard, and each ends at once if it
// does not get the lock.
func TestRunSitsAQuarantineOut(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client, servers := testkit.Client(t, 3, quorumlock.WithRestartGuard(quorumlock.DefaultTTL))
		began := time.Now()
		lease, err := (&runCommand{TTL: quorumlock.DefaultTTL, Try: true}).acquire(t.Context(), client.Mutex("x"))
		testkit.Must(t, err, "acquire")
		testkit.Took(t, began, quorumlock.DefaultTTL, quorumlock.DefaultTTL+time.Second, "the quarantine")
		another, _ := testkit.Another(t, servers, quorumlock.WithRestartGuard(quorumlock.DefaultTTL))
		_, err = (&runCommand{TTL: quorumlock.DefaultTTL, Try: true}).acquire(t.Context(), another.Mutex("x"))
		testkit.Is(t, err, quorumlock.ErrHeld, "another run")
		testkit.Unlock(t, lease)
	})
}
