// Package crowd tests the promise that overload costs time, never goodput: many callers, slow nodes
// and stalls, in virtual time.
package crowd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// serve makes a server run its scripts one after the other, each for so long; 0 ends that.
func serve(s *embedded.Server, service time.Duration) {
	if service == 0 {
		s.Before(nil)
		return
	}
	one := make(chan struct{}, 1)
	s.Before(func(embedded.Run) {
		one <- struct{}{}
		time.Sleep(service)
		<-one
	})
}

// clients returns clients of the same n servers. In each, the last own nodes use a go-redis client
// with few connections.
func clients(t *testing.T, n, many, own int) ([]*redlock.Client, []*embedded.Server) {
	servers, _ := testkit.Nodes(t, n)
	var all []*redlock.Client
	for i := range many {
		_, nodes := testkit.Paths(t, servers[:n-own])
		for _, s := range servers[n-own:] {
			rdb := redis.NewClient(&redis.Options{Addr: s.Name, Dialer: s.DialContext, PoolSize: 10, ContextTimeoutEnabled: i%2 == 0,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
			node, err := node.New(rdb)
			testkit.Must(t, err, "New")
			t.Cleanup(func() { testkit.OK(t, errors.Join(node.Close(), rdb.Close()), "Close") })
			nodes = append(nodes, node)
		}
		all = append(all, testkit.Of(t, nodes))
	}
	for _, c := range all {
		testkit.Warm(t, c)
	}
	return all, servers
}

// Callers that come at once, each for a free lock of its own, are served at the rate of the nodes:
// a pair of Lock and Unlock is two scripts at each node. No call fails, and nothing is left.
func TestABurstIsServedAtTheRateOfTheNodes(t *testing.T) {
	for _, tt := range []struct {
		clients, callers int // callers of each client
		nodes            int
		service          time.Duration
		slow             int // one node is so many times slower; 0: none is
		own              int // nodes with a go-redis client of the caller's
	}{
		{1, 10, 3, 200 * time.Microsecond, 0, 0},
		{1, 1000, 3, 200 * time.Microsecond, 0, 0},
		{1, 300, 3, 5 * time.Millisecond, 0, 0},
		{1, 500, 5, 200 * time.Microsecond, 10, 0},
		{8, 60, 3, 200 * time.Microsecond, 0, 0},
		{100, 1, 3, time.Millisecond, 0, 0},
		{1, 200, 3, 200 * time.Microsecond, 0, 3},
		{4, 60, 3, 5 * time.Millisecond, 0, 3},
	} {
		if testkit.Race && tt.own > 0 { // package node has that code with the detector, too
			continue
		}
		testkit.Run(t, fmt.Sprintf("%d of %d clients, %d nodes of %v, %d, %d own", tt.callers, tt.clients, tt.nodes, tt.service, tt.slow, tt.own), func(t *testing.T) {
			all, servers := clients(t, tt.nodes, tt.clients, tt.own)
			for i, s := range servers {
				service := tt.service
				if i == 0 && tt.slow > 0 {
					service *= time.Duration(tt.slow)
				}
				serve(s, service)
			}
			kinds := []func(c *redlock.Client, name string) (*quorumlock.Lease, error){
				func(c *redlock.Client, name string) (*quorumlock.Lease, error) {
					return c.Mutex(name).Lock(t.Context())
				},
				func(c *redlock.Client, name string) (*quorumlock.Lease, error) {
					return c.Mutex(name).TryLock(t.Context())
				},
				func(c *redlock.Client, name string) (*quorumlock.Lease, error) {
					return c.RWMutex("everybody's").RLocker().Lock(t.Context())
				},
			}
			for kind, take := range kinds {
				if kind == 1 && tt.own > 0 && tt.clients > 1 {
					continue // a TryLock may end before its turn comes
				}
				var done sync.WaitGroup
				var failed atomic.Pointer[error]
				began := time.Now()
				for i, c := range all {
					for j := range tt.callers {
						done.Go(func() {
							lease, err := take(c, fmt.Sprintf("%d of %d/%d", kind, i, j))
							if err == nil {
								err = lease.Unlock(context.Background())
							}
							if err != nil {
								failed.Store(&err)
							}
						})
					}
				}
				done.Wait()
				if err := failed.Load(); err != nil {
					t.Errorf("kind %d: a call has failed: %v", kind, *err)
				}
				able := time.Duration(2*tt.clients*tt.callers) * tt.service
				if took, most := time.Since(began), able*10/8+100*time.Millisecond; took > most {
					t.Errorf("kind %d: %v for all, want %v, since the nodes can do it in %v", kind, took, most, able)
				}
			}
			testkit.Each(servers, func(s *embedded.Server) { serve(s, 0) })
			testkit.Nothing(t, servers)
		})
	}
}

// Callers ask for a quarter of what the nodes can serve, or for as much as they can get. Then some
// or all nodes stand still. Two seconds after the end, the rate is what it was.
func TestTheRateIsBackAfterAStall(t *testing.T) {
	const service = 2 * time.Millisecond // 250 pairs a second
	for _, tt := range []struct {
		what    string
		nodes   int
		stalled int
		length  time.Duration
		callers int
		think   time.Duration // at most, between two calls
		refuses bool          // the nodes refuse connections
		own     int           // nodes with a go-redis client of the caller's
	}{
		{"all nodes for 3 s", 3, 3, 3 * time.Second, 500, 16 * time.Second, false, 0},
		{"all nodes for 20 s", 3, 3, 20 * time.Second, 500, 16 * time.Second, false, 0},
		{"all nodes for 8 s, under full load", 3, 3, 8 * time.Second, 300, 0, false, 0},
		{"a quorum for 8 s", 3, 2, 8 * time.Second, 500, 16 * time.Second, false, 0},
		{"two of five nodes for 8 s", 5, 2, 8 * time.Second, 500, 16 * time.Second, false, 0},
		{"all nodes refuse connections for 8 s, under full load", 3, 3, 8 * time.Second, 1000, 0, true, 0},
		{"all nodes for 8 s, under full load, over clients of the caller's", 3, 3, 8 * time.Second, 300, 0, false, 3},
	} {
		if testkit.Race && tt.own > 0 { // package node has that code with the detector, too
			continue
		}
		testkit.Run(t, tt.what, func(t *testing.T) {
			all, servers := clients(t, tt.nodes, 2, tt.own)
			testkit.Each(servers, func(s *embedded.Server) { serve(s, service) })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var granted atomic.Int64
			var failed atomic.Pointer[error]
			var callers sync.WaitGroup
			for i := range tt.callers {
				callers.Go(func() {
					g := rand.New(rand.NewPCG(1, uint64(i)))
					lock := all[i%len(all)].Mutex(fmt.Sprint("own", i))
					for ctx.Err() == nil {
						if tt.think > 0 {
							select {
							case <-time.After(time.Duration(g.Int64N(int64(tt.think)))):
							case <-ctx.Done():
							}
						}
						lease, err := lock.Lock(ctx)
						if err == nil {
							granted.Add(1)
							_ = lease.Unlock(ctx)
						} else if ctx.Err() == nil {
							failed.Store(&err)
						}
					}
				})
			}
			rate := func(d time.Duration) float64 {
				from := granted.Load()
				time.Sleep(d)
				return float64(granted.Load()-from) / d.Seconds()
			}
			time.Sleep(4 * time.Second)
			before := rate(8 * time.Second)
			begin, end := (*embedded.Server).Stall, (*embedded.Server).Resume
			if tt.refuses {
				begin, end = (*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(true) }
			}
			testkit.Each(servers[:tt.stalled], begin)
			during := rate(tt.length)
			testkit.Each(servers[:tt.stalled], end)
			time.Sleep(2 * time.Second)
			after := 0.
			for range 4 {
				now := rate(2 * time.Second)
				if after += now / 4; now < 0.5*before {
					t.Errorf("%.0f pairs a second before the stall, and %.0f in two seconds after it", before, now)
				}
			}
			t.Logf("%.0f pairs a second, %.0f during the stall, %.0f from two seconds after it on", before, during, after)
			if after < 0.8*before {
				t.Errorf("%.0f pairs a second before the stall, and %.0f from two seconds after it on", before, after)
			}
			if 2*tt.stalled < tt.nodes && during < 0.8*before {
				t.Errorf("%.0f pairs a second before the stall of a minority, and %.0f during it", before, during)
			}
			if tt.think == 0 && before < 0.8*0.5/service.Seconds() {
				t.Errorf("%.0f pairs a second, and the nodes can do %.0f", before, 0.5/service.Seconds())
			}
			if err := failed.Load(); err != nil {
				t.Errorf("a Lock without a deadline has failed: %v", *err)
			}
			testkit.Each(servers, func(s *embedded.Server) { serve(s, 0) })
			cancel()
			callers.Wait()
		})
	}
}
