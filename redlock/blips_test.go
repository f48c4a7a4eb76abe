package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// blip is how long a node is out of reach in these tests.
const blip = 100 * time.Millisecond

// blips are the ways in which a node is out of reach for a moment. Each begins now, or with the next script, and
// is over by itself.
var blips = []struct {
	name  string
	begin func(s *embedded.Server)
}{
	{"refuses connections", func(s *embedded.Server) {
		s.Kill()
		time.AfterFunc(blip, func() { s.Restart(true) })
	}},
	{"resets connections", func(s *embedded.Server) {
		once(s.Before, func() {
			s.Kill()
			time.AfterFunc(time.Millisecond, func() { s.Restart(true) })
		})
		time.AfterFunc(blip, func() { s.Before(nil) })
	}},
	{"loses requests", func(s *embedded.Server) {
		s.Lose()
		time.AfterFunc(blip, s.Resume)
	}},
}

// once has f called with the next script only, by one of the hooks of a server.
func once(hook func(func(embedded.Run)), f func()) {
	var done sync.Once
	hook(func(embedded.Run) { done.Do(f) })
}

// dies makes a server run one more script, whose reply is lost, and refuse connections for a moment then.
func dies(s *embedded.Server) {
	once(s.After, func() {
		s.Kill()
		time.AfterFunc(blip, func() { s.Restart(true) })
	})
}

// areFree checks that locks are free to whoever comes, a second after the last blip, and that no node has anything
// of them.
func areFree(t *testing.T, servers []*embedded.Server, names ...string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	for _, s := range servers {
		if left := locktest.Keys(s); len(left) > 0 {
			t.Errorf("%s has %q, a second after it was back", s.Name, left)
		}
	}
	c, _ := locktest.Another(t, servers) // none of whose connections has been cut
	for _, name := range names {
		if lease, err := c.Mutex(name).TryLock(t.Context()); err != nil {
			t.Errorf("TryLock when nobody holds the lock: %v", err)
		} else {
			locktest.Unlock(t, lease)
		}
		begin := time.Now()
		locktest.Unlock(t, locktest.Lock(t, c.Mutex(name)))
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("Lock took %v when nobody held the lock", took)
		}
	}
}

// Three of five nodes are out of reach for a moment each, one after the other, and each time it is an Unlock that
// meets it. Every one of them returns nil, since the other four have released.
func TestAReleaseThatFailedIsSentAgainWhenTheNodeAnswers(t *testing.T) {
	for _, tt := range blips {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				for _, s := range servers[:3] {
					lease := locktest.Lock(t, c.Mutex("x"))
					tt.begin(s)
					locktest.Unlock(t, lease)
					time.Sleep(blip)
				}
				areFree(t, servers, "x")
			})
		})
	}
}

// The same for a grant: the node ran it, its reply was lost, and it is out of reach when it is given back.
func TestAGrantThatWasNotHeardIsGivenBackWhenTheNodeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		warm(t, c)
		for _, s := range servers[:3] { // the grants of the others are enough, and their releases
			dies(s)
			lease := locktest.TryLock(t, c.Mutex("x"))
			locktest.Unlock(t, lease)
			time.Sleep(blip + time.Second)
		}
		areFree(t, servers, "x")
	})
}

// The same for an attempt that fails since three nodes die at the same time.
func TestAGrantOfAFailedAttemptIsGivenBackWhenTheNodeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		warm(t, c)
		locktest.Each(servers[:3], dies)
		lease, err := c.Mutex("x").TryLock(t.Context())
		if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok {
			t.Fatalf("TryLock: %v %v, want a QuorumError", lease, err)
		}
		time.Sleep(blip)
		areFree(t, servers, "x")
	})
}

// The same for an entry in a queue: its waiter is cancelled while a node is out of reach.
func TestAnEntryThatCouldNotBeRemovedIsRemovedWhenTheNodeAnswers(t *testing.T) {
	for _, tt := range blips {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				holder, servers := locktest.Client(t, 5)
				c, _ := locktest.Another(t, servers)
				warm(t, c)
				lease := locktest.Lock(t, holder.Mutex("x"))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() {
					_, err := c.Mutex("x").Lock(ctx)
					ended <- err
				}()
				time.Sleep(10 * time.Millisecond)
				tt.begin(servers[0])
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("Lock: %v, want context.Canceled", err)
				}
				time.Sleep(blip + time.Second)
				for _, s := range servers {
					if left := locktest.Keys(s); len(left) != 1 {
						t.Errorf("%s has %q, a second after it was back: want the lock alone", s.Name, left)
					}
				}
				locktest.Held(t, lease)
				locktest.Unlock(t, lease)
			})
		})
	}
}

// Where a lock was handed over while a node was out of reach, the node has it as the former holder's. It has a vote
// for the next one as soon as it has released.
func TestANodeThatMissedAHandoffHasAVoteWhenItIsBack(t *testing.T) {
	for _, tt := range blips {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				other, _ := locktest.Another(t, servers)
				warm(t, other)
				holder := locktest.Lock(t, c.Mutex("x"))
				got := locktest.Waiter(t, other.Mutex("x"))
				tt.begin(servers[0])
				locktest.MustUnlock(t, holder)
				lease := <-got
				time.Sleep(blip + time.Second + quorumlock.DefaultTTL/3) // with the next renewal
				if n := locktest.Holds(servers, "x", lease.Owner()); n != 3 {
					t.Errorf("%d of 3 nodes have the lock as its holder's, a renewal after all are back", n)
				}
				servers[1].Kill()
				time.Sleep(2 * quorumlock.DefaultTTL)
				locktest.Held(t, lease)
				servers[1].Restart(true)
				time.Sleep(time.Second)
				_ = lease.Unlock(t.Context()) // the lease may be lost
				time.Sleep(quorumlock.DefaultTTL)
				locktest.Nothing(t, servers)
			})
		})
	}
}

// Hundreds of blips, never two at once, while several clients use several locks in all ways. No lock is ever blocked
// for longer than a moment, and nothing is left a second after the last blip.
func TestRollingBlipsBlockNoLockAndLeaveNothing(t *testing.T) {
	t.Parallel()
	for seed := range locktest.Thorough[uint64](3, 1) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { rollingBlips(t, seed) })
		})
	}
}

func rollingBlips(t *testing.T, seed uint64) {
	const clients, workers = 4, 2
	rolls := locktest.Thorough(100, 50)
	names := []string{"x", "y", "z"}
	servers, _ := locktest.Nodes(t, 5)
	locktest.Each(servers, func(s *embedded.Server) { arrive(s, latency) })
	stores := make(map[string]*locktest.Resource)
	for _, name := range names {
		stores[name] = &locktest.Resource{T: t}
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var worst time.Duration
	for i := range clients {
		c, _ := roomy(t, servers)
		for j := range workers {
			rng := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
			wg.Go(func() {
				for ctx.Err() == nil {
					took := useOnce(t, rng, c, names[rng.IntN(len(names))], stores)
					mu.Lock()
					worst = max(worst, took)
					mu.Unlock()
					time.Sleep(upTo(rng, 300*time.Millisecond))
				}
			})
		}
	}
	rng := rand.New(rand.NewPCG(seed, 1000))
	for range rolls {
		s := servers[rng.IntN(len(servers))]
		switch kind := rng.IntN(len(blips) + 2); kind {
		case len(blips):
			dies(s)
		case len(blips) + 1:
			s.LoseReplies(1 + rng.IntN(3))
		default:
			blips[kind].begin(s)
		}
		time.Sleep(blip + upTo(rng, blip/2))
		s.LoseReplies(0)
		s.After(nil)
		arrive(s, latency) // it has no hook for resets any more
		time.Sleep(blip)   // what died with its last script is back
	}
	stop()
	wg.Wait()
	grants := 0
	for _, store := range stores {
		grants += store.Grants()
	}
	t.Logf("%d grants, the longest wait of a Lock %v", grants, worst)
	if grants < rolls {
		t.Errorf("only %d grants: this test shows little", grants)
	}
	if worst > 3*time.Second {
		t.Errorf("a Lock took %v: nobody holds for longer than 50 ms", worst)
	}
	areFree(t, servers, names...)
	locktest.Nothing(t, servers)
}

// useOnce locks a name in one of the ways there are, holds it for a moment, and returns how long a Lock took that was
// not given up.
func useOnce(t *testing.T, rng *rand.Rand, c *redlock.Client, name string, stores map[string]*locktest.Resource) (took time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := c.Mutex(name)
	acquire := m.Lock
	how := rng.IntN(4)
	switch how {
	case 0:
		acquire = m.TryLock
	case 1:
		stop := time.AfterFunc(upTo(rng, 100*time.Millisecond), cancel)
		defer stop.Stop()
	}
	begin := time.Now()
	lease, err := acquire(ctx)
	if how > 1 {
		took = time.Since(begin)
	}
	if err != nil {
		if how > 1 {
			t.Errorf("Lock of %q: %v", name, err)
		}
		return took
	}
	stores[name].Enter(lease)
	time.Sleep(upTo(rng, 50*time.Millisecond))
	stores[name].Leave(lease)
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock of %q with one node out of reach at most: %v", name, err)
	}
	return took
}

// What is yet to be sent again to a node that does not come back is kept until the keys' TTL, and costs no goroutine
// each, and little memory. What is not sent by then never is.
func TestReleasesThatAreYetToBeSentAgainAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.Thorough(400, 60)
		servers, _ := locktest.Nodes(t, 3)
		c, _ := roomy(t, servers)
		use := func() {
			for i := range locks {
				locktest.MustUnlock(t, locktest.MustLock(t, c.Mutex(fmt.Sprint(i))))
				time.Sleep(time.Millisecond)
			}
		}
		use() // the token counters are there from now on
		time.Sleep(11 * time.Second)
		goroutines, heap := usage()
		servers[0].Kill()
		synctest.Wait() // the client knows: otherwise the outcome of its next calls could be unknown
		for range 3 {   // within the first one's TTL
			use()
		}
		g, h := usage()
		t.Logf("%d releases have failed: %d goroutines more, %d KiB more", 3*locks, g-goroutines, (h-heap)>>10)
		if g > goroutines+50 {
			t.Errorf("%d goroutines more when %d releases have failed", g-goroutines, 3*locks)
		}
		if h > heap+3*int64(locks)<<11 {
			t.Errorf("%d KiB more when %d releases have failed", (h-heap)>>10, 3*locks)
		}
		time.Sleep(3 * quorumlock.DefaultTTL)
		if g, h := usage(); g > goroutines || h > heap+1<<20 {
			t.Errorf("%d goroutines and %d KiB more after the keys' TTL", g-goroutines, (h-heap)>>10)
		}
		before := servers[0].Ran()
		servers[0].Restart(true)
		time.Sleep(3 * quorumlock.DefaultTTL)
		if n := servers[0].Ran() - before; n > 0 {
			t.Errorf("%d scripts were sent for locks that have expired", n)
		}
		locktest.Nothing(t, servers)
	})
}

func usage() (goroutines int, heap int64) {
	synctest.Wait()
	runtime.GC()
	runtime.GC() // what a finalizer or a pool kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc)
}

// Close ends what was yet to be sent again, as it ends everything.
func TestCloseEndsTheReleasesThatAreYetToBeSentAgain(t *testing.T) {
	for _, tt := range blips {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 3)
				c, _ := roomy(t, servers)
				warm(t, c)
				var leases []*quorumlock.Lease
				for i := range 50 {
					leases = append(leases, locktest.MustLock(t, c.Mutex(fmt.Sprint(i))))
				}
				synctest.Wait()
				tt.begin(servers[0])
				for _, l := range leases {
					locktest.MustUnlock(t, l)
				}
				begin := time.Now()
				if err := c.Close(); err != nil {
					t.Error("Close:", err)
				}
				if took := time.Since(begin); took > time.Second {
					t.Errorf("Close took %v", took)
				}
				synctest.Wait() // for those that are about to end
				if left := locktest.AllGoroutines(); len(left) > 0 {
					t.Errorf("Close returned, and goroutines are left:\n%s", strings.Join(left, "\n\n"))
				}
				time.Sleep(blip)
				before := servers[0].Ran()
				time.Sleep(quorumlock.DefaultTTL)
				if n := servers[0].Ran() - before; n > 0 {
					t.Errorf("%d scripts were sent after Close", n)
				}
				locktest.NoLocks(t, servers)
			})
		})
	}
}

// A refused release does not stay pending, because the node would refuse it again.
func TestAReleaseThatANodeRefusesIsNotSentAgain(t *testing.T) {
	for name, refuse := range map[string]func(s *embedded.Server){
		"no permission": func(s *embedded.Server) { s.Deny("hget") },
		"a wrong type": func(s *embedded.Server) {
			s.Redis.Del("x")
			_ = s.Redis.Set("x", "an application's")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				lease := locktest.Lock(t, c.Mutex("x"))
				refuse(servers[0])
				locktest.Unlock(t, lease)
				before := servers[0].Ran("release")
				for range 20 { // it answers, so that a pending release would be sent
					locktest.Unlock(t, locktest.Lock(t, c.Mutex("y")))
					time.Sleep(time.Second)
				}
				if n := servers[0].Ran("release") - before - 20; n > 0 {
					t.Errorf("what the node refused was sent %d times more", n)
				}
			})
		})
	}
}

// Somebody closes the client while its Shutdown waits for a node that is to be told: both return, and nothing runs on.
func TestCloseDuringAShutdownEndsIt(t *testing.T) {
	for _, tt := range blips {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 3)
				c, paths := roomy(t, servers)
				warm(t, c)
				for i := range 20 {
					lease := locktest.MustLock(t, c.Mutex(fmt.Sprint(i)))
					synctest.Wait()
					tt.begin(paths[0])
					locktest.MustUnlock(t, lease)
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := c.Shutdown(t.Context()); err != nil {
						t.Error("Shutdown:", err)
					}
				})
				time.Sleep(70 * time.Millisecond)
				wg.Go(func() {
					if err := c.Close(); err != nil {
						t.Error("Close:", err)
					}
				})
				wg.Wait()
				if left := locktest.AllGoroutines(); len(left) > 0 {
					t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
				}
				time.Sleep(blip + quorumlock.DefaultTTL)
				locktest.NoLocks(t, servers)
			})
		})
	}
}
