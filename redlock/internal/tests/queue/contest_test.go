package queue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

var trials = flag.Int("trials", testkit.Thorough(30, 8), "how often contenders call TryLock at the same time, in each situation")

// contender is a client that has a way of its own to each node.
type contender struct {
	client *redlock.Client
	paths  []*embedded.Server
	lock   quorumlock.Locker
}

func contenders(t *testing.T, servers []*embedded.Server, n int) []contender {
	t.Helper()
	all := make([]contender, n)
	for i := range all {
		all[i].client, all[i].paths = testkit.Roomy(t, servers)
		all[i].lock = all[i].client.Mutex("x")
		testkit.Warm(t, all[i].client)
	}
	return all
}

// spread gives contenders ways to the nodes of up to 4 ms, and returns the longest round trip. The
// delays are random, or rise with the distance between the numbers of contender and node.
func spread(all []contender, rng *rand.Rand, random bool) (longest time.Duration) {
	for i, c := range all {
		for j, p := range c.paths {
			d := time.Duration(max(i-j, j-i)) * time.Millisecond
			if random {
				d = testkit.UpTo(rng, 4*time.Millisecond)
			}
			longest = max(longest, 2*d)
			p.Delay(d)
		}
	}
	return longest
}

// outcome is the result of a contender, and its time.
type outcome struct {
	lease *quorumlock.Lease
	err   error
	took  time.Duration
}

// tryTogether lets all contenders call TryLock, each at a random moment of some span, and unlocks
// the leases when all have returned.
func tryTogether(t *testing.T, all []contender, rng *rand.Rand, span time.Duration) []outcome {
	t.Helper()
	got := make([]outcome, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		pause := testkit.UpTo(rng, span+1)
		wg.Go(func() {
			time.Sleep(pause)
			begin := time.Now()
			lease, err := c.lock.TryLock(t.Context())
			got[i] = outcome{lease, err, time.Since(begin)}
		})
	}
	wg.Wait()
	for _, o := range got {
		if o.err == nil {
			testkit.MustUnlock(t, o.lease)
		}
	}
	return got
}

func TestOneOfThoseWhoTryAtTheSameTimeGetsTheLock(t *testing.T) {
	for _, tt := range []struct {
		nodes, contenders, silent int
		span                      time.Duration // within which they come
		random                    bool          // their ways to the nodes
		kind                      string        // instead of mutexes
	}{
		{nodes: 3, contenders: 3},
		{nodes: 5, contenders: 5, span: 3 * time.Millisecond},
		{nodes: 3, contenders: 2, random: true},
		{nodes: 5, contenders: 5, random: true},
		{nodes: 3, contenders: 5, span: 3 * time.Millisecond, random: true},
		{nodes: 3, contenders: 2, silent: 1},
		{nodes: 5, contenders: 5, silent: 1, span: 3 * time.Millisecond, random: true},
		{nodes: 5, contenders: 4, span: time.Millisecond, kind: "callers of one client"}, // their requests have different delays
		{nodes: 3, contenders: 2, kind: "a reader among writers"},
		{nodes: 5, contenders: 3, silent: 1, random: true, kind: "a reader among writers"},
		{nodes: 3, contenders: 5, kind: "the last slot of two"},
		{nodes: 5, contenders: 5, random: true, kind: "the last slot of two"},
	} {
		testkit.Run(t, fmt.Sprintf("%+v", tt), func(t *testing.T) {
			servers, _ := testkit.Nodes(t, tt.nodes)
			live, silent := servers[:tt.nodes-tt.silent], servers[tt.nodes-tt.silent:]
			all := contenders(t, servers, tt.contenders)
			one := tt.kind == "callers of one client"
			for i, c := range all {
				switch tt.kind {
				case "callers of one client":
					all[i] = all[0]
				case "a reader among writers":
					if all[i].lock = c.client.RWMutex("x"); i == 0 {
						all[i].lock = c.client.RWMutex("x").RLocker()
					}
				case "the last slot of two":
					all[i].lock = c.client.Semaphore("x", 2)
				}
			}
			var held *quorumlock.Lease // refuses all of them
			if tt.kind == "the last slot of two" {
				held = testkit.Lock(t, all[0].lock)
			}
			testkit.Each(silent, (*embedded.Server).Lose)
			rng := rand.New(rand.NewPCG(uint64(tt.nodes), uint64(tt.contenders)))
			for i, p := range all[0].paths {
				if one {
					wander(p, uint64(i))
				}
			}
			var winnerless, slow int
			var worst time.Duration
			for range *trials {
				longest := 4 * time.Millisecond // of those that wander
				if !one {
					longest = spread(all, rng, tt.random)
				}
				winners := 0
				for _, o := range tryTogether(t, all, rng, tt.span) {
					_, failed := errors.AsType[*quorumlock.QuorumError](o.err)
					switch {
					case o.err == nil:
						winners++
						worst = max(worst, o.took)
						// Later contenders may have to give way first.
						if o.took > 3*longest+tt.span+time.Millisecond+time.Duration(tt.silent)*quorumlock.DefaultTTL/20 {
							slow++
						}
					case failed && tt.silent == 0, !failed && !errors.Is(o.err, quorumlock.ErrHeld):
						t.Errorf("TryLock: %v, want ErrHeld", o.err)
					}
				}
				switch {
				case winners == 0:
					winnerless++
				case winners > 1:
					t.Errorf("%d have the lock", winners)
				}
				time.Sleep(20 * time.Millisecond)
				if held == nil {
					testkit.NoLocks(t, live)
				}
			}
			if held != nil {
				testkit.Unlock(t, held)
			}
			t.Logf("a winner took %v at most", worst)
			if winnerless > 0 {
				t.Errorf("nobody got the lock in %d of %d trials", winnerless, *trials)
			}
			if slow > 0 {
				t.Errorf("the winner took more than three of the longest round trips in %d of %d trials, and %v once", slow, *trials, worst)
			}
			testkit.Each(silent, (*embedded.Server).Resume)
			time.Sleep(quorumlock.DefaultTTL)
			testkit.Nothing(t, servers)
		})
	}
}

// If one of three nodes refuses and another is down, it is unknown whether the lock is held. A
// TryLock keeps asking until its NodeTimeout is over, but not every millisecond.
func TestATryLockAsksLessAndLessOftenWhileANodeIsDown(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		other, paths := testkit.Another(t, servers)
		paths[2].Kill() // the holder has a quorum without it
		w := testkit.Lock(t, other.Mutex("x"))
		servers[1].Kill()
		before := servers[0].Ran("acquire")
		testkit.Is(t, testkit.Err(c.Mutex("x").TryLock(t.Context())), quorumlock.ErrHeld, "TryLock")
		if n := servers[0].Ran("acquire") - before; n < 8 || n > 80 {
			t.Errorf("TryLock asked a node %d times in 500 ms, want 8 to 80", n)
		}
		_ = w.Unlock(t.Context())
	})
}

// The contest for a free lock costs nothing where the lock is held: the refusal takes one round
// trip. A second script at each node leaves the queue, when the call has returned.
func TestTryLockOfAHeldLockTakesOneRoundTrip(t *testing.T) {
	for _, tt := range []struct {
		name    string
		waiters int
		silent  int
	}{{"alone", 0, 0}, {"with others waiting", 3, 0}, {"with a silent node", 0, 1}} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 5)
			holder, _ := testkit.Another(t, servers)
			all := contenders(t, servers, 3)
			lease := testkit.Lock(t, holder.Mutex("x"))
			crowd := crowdAt(t, servers)
			crowd.come(t, tt.waiters, "x")
			testkit.Each(servers[:tt.silent], (*embedded.Server).Lose)
			rng := rand.New(rand.NewPCG(1, 9))
			for range 20 {
				longest := spread(all, rng, true)
				before := scriptsOf(all)
				for i, o := range tryTogether(t, all, rng, 0) {
					testkit.Is(t, o.err, quorumlock.ErrHeld, "TryLock of a held lock")
					if o.took > longest {
						t.Errorf("contender %d heard after %v that the lock is held, want %v, a round trip, at most", i, o.took, longest)
					}
				}
				time.Sleep(20 * time.Millisecond)
				if n := scriptsOf(all) - before; n > 2*len(servers)*len(all) {
					t.Errorf("%d scripts ran for %d calls at %d nodes, want an acquire and a leave each", n, len(all), len(servers))
				}
			}
			crowd.giveUp()
			testkit.Held(t, lease)
			testkit.Unlock(t, lease)
			testkit.Each(servers[:tt.silent], (*embedded.Server).Resume)
			time.Sleep(quorumlock.DefaultTTL)
			testkit.Nothing(t, servers)
		})
	}
}

func scriptsOf(all []contender) (n int) {
	for _, c := range all {
		n += testkit.Ran(c.paths)
	}
	return n
}

// Each contender calls again and again, and gives up soon: its calls are cut short at any point, or
// refused. The remains of such a call would refuse the others, and theirs would refuse it.
func TestPollersWhoGiveUpSoonDoNotRefuseEachOtherForEver(t *testing.T) {
	calls := testkit.Thorough(300, 100)
	if testkit.Race {
		calls = 40
	}
	for _, tt := range []struct {
		name     string
		patience time.Duration // within which a call is cut short
		slow     time.Duration // the way to one node, another for each contender
	}{
		{"calls cut short", 12 * time.Millisecond, 0},
		{"calls cut short, a node slow", 12 * time.Millisecond, 3 * time.Millisecond},
		{"calls refused", time.Minute, 0},
		{"calls refused, a node slow", time.Minute, 20 * time.Millisecond},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 3)
			all := contenders(t, servers, 3)
			for i, c := range all {
				for j, p := range c.paths {
					wander(p, uint64(10*i+j))
					if j == i {
						p.Delay(tt.slow)
					}
				}
			}
			var mu sync.Mutex
			last, worst, granted := time.Now(), time.Duration(0), 0
			var wg sync.WaitGroup
			for i, c := range all {
				rng := rand.New(rand.NewPCG(uint64(i), 44))
				wg.Go(func() {
					for range calls {
						ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond+testkit.UpTo(rng, tt.patience))
						lease, err := c.client.Mutex("x").TryLock(ctx)
						cancel()
						if err == nil {
							mu.Lock()
							worst, last, granted = max(worst, time.Since(last)), time.Now(), granted+1
							mu.Unlock()
							testkit.MustUnlock(t, lease)
						}
						time.Sleep(testkit.UpTo(rng, 10*time.Millisecond))
					}
				})
			}
			wg.Wait()
			worst = max(worst, time.Since(last))
			t.Logf("%d calls of %d got the lock, and %v passed without at most", granted, calls*len(all), worst)
			// With a slow node, a few in a hundred calls get it: 22 to 64 of 900 in 100 runs.
			if worst > 2*time.Second || granted < calls/20 {
				t.Errorf("%d calls got the lock, and for %v none did", granted, worst)
			}
			time.Sleep(time.Second)
			testkit.NoLocks(t, servers)
			testkit.Unlock(t, testkit.TryLock(t, all[0].client.Mutex("x")))
			testkit.Nothing(t, servers)
		})
	}
}

// wander makes every script take between 0.5 and 2 ms to a path's server, and its reply as long.
func wander(p *embedded.Server, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	var mu sync.Mutex
	pause := func(embedded.Run) {
		mu.Lock()
		d := 500*time.Microsecond + testkit.UpTo(rng, 1500*time.Microsecond)
		mu.Unlock()
		time.Sleep(d)
	}
	p.Before(pause)
	p.After(pause)
}

var contests = flag.Int("contests", testkit.Thorough(20, 5), "how many contests TestSplitVotes has for each distance")

// Regions that are far from each other have a node and a contender each. All contenders call Lock
// within a round trip between regions, and votes split. One has the lock a few round trips after
// the first call. With -v it prints the figures of docs/nodes.md; time is virtual, so computing
// takes none.
func TestSplitVotesEndInAFewRoundTrips(t *testing.T) {
	const near = 500 * time.Microsecond // a round trip to the node of one's own region
	contests := *contests
	t.Log("regions, round trip between them | split | first grant after the first call: p50, p99, most | from an unlock to the next grant: p50, p99")
	for _, regions := range []int{3, 5} {
		for _, far := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
			testkit.Run(t, fmt.Sprint(regions, " regions, ", far), func(t *testing.T) {
				_, servers := testkit.Client(t, regions)
				var won atomic.Bool // by a first attempt
				seen := testkit.Observer(func(e quorumlock.Event) {
					if e.Kind == quorumlock.EventAcquired && e.Attempts == 1 && !e.Handed {
						won.Store(true)
					}
				})
				clients := make([]*redlock.Client, regions)
				for i := range clients {
					c, paths := testkit.Another(t, servers, quorumlock.WithObserver(seen))
					testkit.Warm(t, c)
					for j, p := range paths {
						if p.Delay(far / 2); i == j {
							p.Delay(near / 2)
						}
					}
					clients[i] = c
				}
				rng := rand.New(rand.NewPCG(1, uint64(far)))
				split := 0
				var firsts, handoffs []time.Duration
				for n := range contests {
					m := fmt.Sprint("x", n)
					won.Store(false)
					calls := make([]time.Time, regions)
					grants := make([]time.Time, regions)
					frees := make([]time.Time, regions)
					var all sync.WaitGroup
					for i, c := range clients {
						pause := time.Duration(rng.Int64N(int64(far)))
						all.Go(func() {
							time.Sleep(pause)
							calls[i] = time.Now()
							lease := testkit.MustLock(t, c.Mutex(m))
							grants[i] = time.Now()
							time.Sleep(500 * time.Millisecond)
							frees[i] = time.Now()
							_ = lease.Unlock(t.Context()) // it answers to nobody here
						})
					}
					all.Wait()
					slices.SortFunc(calls, time.Time.Compare)
					slices.SortFunc(grants, time.Time.Compare)
					slices.SortFunc(frees, time.Time.Compare)
					firsts = append(firsts, grants[0].Sub(calls[0]))
					for i := 1; i < regions; i++ {
						handoffs = append(handoffs, grants[i].Sub(frees[i-1]))
					}
					if !won.Load() {
						split++
					}
				}
				slices.Sort(firsts)
				slices.Sort(handoffs)
				at := func(d []time.Duration, percent int) time.Duration {
					return d[(len(d)-1)*percent/100].Round(100 * time.Microsecond)
				}
				t.Logf("%d regions, %v | %d %% | %v, %v, %v | %v, %v", regions, far, split*100/contests,
					at(firsts, 50), at(firsts, 99), at(firsts, 100), at(handoffs, 50), at(handoffs, 99))
				if most := at(firsts, 100); most > 12*far+20*time.Millisecond {
					t.Errorf("the first grant came %v after the first call", most)
				}
			})
		}
	}
}
