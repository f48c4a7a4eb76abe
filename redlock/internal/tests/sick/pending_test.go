package sick

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// blip is how long a node is out of reach in these tests.
const blip = 100 * time.Millisecond

// blips are the ways in which a node is out of reach for a moment. Each begins now, or with the
// next script, and ends by itself.
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

// dies makes a server run one more script without a reply, then refuse connections for a moment.
func dies(s *embedded.Server) {
	once(s.After, func() {
		s.Kill()
		time.AfterFunc(blip, func() { s.Restart(true) })
	})
}

// areFree checks that locks are free to any caller, a second after the last blip, and that no node
// has any key of them.
func areFree(t *testing.T, servers []*embedded.Server, names ...string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	for _, s := range servers {
		if left := testkit.Keys(s); len(left) > 0 {
			t.Errorf("%s has %q, a second after it was back", s.Name, left)
		}
	}
	c, _ := testkit.Another(t, servers) // its connections were never cut
	for _, name := range names {
		if lease, err := c.Mutex(name).TryLock(t.Context()); err != nil {
			t.Errorf("TryLock when nobody holds the lock: %v", err)
		} else {
			testkit.Unlock(t, lease)
		}
		begin := time.Now()
		testkit.Unlock(t, testkit.Lock(t, c.Mutex(name)))
		testkit.Took(t, begin, 0, 100*time.Millisecond, "Lock when nobody held the lock")
	}
}

// Where a lock was handed over while a node was out of reach, the former holder still has it at
// that node. The node has a vote for the next one as soon as it has released.
func TestANodeThatMissedAHandoffHasAVoteWhenItIsBack(t *testing.T) {
	for _, tt := range blips {
		testkit.Run(t, tt.name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			other, _ := testkit.Another(t, servers)
			testkit.Warm(t, other)
			holder := testkit.Lock(t, c.Mutex("x"))
			got := testkit.Waiter(t, other.Mutex("x"))
			tt.begin(servers[0])
			testkit.MustUnlock(t, holder)
			lease := <-got
			time.Sleep(blip + time.Second + quorumlock.DefaultTTL/3) // with the next renewal
			testkit.Equal(t, testkit.Holds(servers, "x", lease.Owner()), 3, "nodes that have the lock as its holder's, a renewal after all are back")
			servers[1].Kill()
			time.Sleep(2 * quorumlock.DefaultTTL)
			testkit.Held(t, lease)
			servers[1].Restart(true)
			time.Sleep(time.Second)
			_ = lease.Unlock(t.Context()) // the lease may be lost
			time.Sleep(quorumlock.DefaultTTL)
			testkit.Nothing(t, servers)
		})
	}
}

// A node that refuses the connection has not run the release. It gets the release once it accepts
// the credentials, for instance after a late change of its ACL.
func TestANodeThatRefusedTheCredentialsGetsTheReleaseLater(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 3, node.WithCredentials(func(context.Context) (node.Credentials, error) {
			return node.Credentials{Password: "s3cret"}, nil
		}))
		accept := func(s *embedded.Server, password string) {
			s.Kill()
			synctest.Wait()
			s.Redis.RequireAuth(password)
			s.Restart(true)
		}
		for _, s := range servers {
			accept(s, "s3cret")
		}
		var events testkit.Events
		lease := testkit.Lock(t, testkit.Of(t, nodes, quorumlock.WithObserver(&events)).Mutex("x"))
		accept(servers[0], "another")
		testkit.Unlock(t, lease)
		time.Sleep(2 * time.Second)
		testkit.Equal(t, len(testkit.Keys(servers[0])) > 0, true, "the node that refuses the credentials has the lock")
		testkit.Equal(t, events.Of(quorumlock.EventNodeDown), 1, "NodeDown events")
		accept(servers[0], "s3cret")
		time.Sleep(time.Second)
		testkit.Equal(t, len(testkit.Keys(servers[0])), 0, "keys of the node, a second after it accepts them")
	})
}

// Close drops pending releases, also while a Shutdown waits for them: both return, and all ends. The
// Shutdown says what was dropped.
func TestCloseEndsTheReleasesThatAreYetToBeSentAgain(t *testing.T) {
	for _, tt := range blips {
		for _, shutdown := range []bool{false, true} {
			testkit.Run(t, fmt.Sprintf("%s, during a Shutdown %v", tt.name, shutdown), func(t *testing.T) {
				servers, _ := testkit.Nodes(t, 3)
				c, paths := testkit.Roomy(t, servers)
				testkit.Warm(t, c)
				var leases []*quorumlock.Lease
				for i := range 50 {
					leases = append(leases, testkit.Lock(t, c.Mutex(fmt.Sprint(i))))
				}
				tt.begin(paths[0])
				for _, l := range leases {
					testkit.MustUnlock(t, l)
				}
				var over <-chan error
				if shutdown {
					over = testkit.Go(func() error { return c.Shutdown(t.Context()) })
					time.Sleep(70 * time.Millisecond)
				}
				begin := time.Now()
				testkit.OK(t, c.Close(), "Close")
				testkit.Took(t, begin, 0, time.Second, "Close")
				if shutdown {
					err, again := <-over, tt.name == "resets connections" // the second release arrives
					if again != (err == nil) || !again && !errors.Is(err, quorumlock.ErrUnconfirmed) {
						t.Errorf("Shutdown: %v", err)
					}
				}
				synctest.Wait() // for goroutines that are about to end
				if left := testkit.AllGoroutines(); len(left) > 0 {
					t.Errorf("Close returned, and goroutines are left:\n%s", strings.Join(left, "\n\n"))
				}
				time.Sleep(blip)
				before := testkit.Ran(servers)
				time.Sleep(quorumlock.DefaultTTL)
				testkit.Equal(t, testkit.Ran(servers)-before, 0, "scripts were sent after Close")
				testkit.NoLocks(t, servers)
			})
		}
	}
}

// A release that a node refuses is repeated until the TTL, at most three times a second: the refusal
// may end. A key of another type is final.
func TestARefusedReleaseIsRepeatedUntilTheTTL(t *testing.T) {
	const ttl = quorumlock.DefaultTTL
	for name, tt := range map[string]struct {
		refuse func(s *embedded.Server)
		most   int
	}{
		"no permission": {func(s *embedded.Server) { s.Deny("hget") }, 3 * int(ttl/time.Second)},
		"a wrong type": {func(s *embedded.Server) {
			s.Redis.Del("x")
			_ = s.Redis.Set("x", "an application's")
		}, 0},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			lease := testkit.Lock(t, c.Mutex("x"))
			tt.refuse(servers[0])
			testkit.Unlock(t, lease)
			before := servers[0].Ran("release")
			const others = 30
			for range others { // the node answers
				testkit.Unlock(t, testkit.Lock(t, c.Mutex("y")))
				time.Sleep(ttl / others)
			}
			if n := servers[0].Ran("release") - before - others; n > tt.most || n < min(tt.most, 1) {
				t.Errorf("%d repetitions, want %d at most", n, tt.most)
			}
			time.Sleep(ttl)
			before = servers[0].Ran("release")
			time.Sleep(ttl)
			testkit.Equal(t, servers[0].Ran("release")-before, 0, "repetitions after the TTL")
		})
	}
}

// The requests that three nodes missed, one after the other, are sent again when each answers: the
// release of an Unlock, which returned nil since the other four had released; the release of a
// grant with a lost reply; the leave of a cancelled waiter.
func TestWhatANodeMissedIsSentAgainWhenItAnswers(t *testing.T) {
	for i, tt := range blips {
		for what, miss := range map[string]func(t *testing.T, c *redlock.Client, s *embedded.Server){
			"release": func(t *testing.T, c *redlock.Client, s *embedded.Server) {
				lease := testkit.Lock(t, c.Mutex("x"))
				tt.begin(s)
				testkit.Unlock(t, lease)
			},
			"grant": func(t *testing.T, c *redlock.Client, s *embedded.Server) {
				dies(s)
				testkit.Unlock(t, testkit.TryLock(t, c.Mutex("x")))
				time.Sleep(time.Second)
			},
			"leave": func(t *testing.T, c *redlock.Client, s *embedded.Server) {
				holder := testkit.Lock(t, c.Mutex("x"))
				ctx, cancel := context.WithCancel(t.Context())
				waiting := testkit.Call(t, ctx, c.Mutex("x").Lock)
				tt.begin(s)
				cancel()
				<-waiting
				time.Sleep(blip + time.Second)
				if left := testkit.Keys(s); len(left) != 1 {
					t.Errorf("%s has %q, a second after it was back: want the lock alone", s.Name, left)
				}
				testkit.Held(t, holder)
				testkit.Unlock(t, holder)
			},
		} {
			if what == "grant" && i > 0 {
				continue // it has a blip of its own
			}
			testkit.Run(t, what+", "+tt.name, func(t *testing.T) {
				c, servers := testkit.Client(t, 5)
				testkit.Warm(t, c)
				for _, s := range servers[:3] {
					miss(t, c, s)
					time.Sleep(blip)
				}
				areFree(t, servers, "x")
			})
		}
	}
}

// The same for the grants of an attempt that fails since three nodes die at the same time.
func TestAGrantOfAFailedAttemptIsGivenBackWhenTheNodeAnswers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5)
		testkit.Warm(t, c)
		testkit.Each(servers[:3], dies)
		lease, err := c.Mutex("x").TryLock(t.Context())
		if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok {
			t.Fatalf("TryLock: %v %v, want a QuorumError", lease, err)
		}
		time.Sleep(blip)
		areFree(t, servers, "x")
	})
}

// Many blips, never two at once, while several clients use several locks in all ways. No lock is
// ever blocked for longer than a moment, and nothing is left a second after the last blip. The
// simulation has no such plans.
func TestRollingBlipsBlockNoLockAndLeaveNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		names := []string{"x", "y", "z"}
		servers, _ := testkit.Nodes(t, 5)
		arrive := func(s *embedded.Server) { testkit.Arrive(s, 500*time.Microsecond) }
		testkit.Each(servers, arrive)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var grants atomic.Int64
		for i := range 8 {
			c, _ := testkit.Roomy(t, servers)
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for ctx.Err() == nil {
					m, how := c.Mutex(names[rng.IntN(len(names))]), rng.IntN(4)
					own, cancel := context.WithCancel(t.Context())
					acquire, begin := m.Lock, time.Now()
					switch how {
					case 0:
						acquire = m.TryLock
					case 1:
						time.AfterFunc(testkit.UpTo(rng, 100*time.Millisecond), cancel)
					}
					lease, err := acquire(own)
					if took := time.Since(begin); how > 1 && (err != nil || took > 3*time.Second) {
						t.Errorf("Lock: %v after %v; nobody holds for longer than 50 ms", err, took)
					}
					if err == nil {
						grants.Add(1)
						time.Sleep(testkit.UpTo(rng, 50*time.Millisecond))
						testkit.MustUnlock(t, lease) // one node is out of reach at most
					}
					cancel()
					time.Sleep(testkit.UpTo(rng, 300*time.Millisecond))
				}
			})
		}
		rng := rand.New(rand.NewPCG(1, 1000))
		for range testkit.Thorough(300, 50) {
			s := servers[rng.IntN(len(servers))]
			switch kind := rng.IntN(len(blips) + 2); kind {
			case len(blips):
				dies(s)
			case len(blips) + 1:
				s.LoseReplies(1 + rng.IntN(3))
			default:
				blips[kind].begin(s)
			}
			time.Sleep(blip + testkit.UpTo(rng, blip/2))
			s.LoseReplies(0)
			s.After(nil)
			arrive(s)        // it has no hook for resets any more
			time.Sleep(blip) // a server that died with its last script is back
		}
		stop()
		wg.Wait()
		if n := grants.Load(); n < 50 {
			t.Errorf("only %d grants: this test shows little", n)
		}
		areFree(t, servers, names...)
		testkit.Nothing(t, servers)
	})
}

type cut struct {
	name     string
	cut, end func(s *embedded.Server)
}

// cuts are the ways in which a node can be out of reach, each with its end.
var cuts = []cut{
	{"killed", (*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(true) }},
	{"frozen", (*embedded.Server).Stall, (*embedded.Server).Resume},
	{"requests lost", (*embedded.Server).Lose, (*embedded.Server).Resume},
	{"way back cut", (*embedded.Server).Mute, (*embedded.Server).Resume},
}

func TestMajorityCutOffTryLockNamesTheNodesAndLockWaits(t *testing.T) {
	for _, tt := range cuts {
		testkit.Run(t, tt.name, func(t *testing.T) {
			c, servers := testkit.Client(t, 5)
			testkit.Warm(t, c)
			testkit.Each(servers[:3], tt.cut)
			start := time.Now()
			_, err := c.Mutex("x").TryLock(t.Context())
			testkit.Took(t, start, 0, 600*time.Millisecond, "TryLock")
			q, ok := errors.AsType[*quorumlock.QuorumError](err)
			if !ok || errors.Is(err, quorumlock.ErrHeld) {
				t.Fatalf("TryLock: %v, want a QuorumError", err)
			}
			if q.Granted > 2 || q.Needed != 3 || len(q.Nodes) != 3 {
				t.Errorf("TryLock: %v, want 2 at most of 3 granted, and 3 nodes named", err)
			}
			for i, n := range q.Nodes {
				if n.Node != servers[i].Name || n.Err == nil || !strings.Contains(err.Error(), n.Node) {
					t.Errorf("node error %d is %v, want that of %s", i, n, servers[i].Name)
				}
			}

			waited := testkit.Within(t, time.Second)
			_, err = c.Mutex("x").Lock(waited)
			if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock: %v, want DeadlineExceeded joined with a QuorumError", err)
			}
			const outage = 2 * time.Second
			time.AfterFunc(outage, func() { testkit.Each(servers[:3], tt.end) })
			start = time.Now()
			lease := testkit.Lock(t, c.Mutex("x"))
			testkit.Took(t, start, outage, outage+quorumlock.DefaultTTL+time.Second, "Lock")
			testkit.Unlock(t, lease)
			time.Sleep(quorumlock.DefaultTTL)
			testkit.Nothing(t, servers)
		})
	}
}

// "One slow or dead node costs nothing while a quorum of the others answers": in fake time,
// exactly.
func TestOneNodeSlowCostsNothing(t *testing.T) {
	times := func(t *testing.T, slow func(s *embedded.Server)) (took [3]time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c, servers := testkit.Client(t, 5)
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
			testkit.Warm(t, c)
			time.Sleep(time.Second)
			slow(servers[2])
			for range 4 {
				var lease *quorumlock.Lease
				for i, call := range []func(){
					func() { lease = testkit.MustLock(t, c.Mutex("x")) },
					func() { testkit.Must(t, lease.Extend(t.Context()), "Extend") },
					func() { testkit.Must(t, lease.Unlock(t.Context()), "Unlock") },
				} {
					start := time.Now()
					call()
					took[i] += time.Since(start)
				}
				time.Sleep(10 * time.Millisecond)
			}
			servers[2].Resume()
			time.Sleep(quorumlock.DefaultTTL)
		})
		return took
	}
	t.Parallel()
	healthy := times(t, func(*embedded.Server) {})
	if healthy[0] == 0 {
		t.Fatal("the nodes take no time: this test shows nothing")
	}
	slow := func(by time.Duration) func(s *embedded.Server) { return func(s *embedded.Server) { s.Delay(by) } }
	for _, tt := range append(slices.Clone(cuts), cut{"slow", slow(100 * time.Millisecond), nil}, cut{"very slow", slow(10 * time.Second), nil}) {
		t.Run(tt.name, func(t *testing.T) {
			testkit.Equal(t, times(t, tt.cut), healthy, "four times Lock, Extend and Unlock with one node %s", tt.name)
		})
	}
}

// With a dead or a slow minority, the waiter still learns that the lock is held, and sends no node
// more requests than with healthy nodes.
func TestAMinorityIsNeverReportedAsNoQuorum(t *testing.T) {
	const waits = 12 * time.Second
	scripts := func(t *testing.T, slow func(s *embedded.Server)) (ran int) {
		synctest.Test(t, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			testkit.MustLock(t, c.Mutex("x"))
			log, logger := testkit.Logger()
			var told []quorumlock.Step
			observer := testkit.Observer(func(e quorumlock.Event) {
				if e.Kind == quorumlock.EventRefused {
					told = e.Steps
				}
			})
			waiter, paths := testkit.Another(t, servers, logger, quorumlock.WithObserver(observer))
			slow(paths[0])
			paths[1].Delay(time.Millisecond)
			paths[2].Delay(2 * time.Millisecond)
			before := servers[1].Ran("acquire")
			ctx := testkit.Within(t, waits)
			_, err := waiter.Mutex("x").Lock(ctx)
			ran = servers[1].Ran("acquire") - before
			if _, few := errors.AsType[*quorumlock.QuorumError](err); few || !errors.Is(err, quorumlock.ErrHeld) {
				t.Errorf("Lock: %v, want ErrHeld and no QuorumError", err)
			}
			if lines := log.Lines("no quorum"); len(lines) > 0 {
				t.Errorf("the log has %q", lines[0])
			}
			for _, s := range told {
				if _, few := errors.AsType[*quorumlock.QuorumError](s.Err); few {
					t.Errorf("the Observer learns of %v", s.Err)
				}
			}
		})
		return ran
	}
	t.Parallel()
	well := scripts(t, func(*embedded.Server) {})
	for _, tt := range cuts {
		t.Run(tt.name, func(t *testing.T) {
			if ran := scripts(t, tt.cut); 10*ran > 11*well {
				t.Errorf("a healthy node ran %d scripts in %v, and %d while all were well", ran, waits, well)
			}
		})
	}
}

// Two of three nodes do not answer, so the third cannot prove that the lock is held. A caller that
// skips its job if the lock is held must not skip it now.
func TestAnOutageIsNoQuorumThoughOneNodeRefuses(t *testing.T) {
	for _, tt := range cuts {
		testkit.Run(t, tt.name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			testkit.MustLock(t, c.Mutex("x"))
			other, _ := testkit.Another(t, servers, quorumlock.WithWait(time.Second))
			testkit.Warm(t, other)
			testkit.Each(servers[1:], tt.cut)
			for name, call := range map[string]func(context.Context) (*quorumlock.Lease, error){"Lock": other.Mutex("x").Lock, "TryLock": other.Mutex("x").TryLock} {
				_, err := call(t.Context())
				if q, few := errors.AsType[*quorumlock.QuorumError](err); !few || errors.Is(err, quorumlock.ErrHeld) || len(q.Nodes) != 2 {
					t.Errorf("%s: %v, want a QuorumError of 2 nodes, and not ErrHeld", name, err)
				}
			}
			ran, err := quorumlock.Once(t.Context(), other.Mutex("x"), time.Second, func(context.Context) error { return nil })
			if ran || err == nil {
				t.Errorf("Once: %v, %v, want an error", ran, err)
			}
			testkit.Each(servers[1:], tt.end)
		})
	}
}

// A minority that is cut off costs holders and new callers nothing. An outage that ends before the
// deadline costs no lease. A loss is reported at the deadline, not earlier: an unreachable node
// revokes nothing.
func TestWhatACutOffNodeCosts(t *testing.T) {
	refuse := func(with string) func(s *embedded.Server) { return func(s *embedded.Server) { s.Redis.SetError(with) } }
	for _, tt := range append(slices.Clone(cuts), cut{"refuses", refuse("OOM command not allowed when used memory > 'maxmemory'."), refuse("")}) {
		testkit.Run(t, tt.name, func(t *testing.T) {
			c, servers := testkit.Client(t, 5)
			other, _ := testkit.Another(t, servers)
			testkit.Warm(t, c)
			testkit.Warm(t, other)
			early := testkit.Lock(t, c.Mutex("early"))
			testkit.Each(servers[:2], tt.cut)
			atOnce := func(what string, do func()) {
				t.Helper()
				began := time.Now()
				do()
				testkit.Took(t, began, 0, 0, "%s", what)
			}
			var lease *quorumlock.Lease
			atOnce("TryLock", func() { lease = testkit.TryLock(t, c.Mutex("x")) })
			time.Sleep(2 * quorumlock.DefaultTTL)
			testkit.Held(t, early)
			testkit.Refused(t, other.Mutex("x"))
			atOnce("Extend", func() { testkit.OK(t, lease.Extend(t.Context()), "Extend") })
			atOnce("Unlock", func() { testkit.Unlock(t, lease) })
			testkit.Unlock(t, testkit.TryLock(t, other.Mutex("x")))
			testkit.Each(servers[:2], tt.end)

			for range 5 {
				testkit.Each(servers, tt.cut)
				time.Sleep(quorumlock.DefaultTTL / 2)
				testkit.Each(servers, tt.end)
				time.Sleep(quorumlock.DefaultTTL / 2)
			}
			testkit.Held(t, early)

			testkit.Each(servers[1:4], tt.cut)
			time.Sleep(quorumlock.DefaultTTL / 20)
			deadline := early.ValidUntil()
			testkit.Lost(t, early, time.Minute)
			if now := time.Now(); !now.Equal(deadline) || !now.Equal(early.ValidUntil()) {
				t.Errorf("told %v after the deadline", now.Sub(deadline))
			}
			testkit.Is(t, early.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
			testkit.Each(servers[1:4], tt.end)
			time.Sleep(quorumlock.DefaultTTL)
			testkit.Nothing(t, servers)
		})
	}
}
