package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

// A call whose context is cancelled, before or after any script at any node, leaves nothing behind.
func TestContextCancelledAtEveryPointLeavesNothing(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("a member held by somebody else %v", held), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, near := locktest.Client(t, 3)
				d, far := locktest.Client(t, 3)
				other, _ := locktest.Another(t, far)
				servers := append(append([]*embedded.Server{}, near...), far...)
				m := all(t, c.Mutex("a"), d.Mutex("b"), c.Mutex("c"))
				free(t, m)
				for point := 1; point < 40; point++ {
					var holder *quorumlock.Lease
					if held {
						holder = locktest.Lock(t, other.Mutex("b"))
					}
					ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
					var count atomic.Int64
					hook := func(embedded.Run) {
						if count.Add(1) == int64(point) {
							cancel()
						}
					}
					locktest.Each(servers, func(s *embedded.Server) { s.Before(hook); s.After(hook) })
					lease, err := m.Lock(ctx)
					locktest.Each(servers, func(s *embedded.Server) { s.Before(nil); s.After(nil) })
					reached := ctx.Err() != nil
					cancel()
					if err == nil {
						locktest.Unlock(t, lease)
					} else if !reached {
						t.Errorf("Lock: %v", err)
					}
					if holder != nil {
						time.Sleep(time.Second)
						locktest.Held(t, holder)
						locktest.Unlock(t, holder)
					}
					locktest.Nothing(t, servers)
					if t.Failed() {
						t.Fatalf("cancelled at point %d", point)
					}
					if !reached {
						if point < 10 {
							t.Errorf("only %d points were reached", point)
						}
						return
					}
				}
			})
		})
	}
}

// The members' scripts for one node go to it together; the reply to the first is lost, and with it the
// connection and all that follows: what ran is undone, and ran once.
func TestReplyToOneOfSeveralScriptsLostIsAppliedOnceAndUndone(t *testing.T) {
	for lost := range 4 {
		t.Run(fmt.Sprintf("at %d of 3", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				m := all(t, c.Mutex("a"), c.Mutex("b"), c.Mutex("c"))
				locktest.Each(servers[:lost], func(s *embedded.Server) { s.LoseReplies(1) })
				lease, err := m.TryLock(t.Context())
				synctest.Wait()
				for _, s := range servers {
					if n := s.Ran("acquire"); n > 3 {
						t.Errorf("%d acquires ran at %s, want one for each member", n, s.Name)
					}
				}
				if lost < 2 {
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * quorumlock.DefaultTTL)
					locktest.Held(t, lease)
					locktest.Unlock(t, lease)
				} else if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok {
					t.Errorf("TryLock: %v, want a QuorumError", err)
				}
				locktest.Nothing(t, servers)
			})
		})
	}
}

// A node's grant comes when the MultiLock has failed already, or is unlocked: it is given back.
func TestLateAcquireOfAMemberLeavesNoKey(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("a member held by somebody else %v", held), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, near := locktest.Client(t, 3)
				d, far := locktest.Client(t, 3)
				other, _ := locktest.Another(t, far)
				m := all(t, c.Mutex("a"), d.Mutex("b"))
				free(t, m)
				var holder *quorumlock.Lease
				if held {
					holder = locktest.Lock(t, other.Mutex("b"))
				}
				before := near[0].Ran("acquire")
				near[0].Before(func(r embedded.Run) {
					if r.Script == "acquire" {
						time.Sleep(300 * time.Millisecond)
					}
				})
				lease, err := m.TryLock(t.Context())
				if held != errors.Is(err, quorumlock.ErrHeld) {
					t.Fatalf("TryLock: %v", err)
				}
				if err == nil {
					locktest.Unlock(t, lease)
				}
				if near[0].Ran("acquire") != before {
					t.Fatal("the acquire was not late: this test shows nothing")
				}
				time.Sleep(time.Second)
				if near[0].Ran("acquire") == before {
					t.Fatal("the acquire has not come: this test shows nothing")
				}
				if holder != nil {
					locktest.Unlock(t, holder)
				}
				locktest.Nothing(t, near)
				locktest.Nothing(t, far)
			})
		})
	}
}

// When less than the TTL is left after all members have granted, that is what the lease has; when
// nothing is left, there is none.
func TestSlowMemberCountsAgainstTheValidityOfAll(t *testing.T) {
	for pause, granted := range map[time.Duration]bool{500 * time.Millisecond: true, 990 * time.Millisecond: false} {
		t.Run(pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, near := locktest.Client(t, 3)
				d, far := locktest.Client(t, 3)
				m, err := multilock.New([]quorumlock.Locker{c.Mutex("a"), d.Mutex("b")},
					quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(time.Second))
				if err != nil {
					t.Fatal(err)
				}
				free(t, m)
				locktest.Each(far, func(s *embedded.Server) {
					s.After(func(r embedded.Run) {
						if r.Script == "acquire" {
							time.Sleep(pause)
						}
					})
				})
				start := time.Now()
				lease, err := m.TryLock(t.Context())
				if (err == nil) != granted {
					t.Fatalf("granted %v (%v), want %v", err == nil, err, granted)
				}
				if granted {
					if want := start.Add(988 * time.Millisecond); !lease.ValidUntil().Equal(want) {
						t.Errorf("valid until %v, want %v", lease.ValidUntil(), want)
					}
					locktest.Unlock(t, lease)
				}
				locktest.Nothing(t, near)
				locktest.Nothing(t, far)
			})
		})
	}
}

// Many transfers between few accounts, in both directions, with nodes that fail: nobody waits for ever,
// no two work on one account, and each account's tokens rise.
func TestTransfersBetweenAccountsExcludeEachOtherAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, transfers, accounts = 4, 12, 4
		servers, _ := locktest.Nodes(t, 3)
		opts := []quorumlock.Option{quorumlock.WithTTL(2 * time.Second), quorumlock.WithNodeTimeout(100 * time.Millisecond)}
		stores := make([]*locktest.Resource, accounts)
		for i := range stores {
			stores[i] = &locktest.Resource{T: t}
		}
		ctx, stop := context.WithCancel(t.Context())
		var workers, troubles sync.WaitGroup
		for i := range clients {
			c, _ := locktest.Another(t, servers, opts...)
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			workers.Go(func() {
				for range transfers {
					transfer(t, rng, c, stores, opts)
				}
			})
		}
		rng := rand.New(rand.NewPCG(1, 100))
		troubles.Go(func() {
			for ctx.Err() == nil {
				s := servers[rng.IntN(len(servers))]
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				s.Kill()
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				s.Restart(true)
			}
		})
		workers.Wait()
		stop()
		troubles.Wait()
		grants := 0
		for _, s := range stores {
			grants += s.Grants()
		}
		if grants < clients*transfers { // most take two accounts
			t.Errorf("%d accounts were locked, want at least one a transfer", grants)
		}
		time.Sleep(5 * time.Second)
		locktest.Nothing(t, servers)
	})
}

// transfer locks two accounts, or one, and works on them for a while.
func transfer(t *testing.T, rng *rand.Rand, c *redlock.Client, stores []*locktest.Resource, opts []quorumlock.Option) {
	from, to := rng.IntN(len(stores)), rng.IntN(len(stores))
	account := func(i int) quorumlock.Locker { return c.Mutex(fmt.Sprint("account:", i)) }
	taken, lock := []int{from}, account(from)
	if from != to {
		both, err := multilock.New([]quorumlock.Locker{account(from), account(to)}, opts...)
		if err != nil {
			t.Error(err)
			return
		}
		taken, lock = []int{from, to}, both
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	lease, err := lock.Lock(ctx)
	if err != nil {
		t.Errorf("Lock of %q: %v", lock.Name(), err)
		return
	}
	for _, i := range taken {
		stores[i].Enter(lease)
	}
	time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
	for _, i := range taken {
		stores[i].Leave(lease)
	}
	_ = lease.Unlock(ctx) // a node that is down may make it an error
	time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
}
