package redlock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"
)

// A handoff costs at most 3N+1 scripts, however many wait.
func TestHandoffCost(t *testing.T) {
	for _, contenders := range []int{4, 16} {
		synctest.Test(t, func(t *testing.T) {
			const rounds = 8
			clients, servers := locktest.Fleet(t, contenders, 5)
			for i, s := range servers {
				s.Delay(time.Duration(i+1) * 20 * time.Microsecond) // they never answer all at once
			}
			var wg sync.WaitGroup
			for _, c := range clients {
				wg.Go(func() {
					for range rounds {
						lease := locktest.MustLock(t, c.Mutex("x"))
						time.Sleep(time.Millisecond)
						locktest.MustUnlock(t, lease)
					}
				})
			}
			wg.Wait()
			ran := 0
			for _, s := range servers {
				ran += s.Ran()
			}
			if per := float64(ran) / float64(rounds*contenders); per > 16 {
				t.Errorf("%d contenders: %.1f scripts a handoff, want at most 16", contenders, per)
			}
		})
	}
}
