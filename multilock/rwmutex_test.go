package multilock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
)

// "Read the rates, write the account": in one call.
func TestAMultiLockReadsOneNameAndWritesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		mixed := all(t, c.RWMutex("account"), c.RWMutex("rates").RLocker())
		lease := locktest.Lock(t, mixed)
		locktest.Unlock(t, locktest.TryLock(t, d.RWMutex("rates").RLocker()))
		locktest.Refused(t, d.RWMutex("rates"))
		locktest.Refused(t, d.RWMutex("account").RLocker())

		// Whoever holds one name alone and shares the other has both, but may not hold both alone.
		began := time.Now()
		both := all(t, c.RWMutex("account"), c.RWMutex("rates"))
		if _, err := both.Lock(lease.Context()); !errors.Is(err, quorumlock.ErrUpgrade) || time.Since(began) > 0 {
			t.Errorf("Lock of what it shares: %v after %v, want ErrUpgrade at once", err, time.Since(began))
		}
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}
