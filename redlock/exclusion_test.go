package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// mishap is something that happens to a node. It returns what ends it.
type mishap func(rng *rand.Rand, s *embedded.Server) (end func())

// latency is what a script takes to arrive.
const latency = 500 * time.Microsecond

// arrive makes scripts take so long to arrive. Subscriptions are spared, here and below: go-redis holds
// a mutex while it talks to a node, and time stands still in a bubble while somebody waits for a mutex.
func arrive(s *embedded.Server, d time.Duration) {
	s.Before(func(embedded.Run) { time.Sleep(d) })
}

func at(begin func(*embedded.Server), end func(*embedded.Server)) mishap {
	return func(_ *rand.Rand, s *embedded.Server) func() {
		begin(s)
		return func() { end(s) }
	}
}

func nothing(*embedded.Server) {}

// Mishaps in which a node forgets nothing that it has said; any number of nodes may have them.
var harmless = []mishap{
	at((*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(true) }),
	at((*embedded.Server).FlushScripts, nothing),
	frozen,
	frozen,
	func(_ *rand.Rand, s *embedded.Server) func() { // the way back is cut
		back := make(chan struct{})
		s.After(func(embedded.Run) { <-back })
		return func() { s.After(nil); close(back) }
	},
	func(rng *rand.Rand, s *embedded.Server) func() { // slow
		arrive(s, upTo(rng, 150*time.Millisecond))
		return func() { arrive(s, latency) }
	},
	func(rng *rand.Rand, s *embedded.Server) func() {
		s.LoseReplies(1 + rng.IntN(5))
		return func() { s.LoseReplies(0) }
	},
	func(rng *rand.Rand, s *embedded.Server) func() {
		s.StepClock(-upTo(rng, 2*time.Second))
		return func() {}
	},
}

// frozen holds back what is sent; all of it runs at the end.
func frozen(_ *rand.Rand, s *embedded.Server) func() {
	thaw := make(chan struct{})
	s.Before(func(embedded.Run) { <-thaw })
	return func() { arrive(s, latency); close(thaw) }
}

// Mishaps in which a node forgets: as many nodes may have them as the quorum allows for.
var forgetful = []mishap{
	at((*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(false) }),
	at(func(s *embedded.Server) { s.Redis.Del("x") }, nothing),
	at(func(s *embedded.Server) { s.Redis.FlushAll() }, nothing),
	func(rng *rand.Rand, s *embedded.Server) func() {
		s.StepClock(upTo(rng, 5*time.Second))
		return func() {}
	},
}

// "Mutual exclusion while at most f = 2Q−N−1 nodes forget", and "fencing tokens are unique and rise in
// grant order": many workers of several clients, nodes that fail at random, and a resource that notices.
func TestMutualExclusionAndRisingTokensUnderRandomFaults(t *testing.T) {
	for _, tt := range []struct{ quorum, forget int }{{3, 0}, {4, 2}} {
		t.Run(fmt.Sprintf("quorum of %d, %d forget", tt.quorum, tt.forget), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { exclusion(t, tt.quorum, tt.forget) })
		})
	}
}

func exclusion(t *testing.T, need, forget int) {
	const (
		seed    = 1
		clients = 3
		workers = 3 // each
	)
	opts := []quorumlock.Option{quorumlock.WithQuorum(need), quorumlock.WithTTL(2 * time.Second), quorumlock.WithNodeTimeout(100 * time.Millisecond)}
	servers, _ := locktest.Nodes(t, 5)
	locktest.Each(servers, func(s *embedded.Server) { arrive(s, latency) })
	store := &locktest.Resource{T: t}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	var wg sync.WaitGroup
	wg.Go(func() {
		defer stop()
		for began := time.Now(); time.Since(began) < locktest.Thorough(8*time.Second, 2*time.Second) || store.Grants() < 10; {
			time.Sleep(100 * time.Millisecond)
			if time.Since(began) > time.Minute {
				t.Errorf("only %d grants in a minute", store.Grants())
				return
			}
		}
	})
	for i := range clients {
		c, paths := locktest.Another(t, servers, opts...)
		for j := range workers {
			rng := rand.New(rand.NewPCG(seed, uint64(100+10*i+j)))
			wg.Go(func() { work(ctx, t, rng, c, store) })
		}
		rng := rand.New(rand.NewPCG(seed, uint64(50+i)))
		wg.Go(func() { trouble(ctx, rng, paths, 3*time.Second, harmless) }) // of this client alone
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	wg.Go(func() { trouble(ctx, rng, servers[forget:], time.Second, harmless) })
	if forget > 0 {
		rng := rand.New(rand.NewPCG(seed, 2))
		wg.Go(func() { trouble(ctx, rng, servers[:forget], time.Second, forgetful) })
	}
	wg.Wait()
	t.Log(store.Grants(), "grants")
	time.Sleep(5 * time.Second) // what frozen nodes have granted late, and kept through clocks stepped back
	locktest.Nothing(t, servers)
}

// work acquires the lock again and again, in all ways, and uses the resource.
func work(ctx context.Context, t *testing.T, rng *rand.Rand, c *redlock.Client, store *locktest.Resource) {
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, upTo(rng, 6*time.Second))
		m := c.Mutex("x")
		acquire := m.Lock
		if rng.IntN(4) == 0 {
			acquire = m.TryLock
		}
		lease, err := acquire(callCtx)
		if err != nil {
			cancel()
			time.Sleep(upTo(rng, 100*time.Millisecond))
			continue
		}
		store.Enter(lease)
		steps := rng.IntN(4)
		if rng.IntN(10) == 0 {
			steps = 40 // long enough to need renewal
		}
		for range steps {
			time.Sleep(upTo(rng, 100*time.Millisecond))
			if lease.Context().Err() == nil && !store.Write(lease.Token()) {
				t.Errorf("the holder's write with token %d was refused", lease.Token())
			}
		}
		store.Leave(lease)
		_ = lease.Unlock(ctx) // a loss is no failure here
		cancel()
		time.Sleep(upTo(rng, 20*time.Millisecond))
	}
}

// trouble has mishaps happen to one of the servers after another, each for a while, until ctx is done.
func trouble(ctx context.Context, rng *rand.Rand, servers []*embedded.Server, while time.Duration, mishaps []mishap) {
	for ctx.Err() == nil && len(servers) > 0 {
		s, m := servers[rng.IntN(len(servers))], mishaps[rng.IntN(len(mishaps))]
		time.Sleep(upTo(rng, while))
		end := m(rng, s)
		time.Sleep(upTo(rng, while))
		end()
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
