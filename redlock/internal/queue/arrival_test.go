package queue

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// arrivals are calls of Lock, numbered as they came, and in which order they were served.
type arrivals struct {
	hold   time.Duration
	called int
	by     []string // who made each call
	served []int    // guarded by the lock
	wg     sync.WaitGroup
}

// call calls Lock, for a process of that name, and unlocks after the hold. It returns at once.
func (a *arrivals) call(t *testing.T, process string, c *redlock.Client) {
	n := a.called
	a.called++
	a.by = append(a.by, process)
	a.wg.Go(func() {
		lease := locktest.MustLock(t, c.Mutex("x"))
		a.served = append(a.served, n)
		time.Sleep(a.hold)
		locktest.MustUnlock(t, lease)
	})
}

// check waits until all are served, and checks that they were in the order of their calls.
func (a *arrivals) check(t *testing.T) {
	t.Helper()
	a.wg.Wait()
	early := 0 // calls served before an earlier one
	for i, n := range a.served {
		for _, later := range a.served[i+1:] {
			if later < n {
				early++
				break
			}
		}
	}
	if early == 0 && len(a.served) == a.called {
		return
	}
	order := ""
	for _, n := range a.served {
		order += fmt.Sprintf(" %s%d", a.by[n], n+1)
	}
	t.Errorf("%d of %d calls were served before an earlier one: in the order%s", early, a.called, order)
}

// Callers of several processes are served in the order of their calls: a few that come after twenty
// of another process, and processes that alternate.
func TestCallersAreServedInTheOrderInWhichTheyCalledWhicheverProcessTheyAreIn(t *testing.T) {
	for name, of := range map[string]func(i int) (process int){
		"one after the other": func(i int) int { return i / 20 },
		"by turns":            func(i int) int { return []int{0, 0, 1, 2, 2, 2, 1, 0}[i%8] },
	} {
		for _, hold := range []time.Duration{0, 20 * time.Millisecond} {
			locktest.Run(t, fmt.Sprintf("%s, held for %v", name, hold), func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 5)
				all := contenders(t, servers, 4)
				for i, s := range servers {
					s.Delay(time.Duration(i+1) * 20 * time.Microsecond)
				}
				holder := locktest.MustLock(t, all[3].client.Mutex("x"))
				a := &arrivals{hold: hold}
				for i := range 23 {
					process := of(i)
					a.call(t, string(rune('A'+process)), all[process].client)
					time.Sleep(2 * time.Millisecond)
				}
				time.Sleep(time.Second) // all have refreshed their entries
				locktest.MustUnlock(t, holder)
				a.check(t)
				locktest.NoLocks(t, servers)
			})
		}
	}
}
