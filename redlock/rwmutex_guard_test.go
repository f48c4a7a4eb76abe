package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"
)

// One node restarts with the data of a second ago, in which a reader had the lock that has gone since. The guard must keep
// readers out there while a writer holds at that node and another.
func TestNoReaderBesideAWriterWhenAGuardedNodeRestartsWithOldData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, guarded)
		other, paths := locktest.Another(t, servers, guarded)
		longUp()
		r := rlock(t, c.RWMutex("x"))
		old := map[string]string{}
		fields, _ := servers[1].Redis.HKeys("x")
		for _, f := range fields {
			old[f] = servers[1].Redis.HGet("x", f)
		}
		ttl := servers[1].Redis.TTL("x")
		locktest.Unlock(t, r)

		paths[2].Kill() // the writer has a quorum without it
		w := locktest.Lock(t, other.RWMutex("x"))
		servers[1].Kill()
		servers[1].Redis.Del("x")
		for f, v := range old {
			servers[1].Redis.HSet("x", f, v)
		}
		servers[1].Redis.SetTTL("x", ttl)
		servers[1].Restart(true)
		_, _ = c.Inspect(t.Context(), "x")
		for range 100 {
			time.Sleep(20 * time.Millisecond)
			reader, err := c.RWMutex("x").TryRLock(t.Context())
			if err == nil {
				if w.Context().Err() == nil {
					t.Error("a reader has the lock beside a writer, under the restart guard")
				}
				locktest.Unlock(t, reader)
				break
			}
		}
		_ = w.Unlock(t.Context())
	})
}
