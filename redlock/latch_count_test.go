package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
)

// A Wait that was cut short leaves a latch without ids at one node. A Count that sees it does not make it one that a
// quorum has.
func TestACountOfALatchThatAMinorityHasIsNoMemoryOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := start(t, 3)
		other, paths := another(t, servers)
		kill(paths[1:]...)
		isClosed(t, other.Latch("x", 2))
		l := c.Latch("x", 2)
		counts(t, l, 0)
		kill(servers[0])
		done(t, l, "1")
		counts(t, l, 1)
	})
}

// Callers may keep a latch for different times. Its ids last as long as the latch.
func TestTheIDsOfALatchLastAsLongAsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := start(t, 3)
		other, _ := another(t, servers)
		isClosed(t, c.Latch("x", 2, quorumlock.WithRetention(48*time.Hour)))
		done(t, other.Latch("x", 2, quorumlock.WithRetention(24*time.Hour)), "1")
		synctest.Wait()
		time.Sleep(25 * time.Hour)
		counts(t, other.Latch("x", 2), 1)
	})
}
