package redlock_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
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

// Twenty callers of one process wait, and then three of another come: they are served last.
func TestCallersAreServedInTheOrderInWhichTheyCalledWhicheverProcessTheyAreIn(t *testing.T) {
	for _, hold := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		t.Run(fmt.Sprint("held for ", hold), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 5)
				all := contenders(t, servers, 3)
				for i, s := range servers {
					s.Delay(time.Duration(i+1) * 20 * time.Microsecond)
				}
				holder := locktest.MustLock(t, all[2].client.Mutex("x"))
				a := &arrivals{hold: hold}
				for i := range 23 {
					process := i / 20 // 20 of the first, three of the second
					a.call(t, string(rune('A'+process)), all[process].client)
					time.Sleep(2 * time.Millisecond)
				}
				time.Sleep(10 * time.Millisecond)
				locktest.MustUnlock(t, holder)
				a.check(t)
				locktest.NoLocks(t, servers)
			})
		})
	}
}

// The same where callers of several processes come by turns, before the lock is free for the first time.
func TestCallersWhoComeByTurnsAreServedByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 5)
		all := contenders(t, servers, 4)
		for i, s := range servers {
			s.Delay(time.Duration(i+1) * 20 * time.Microsecond)
		}
		holder := locktest.MustLock(t, all[3].client.Mutex("x"))
		a := &arrivals{hold: time.Millisecond}
		for i := range 24 {
			process := []int{0, 0, 1, 2, 2, 2, 1, 0}[i%8]
			a.call(t, string(rune('A'+process)), all[process].client)
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(time.Second) // all have refreshed their entries
		locktest.MustUnlock(t, holder)
		a.check(t)
		locktest.NoLocks(t, servers)
	})
}

// Callers of several processes come at random moments, while others hold the lock and leave it.
func TestCallersWhoComeAtRandomAreServedInTheOrderInWhichTheyCalled(t *testing.T) {
	const processes, callers = 4, 8
	for _, hold := range locktest.Thorough([]time.Duration{0, time.Millisecond, 20 * time.Millisecond}, []time.Duration{time.Millisecond}) {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("held for %v, seed %d", hold, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					servers, _ := locktest.Nodes(t, 5)
					rng := rand.New(rand.NewPCG(seed, 10))
					all := contenders(t, servers, processes)
					for _, c := range all {
						locktest.Each(c.paths, func(p *embedded.Server) { p.Delay(upTo(rng, 200*time.Microsecond)) })
					}
					var coming []int
					for i := range processes * callers {
						coming = append(coming, i%processes)
					}
					rng.Shuffle(len(coming), func(i, j int) { coming[i], coming[j] = coming[j], coming[i] })
					a := &arrivals{hold: hold}
					for _, process := range coming {
						a.call(t, string(rune('A'+process)), all[process].client)
						time.Sleep(2*time.Millisecond + upTo(rng, 20*time.Millisecond)) // more than a few round trips
					}
					a.check(t)
					locktest.NoLocks(t, servers)
				})
			})
		}
	}
}
