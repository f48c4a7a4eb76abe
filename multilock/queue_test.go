package multilock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

// One ticket for all names makes the lowest the first in the queue everywhere, in whatever order
// the names are given.
func TestCallersWithOverlappingNamesNeitherBlockNorStarveEachOther(t *testing.T) {
	for what, sets := range map[string][][]string{
		"crossed": {{"a", "b"}, {"b", "a"}},
		"a ring":  {{"a", "b"}, {"b", "c"}, {"c", "a"}},
		"a hub":   {{"a", "b", "c", "d"}, {"a"}, {"b", "c"}, {"d", "a"}},
	} {
		testkit.Run(t, what, func(t *testing.T) {
			const rounds = 8
			servers, _ := testkit.Nodes(t, 3)
			inside := make(map[string]int)
			var mu sync.Mutex
			var wg sync.WaitGroup
			begin := time.Now()
			for i, names := range append(sets, sets...) {
				client, _ := testkit.Another(t, servers)
				var members []quorumlock.Locker
				for _, name := range names {
					members = append(members, client.Mutex(name))
				}
				all := testkit.Multi(t, members...)
				wg.Go(func() {
					for round := range rounds {
						lease, err := all.Lock(t.Context())
						if err != nil {
							t.Errorf("caller %d, round %d: %v", i, round, err)
							return
						}
						for _, n := range []int{1, -1} { // enters, leaves
							mu.Lock()
							for _, name := range names {
								if inside[name] += n; n > 0 && inside[name] != 1 {
									t.Errorf("caller %d entered %s while another was in it", i, name)
								}
							}
							mu.Unlock()
							time.Sleep(time.Millisecond)
						}
						testkit.MustUnlock(t, lease)
					}
				})
			}
			wg.Wait()
			if d, most := time.Since(begin), time.Duration(len(sets)*2*rounds)*10*time.Millisecond; d > most {
				t.Errorf("it took %v, more than %v: turns were lost", d, most)
			}
			testkit.NoLocks(t, servers)
		})
	}
}
