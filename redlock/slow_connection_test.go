package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// Connecting takes several round trips. Where they take longer than one call may, the connection is made all
// the same, for the calls after it.
func TestConnectionThatTakesLongerThanTheNodeTimeoutIsMadeAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, quorumlock.WithNodeTimeout(50*time.Millisecond), quorumlock.WithWait(2*time.Second))
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(12 * time.Millisecond) }) // a script takes 24 ms
		lease := locktest.Lock(t, c.Mutex("x"))
		time.Sleep(time.Second) // by then there is a connection to those that were late, too
		locktest.Unlock(t, lease)
		// A script that was sent as its time ran out, at a node that was out of reach for its undoing, is over with its TTL.
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Nothing(t, servers)
	})
}
