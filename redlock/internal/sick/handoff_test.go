package sick

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// twoRenewals is the time of two regular renewals, and of a handoff.
const twoRenewals = 2*quorumlock.DefaultTTL/3 + 100*time.Millisecond

// A node hands the lock over and its message is lost. It is renewed like the others, so it counts
// like them: the lease outlives as many other nodes as any lease does.
func TestANodeThatWasNotHeardToHandOverVotesAgainWithinTwoRenewals(t *testing.T) {
	for _, tt := range []struct {
		nodes, unheard int
		after          time.Duration
	}{
		{3, 1, twoRenewals},
		{3, 1, 10 * time.Minute},
		{5, 1, twoRenewals},
		{5, 2, twoRenewals},
		{5, 2, 10 * time.Minute},
	} {
		locktest.Run(t, fmt.Sprintf("%d of %d unheard, %v later", tt.unheard, tt.nodes, tt.after), func(t *testing.T) {
			first, servers := locktest.Client(t, tt.nodes)
			second, paths := locktest.Another(t, servers)
			holder := locktest.Lock(t, first.Mutex("x"))
			locktest.Warm(t, second)
			got := locktest.Waiter(t, second.Mutex("x"))
			unheard, heard := paths[:tt.unheard], servers[tt.unheard:]
			locktest.Each(unheard, func(p *embedded.Server) { p.LoseMessages(true) })
			locktest.MustUnlock(t, holder)
			lease := <-got
			synctest.Wait()
			locktest.Each(unheard, func(p *embedded.Server) { p.LoseMessages(false) })
			survivesAMinority(t, first.Mutex("x"), lease, servers, heard[:tt.nodes/2], tt.after)
		})
	}
}

// survivesAMinority checks that a lease goes on when some nodes die later, and leaves nothing.
func survivesAMinority(t *testing.T, other quorumlock.Locker, lease *quorumlock.Lease, servers, minority []*embedded.Server, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	locktest.Held(t, lease)
	locktest.Each(minority, (*embedded.Server).Kill)
	died := time.Now()
	select {
	case <-lease.Context().Done():
		t.Errorf("the lease was lost %v after %d of %d nodes had died, with all others healthy", time.Since(died), len(minority), len(servers))
	case <-time.After(3 * quorumlock.DefaultTTL):
		locktest.Refused(t, other)
		locktest.MustUnlock(t, lease)
	}
	locktest.Each(minority, func(s *embedded.Server) { s.Restart(true) })
	time.Sleep(quorumlock.DefaultTTL)
	locktest.Nothing(t, servers)
}
