package redlock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/embedded"
	"github.com/quorumlock/quorumlock/internal/locktest"
)

// Two nodes of five are far away, or do not answer for a while. If a hold ends before its attempt is sent
// to such a node, neither the attempt nor a release is sent there, and nothing is left behind.
func TestShortHoldsAreNotSentToNodesThatAreBehind(t *testing.T) {
	for name, fall := range map[string]func(*embedded.Server){
		"far away": func(s *embedded.Server) { s.Delay(50 * time.Millisecond) },
		"stalled":  (*embedded.Server).Stall,
		"silent":   (*embedded.Server).Mute,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers, holds = 8, 100
				c, servers := start(t, 5)
				warm(t, c)
				var before [5]int
				for i, s := range servers {
					before[i] = s.Ran("acquire") + s.Ran("release")
				}
				each(servers[3:], fall)
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						for range holds {
							lease, err := c.Mutex(fmt.Sprint("own-", i)).Lock(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							if i > 0 || lease.Token()%10 > 0 { // now and then somebody holds it for longer
								time.Sleep(time.Millisecond)
							} else {
								time.Sleep(time.Second)
							}
							mustUnlock(t, lease)
						}
					})
				}
				all.Wait()
				each(servers[3:], func(s *embedded.Server) { s.Delay(0); s.Resume() })
				if name == "stalled" { // an attempt that was given up may run when the node goes on, after its release
					time.Sleep(quorumlock.DefaultTTL)
				}
				time.Sleep(2 * time.Second)
				locktest.NoLocks(t, servers)
				for i, s := range servers {
					n := s.Ran("acquire") + s.Ran("release") - before[i]
					if all := 2 * callers * holds; i < 3 && n != all {
						t.Errorf("%s ran %d scripts, want %d", s.Name, n, all)
					} else if i >= 3 && n > all/3 {
						t.Errorf("%s ran %d scripts of %d, want a third at most", s.Name, n, all)
					}
				}
				locktest.Unlock(t, locktest.TryLock(t, c.Mutex("after")))
				time.Sleep(quorumlock.DefaultTTL)
				locktest.Nothing(t, servers)
			})
		})
	}
}
