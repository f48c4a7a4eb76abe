package multilock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

// Unlock waits for every member, whatever becomes of another, be they locks of a node or RedLocks
// with nodes of their own, of which one has lost its majority. It says how many it has freed, and
// these are free.
func TestUnlockFreesEveryMemberThatCanBeReachedAndSaysHowMany(t *testing.T) {
	names := []string{"a", "b", "c"}
	for _, tt := range []struct {
		name       string
		begin, end func(*embedded.Server)
		lost       bool
	}{
		{"killed", (*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(true) }, false},
		{"frozen", (*embedded.Server).Stall, (*embedded.Server).Resume, false},
		{"without its requests", (*embedded.Server).Lose, (*embedded.Server).Resume, false},
		{"without its key", func(s *embedded.Server) { s.Redis.FlushAll() }, (*embedded.Server).Resume, true},
	} {
		for down := range names {
			for _, n := range []int{1, 3} {
				testkit.Run(t, fmt.Sprintf("member %d of %d nodes %s", down+1, n, tt.name), func(t *testing.T) {
					var members []quorumlock.Locker
					var all [][]*embedded.Server
					for i := range names {
						servers, nodes := testkit.Nodes(t, n)
						all = append(all, servers)
						if n == 1 {
							members = append(members, nodes[0].Mutex(names[i]))
						} else {
							members = append(members, testkit.Of(t, nodes).Mutex(names[i]))
						}
					}
					lease := testkit.Lock(t, testkit.Multi(t, members...))
					for i := range all {
						for j, s := range all[i] {
							s.Delay(time.Duration(n*i+j+1) * time.Millisecond)
						}
					}
					testkit.Each(all[down][:n/2+1], tt.begin)
					err := lease.Unlock(t.Context())
					for i, servers := range all {
						if has := testkit.Holds(servers, names[i], lease.Owner()); has > n/2 && (i != down || tt.lost) {
							t.Errorf("Unlock returned, and member %q is not free: %d of %d nodes have it", names[i], has, n)
						}
					}
					q, few := errors.AsType[*quorumlock.QuorumError](err)
					if errors.Is(err, quorumlock.ErrLost) != tt.lost || !tt.lost && (!few || q.Granted != 2 || q.Needed != 3) {
						t.Errorf("Unlock: %v, want a QuorumError of 2 of 3 or ErrLost", err)
					}
					testkit.Each(all[down][:n/2+1], tt.end)
					if !tt.lost {
						time.Sleep(2 * quorumlock.DefaultTTL)
					}
					for _, servers := range all {
						testkit.Nothing(t, servers)
					}
				})
			}
		}
	}
}
