package redlock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// Two nodes of five are far away, or do not answer for a while. If a hold ends before its attempt is sent
// to such a node, neither the attempt nor a release is sent there, and nothing is left behind. A node that does not answer is noticed,
// and so is that it does again.
func TestShortHoldsAreNotSentToNodesThatAreBehind(t *testing.T) {
	for _, tt := range []struct {
		name string
		fall func(*embedded.Server)
		down int  // so many nodes are noticed to be down
		late bool // an attempt that was given up may run when the node goes on, after its release
	}{
		{"far away", func(s *embedded.Server) { s.Delay(50 * time.Millisecond) }, 0, false},
		{"stalled", (*embedded.Server).Stall, 2, true},
		{"silent", (*embedded.Server).Mute, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers, holds = 8, 100
				of := &heard{kinds: make(map[quorumlock.EventKind]int)}
				c, servers := locktest.Client(t, 5, quorumlock.WithObserver(of))
				warm(t, c)
				var before [5]int
				for i, s := range servers {
					before[i] = s.Ran("acquire") + s.Ran("release")
				}
				locktest.Each(servers[3:], tt.fall)
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						for range holds {
							lease, err := c.Mutex(fmt.Sprint("own-", i)).Lock(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							time.Sleep(time.Millisecond)
							locktest.MustUnlock(t, lease)
						}
					})
				}
				all.Wait()
				time.Sleep(time.Second)
				of.mu.Lock()
				asked, down := of.kinds[quorumlock.NodeAsked], of.kinds[quorumlock.NodeDown]
				of.mu.Unlock()
				if all := 5 * 2 * callers * holds; down != tt.down || asked > all*3/4 {
					t.Errorf("%d nodes are said to be down, want %d; %d calls of %d were sent, or failed", down, tt.down, asked, all)
				}
				locktest.Each(servers[3:], func(s *embedded.Server) { s.Delay(0); s.Resume() })
				if tt.late {
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
				of.mu.Lock()
				if up := of.kinds[quorumlock.NodeUp]; up != tt.down {
					t.Errorf("%d nodes are said to be up again, want %d", up, tt.down)
				}
				of.mu.Unlock()
				locktest.Nothing(t, servers)
			})
		})
	}
}
