package main

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
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
		locktest.Run(t, name, func(t *testing.T) {
			const ttl = 2 * time.Second
			client, servers := locktest.Client(t, 3, quorumlock.WithTTL(ttl), quorumlock.WithNodeTimeout(1900*time.Millisecond))
			warm, err := client.Mutex("x").Lock(t.Context()) // later calls do not have to connect
			locktest.Must(t, err, "Lock")
			locktest.Must(t, warm.Extend(t.Context()), "Extend")
			locktest.Must(t, warm.Unlock(t.Context()), "Unlock")
			locktest.Each(servers, func(s *embedded.Server) { s.Delay(tt.delay) })
			began := time.Now()
			lease, err := (&runCommand{TTL: ttl}).acquire(t.Context(), client.Mutex("x"))
			if tt.starts {
				locktest.Must(t, err, "acquire")
				locktest.OK(t, lease.Unlock(t.Context()), "Unlock")
				return
			}
			if e, ok := errors.AsType[*statusError](err); !ok || e.status != exitNoQuorum || lease != nil {
				t.Errorf("%v, %v, want status %d", lease, err, exitNoQuorum)
			}
			if took := time.Since(began); took > 4*ttl {
				t.Errorf("the lock was kept for %v", took)
			}
			locktest.Each(servers, func(s *embedded.Server) { s.Delay(0) })
			locktest.OK(t, locktest.Err(client.Mutex("x").TryLock(t.Context())), "TryLock after it")
		})
	}
}

// The jobs of a cron may be the only clients with the restart guard, and each ends at once if it
// does not get the lock.
func TestRunSitsAQuarantineOut(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		client, servers := locktest.Client(t, 3, quorumlock.WithRestartGuard(quorumlock.DefaultTTL))
		began := time.Now()
		lease, err := (&runCommand{TTL: quorumlock.DefaultTTL, Try: true}).acquire(t.Context(), client.Mutex("x"))
		locktest.Must(t, err, "acquire")
		locktest.Took(t, began, quorumlock.DefaultTTL, quorumlock.DefaultTTL+time.Second, "the quarantine")
		another, _ := locktest.Another(t, servers, quorumlock.WithRestartGuard(quorumlock.DefaultTTL))
		_, err = (&runCommand{TTL: quorumlock.DefaultTTL, Try: true}).acquire(t.Context(), another.Mutex("x"))
		locktest.Is(t, err, quorumlock.ErrHeld, "another run")
		locktest.Unlock(t, lease)
	})
}
