package queue

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestUncontendedLockSubscribesToNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		cs, servers := testkit.Fleet(t, 2, 3)
		testkit.Unlock(t, testkit.Lock(t, cs[0].Mutex("x")))
		for _, s := range servers {
			if channels := s.Redis.PubSubChannels("*"); len(channels) > 0 || s.Ran() != 2 {
				t.Errorf("%s: %d scripts and subscriptions to %q, want two and none", s.Name, s.Ran(), channels)
			}
		}
		lease := testkit.Lock(t, cs[0].Mutex("x"))
		go func() { testkit.MustUnlock(t, testkit.MustLock(t, cs[1].Mutex("x"))) }()
		time.Sleep(10 * time.Millisecond)
		for _, s := range servers {
			if channels := s.Redis.PubSubChannels("*"); len(channels) != 1 {
				t.Errorf("%s: subscriptions to %q, want that of the one who waits", s.Name, channels)
			}
		}
		testkit.MustUnlock(t, lease)
		testkit.Nothing(t, servers)
	})
}

func TestWhoIsNextRefreshesNoLaterForBeingTold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		cs, servers := testkit.Fleet(t, 2, 3)
		holder := testkit.MustLock(t, cs[0].Mutex("x"))
		got := testkit.Go(func() *quorumlock.Lease { return testkit.MustLock(t, cs[1].Mutex("x")) })
		time.Sleep(500 * time.Millisecond)
		before := servers[0].Ran("acquire")
		for _, s := range servers {
			line, err := s.Redis.ZMembers(wire.QueueKey("x"))
			if err != nil || len(line) != 1 {
				t.Fatalf("control: %v %v", line, err)
			}
			for _, waiter := range line {
				client, _, _ := strings.Cut(waiter, ":")
				if s.Redis.Publish(wire.WakeChannel(client), "next "+waiter+" x") != 1 {
					t.Fatal("control: nobody listens")
				}
			}
		}
		time.Sleep(150 * time.Millisecond) // it was due after 600 ms
		if servers[0].Ran("acquire") == before {
			t.Error("the refresh was put off")
		}
		testkit.MustUnlock(t, holder)
		testkit.MustUnlock(t, <-got)
	})
}

// A handoff costs at most 3N+1 scripts, however many wait.
func TestHandoffCost(t *testing.T) {
	for _, contenders := range []int{4, 16} {
		testkit.Run(t, fmt.Sprint(contenders), func(t *testing.T) {
			const rounds = 8
			clients, servers := testkit.Fleet(t, contenders, 5)
			for i, s := range servers {
				s.Delay(time.Duration(i+1) * 20 * time.Microsecond) // they never answer all at once
			}
			var wg sync.WaitGroup
			for _, c := range clients {
				wg.Go(func() {
					for range rounds {
						lease := testkit.MustLock(t, c.Mutex("x"))
						time.Sleep(time.Millisecond)
						testkit.MustUnlock(t, lease)
					}
				})
			}
			wg.Wait()
			if per := float64(testkit.Ran(servers)) / float64(rounds*contenders); per > 16 {
				t.Errorf("%d contenders: %.1f scripts a handoff, want at most 16", contenders, per)
			}
		})
	}
}

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
		lease := testkit.MustLock(t, c.Mutex("x"))
		a.served = append(a.served, n)
		time.Sleep(a.hold)
		testkit.MustUnlock(t, lease)
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
			testkit.Run(t, fmt.Sprintf("%s, held for %v", name, hold), func(t *testing.T) {
				servers, _ := testkit.Nodes(t, 5)
				all := contenders(t, servers, 4)
				for i, s := range servers {
					s.Delay(time.Duration(i+1) * 20 * time.Microsecond)
				}
				holder := testkit.MustLock(t, all[3].client.Mutex("x"))
				a := &arrivals{hold: hold}
				for i := range 23 {
					process := of(i)
					a.call(t, string(rune('A'+process)), all[process].client)
					time.Sleep(2 * time.Millisecond)
				}
				time.Sleep(time.Second) // all have refreshed their entries
				testkit.MustUnlock(t, holder)
				a.check(t)
				testkit.NoLocks(t, servers)
			})
		}
	}
}

// Clients with clocks that are minutes off have their shares of the turns, and no more, beside
// clients with correct clocks. A client that makes one call has never heard the time from a node.
func TestAClientWhoseClockIsMinutesOffHasItsShareOfTheTurns(t *testing.T) {
	for name, fresh := range map[string]bool{"the same clients": false, "a new client for each call": true} {
		testkit.Run(t, name, func(t *testing.T) {
			_, servers := testkit.Fleet(t, 0, 3)
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(200 * time.Microsecond) })
			client := func(ahead time.Duration) *redlock.Client {
				c, paths := testkit.Skewed(t, servers, ahead)
				testkit.Each(paths, func(p *embedded.Server) { p.Delay(200 * time.Microsecond) })
				return c
			}
			const callers, lasts = 2, 5 * time.Second
			clocks := []time.Duration{10 * time.Minute, -10 * time.Minute, 0, 0}
			grants, longest, all := make([]int, len(clocks)), make([]time.Duration, len(clocks)), 0
			var mu sync.Mutex
			var wg sync.WaitGroup
			began := time.Now()
			for i, ahead := range clocks {
				c := client(ahead)
				for range callers {
					wg.Go(func() {
						for time.Since(began) < lasts {
							c := c
							if fresh && ahead != 0 {
								c = client(ahead)
							}
							called := time.Now()
							lease := testkit.MustLock(t, c.Mutex("x"))
							mu.Lock()
							grants[i]++
							all++
							longest[i] = max(longest[i], time.Since(called))
							mu.Unlock()
							time.Sleep(20 * time.Millisecond)
							testkit.MustUnlock(t, lease)
						}
					})
				}
			}
			wg.Wait()
			for i, n := range grants {
				if share := float64(n*len(clocks)) / float64(all); share < 0.7 || share > 1.3 || longest[i] > time.Second {
					t.Errorf("the client whose clock is %v ahead has %.0f %% of its share and waited for up to %v; grants: %v", clocks[i], 100*share, longest[i], grants)
				}
			}
			testkit.NoLocks(t, servers)
		})
	}
}

// A waiter keeps its ticket while no node answers for longer than a client relies on their clocks.
func TestAnOutageChangesNoTicket(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 3, 3, quorumlock.WithTTL(10*time.Minute), quorumlock.WithNodeTimeout(time.Second))
		holder := testkit.MustLock(t, clients[0].Mutex("x"))
		first := testkit.Waiter(t, clients[1].Mutex("x"))
		time.Sleep(5 * time.Second)
		second := testkit.Waiter(t, clients[2].Mutex("x"))
		testkit.Kill(servers...)
		time.Sleep(90 * time.Second)
		testkit.Restart(servers...)
		for range 300 {
			time.Sleep(10 * time.Millisecond)
			if in, err := clients[0].Inspect(t.Context(), "x"); err == nil && len(in.State.Queue) == 2 {
				if apart := in.State.Queue[1].Since.Sub(in.State.Queue[0].Since); apart < 4*time.Second {
					t.Errorf("the tickets of calls 5 s apart are %v apart", apart)
				}
				break
			}
		}
		testkit.MustUnlock(t, holder)
		testkit.MustUnlock(t, <-first)
		testkit.MustUnlock(t, <-second)
	})
}

// The slots of a semaphore are granted in a few round trips, however many callers a process has.
func TestManyCallersOfAProcessGetSlotsAtOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(5 * time.Millisecond) })
		began := time.Now()
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { testkit.MustLock(t, c.Semaphore("s", 64)) })
		}
		all.Wait()
		testkit.Took(t, began, 0, 200*time.Millisecond, "64 slots")
	})
}
