package redlock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Callers of several processes on failing nodes, some of which die with a slot: no slot has two holders, and its tokens rise.
func TestEverySlotHasOneHolderUnderRandomFaults(t *testing.T) {
	for seed := range locktest.Thorough(uint64(12), 1) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { slotsUnderFaults(t, seed) })
		})
	}
}

func slotsUnderFaults(t *testing.T, seed uint64) {
	servers, _ := locktest.Nodes(t, []int{3, 5}[seed%2])
	rng := rand.New(rand.NewPCG(seed, 78))
	k := 1 + rng.IntN(4)
	p := newPool(t)
	var running sync.WaitGroup
	for range 3 {
		c, _ := locktest.Another(t, servers)
		for i := range 4 {
			pause := time.Duration(1+rng.IntN(30)) * time.Millisecond
			s := c.Semaphore("x", k, quorumlock.WithTTL(2*time.Second))
			dies := i == 0 && rng.IntN(2) == 0
			running.Go(func() {
				for n := range 12 {
					time.Sleep(pause)
					lease, err := s.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					p.enter(lease)
					time.Sleep(pause)
					p.leave(lease)
					if dies && n%4 == 3 { // its slot stays taken until somebody frees it
						if err := lease.UnlockAfter(t.Context(), time.Second); err != nil && !errors.Is(err, quorumlock.ErrLost) {
							t.Log(err)
						}
						continue
					}
					if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, quorumlock.ErrLost) {
						var few *quorumlock.QuorumError
						if !errors.As(err, &few) {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	over := make(chan struct{})
	go func() { running.Wait(); close(over) }()
	for {
		select {
		case <-over:
			if p.most > k {
				t.Errorf("%d holders of %d permits", p.most, k)
			}
			return
		case <-time.After(time.Duration(50+rng.IntN(200)) * time.Millisecond):
		}
		s := servers[rng.IntN(len(servers))]
		s.Kill()
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
		s.Restart(true)
	}
}

// Two with different numbers of permits: nobody is given a slot beyond its own, and the one with more can have the rest.
func TestDifferentNumbersOfPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		few, many := c.Semaphore("x", 2), d.Semaphore("x", 4)
		var in []*quorumlock.Lease
		for range 2 {
			l := locktest.TryLock(t, few)
			if l.Slot() > 1 {
				t.Errorf("slot %d of 2", l.Slot())
			}
			in = append(in, l)
		}
		locktest.Refused(t, few)
		for range 2 {
			l := locktest.TryLock(t, many)
			if l.Slot() < 2 {
				t.Errorf("slot %d is taken", l.Slot())
			}
			in = append(in, l)
		}
		locktest.Refused(t, many)
		waiting := come(t, t.Context(), few.Lock)
		locktest.Unlock(t, in[3]) // not one of the first two
		if has(waiting) {
			t.Fatal("the one with 2 permits has a third slot")
		}
		locktest.Unlock(t, in[0])
		l := <-waiting
		if l.Slot() != in[0].Slot() {
			t.Errorf("slot %d, and %d was released", l.Slot(), in[0].Slot())
		}
		for _, l := range []*quorumlock.Lease{l, in[1], in[2]} {
			locktest.Unlock(t, l)
		}
		locktest.Nothing(t, servers)
	})
}

func TestForceUnlockFreesAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		s := c.Semaphore("x", 2)
		a, b := locktest.Lock(t, s), locktest.Lock(t, s)
		waiting := come(t, t.Context(), s.Lock)
		if err := s.ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := <-waiting
		locktest.Lost(t, a, 5*time.Second)
		locktest.Lost(t, b, 5*time.Second)
		locktest.Held(t, l)
		locktest.Unlock(t, l)
		locktest.Nothing(t, servers)
	})
}

// Of those who try a free semaphore at the same time, somebody always has a slot, and nobody has one of somebody else.
func TestSomebodyWhoTriesAFreeSemaphoreHasASlot(t *testing.T) {
	for _, n := range locktest.Thorough([]int{1, 3, 4, 5}, []int{1}) {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, n)
				var all []quorumlock.Locker
				for range 4 {
					c, _ := locktest.Another(t, servers)
					all = append(all, c.Semaphore("x", 3), c.Semaphore("x", 3))
				}
				p, total := newPool(t), 0
				for range 6 {
					got := make([]*quorumlock.Lease, len(all))
					var trying sync.WaitGroup
					for i, l := range all {
						trying.Go(func() {
							lease, err := l.TryLock(t.Context())
							if err != nil && !errors.Is(err, quorumlock.ErrHeld) {
								t.Error(err)
							}
							if got[i] = lease; lease != nil {
								p.enter(lease)
							}
						})
					}
					trying.Wait()
					won := 0
					for _, l := range got {
						if l != nil {
							won++
							p.leave(l)
							locktest.Unlock(t, l)
						}
					}
					if won == 0 {
						t.Error("nobody has a slot")
					}
					total += won
				}
				t.Logf("%d of %d slots were taken", total, 6*3)
				locktest.Nothing(t, servers)
			})
		})
	}
}

// A waiter that is called asks at once. It asks for the slot that the message names, if there is such a slot.
func TestAWaiterThatIsCalledForASlotAsksForIt(t *testing.T) {
	const name, permits = "two words", 8
	for said, want := range map[string]int{"5": 5, "0": 0, "8": -1, "-1": -1, "99999999999": -1, "1.5": -1, "": -1} {
		t.Run(said, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				for range permits {
					locktest.TryLock(t, c.Semaphore(name, permits))
				}
				d, _ := locktest.Another(t, servers)
				done := make(chan *quorumlock.Lease)
				go func() { done <- locktest.Lock(t, d.Semaphore(name, permits)) }()
				time.Sleep(10 * time.Millisecond)
				for _, s := range servers { // this tells nobody
					s.Redis.Del(name)
					s.Redis.Del(wire.SlotsKey(name))
				}
				for _, s := range servers {
					queue, err := s.Redis.ZMembers(wire.QueueKey(name))
					if err != nil || len(queue) != 1 {
						t.Fatalf("control: %v %v", queue, err)
					}
					client, _, _ := strings.Cut(queue[0], ":")
					if s.Redis.Publish(wire.WakeChannel(client), fmt.Sprintf("slot %s %s %s", queue[0], said, name)) != 1 {
						t.Fatal("control: nobody listens")
					}
				}
				began := time.Now()
				l := <-done
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("it came after %v", took)
				}
				if want >= 0 && l.Slot() != want {
					t.Errorf("it has slot %d, want %d", l.Slot(), want)
				}
			})
		})
	}
}
