package sick

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

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
		locktest.Run(t, tt.name, func(t *testing.T) {
			c, servers := locktest.Client(t, 5)
			locktest.Warm(t, c)
			locktest.Each(servers[:3], tt.cut)
			start := time.Now()
			_, err := c.Mutex("x").TryLock(t.Context())
			if took := time.Since(start); took > 600*time.Millisecond {
				t.Errorf("TryLock took %v, want the node timeout of 500 ms and little more", took)
			}
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

			waited, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = c.Mutex("x").Lock(waited)
			if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock: %v, want DeadlineExceeded joined with a QuorumError", err)
			}
			const outage = 2 * time.Second
			time.AfterFunc(outage, func() { locktest.Each(servers[:3], tt.end) })
			start = time.Now()
			lease := locktest.Lock(t, c.Mutex("x"))
			if took := time.Since(start); took < outage || took > outage+quorumlock.DefaultTTL+time.Second {
				t.Errorf("Lock took %v, want %v, and what frozen nodes grant late", took, outage)
			}
			locktest.Unlock(t, lease)
			time.Sleep(quorumlock.DefaultTTL)
			locktest.Nothing(t, servers)
		})
	}
}

// "One slow or dead node costs nothing while a quorum of the others answers": in fake time,
// exactly.
func TestOneNodeSlowCostsNothing(t *testing.T) {
	times := func(t *testing.T, slow func(s *embedded.Server)) (took [3]time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 5)
			locktest.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
			locktest.Warm(t, c)
			time.Sleep(time.Second)
			slow(servers[2])
			for i := range 4 {
				start := time.Now()
				lease := locktest.MustLock(t, c.Mutex("x"))
				took[0] += time.Since(start)
				start = time.Now()
				if err := lease.Extend(t.Context()); err != nil {
					t.Fatal(err)
				}
				took[1] += time.Since(start)
				start = time.Now()
				if err := lease.Unlock(t.Context()); err != nil {
					t.Fatal(i, err)
				}
				took[2] += time.Since(start)
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
	for name, slow := range map[string]func(s *embedded.Server){
		"slow":          func(s *embedded.Server) { s.Delay(100 * time.Millisecond) },
		"very slow":     func(s *embedded.Server) { s.Delay(10 * time.Second) },
		"frozen":        (*embedded.Server).Stall,
		"killed":        (*embedded.Server).Kill,
		"requests lost": (*embedded.Server).Lose,
		"way back cut":  (*embedded.Server).Mute,
	} {
		t.Run(name, func(t *testing.T) {
			if took := times(t, slow); took != healthy {
				t.Errorf("four times Lock, Extend and Unlock took %v with one node %s, %v with none", took, name, healthy)
			}
		})
	}
}

// With a dead or a slow minority, the waiter still learns that the lock is held, and sends no node
// more requests than with healthy nodes.
func TestAMinorityIsNeverReportedAsNoQuorum(t *testing.T) {
	const waits = 12 * time.Second
	scripts := func(t *testing.T, slow func(s *embedded.Server)) (ran int) {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			locktest.MustLock(t, c.Mutex("x"))
			log, logger := locktest.Logger()
			var told []quorumlock.Step
			observer := locktest.Observer(func(e quorumlock.Event) {
				if e.Kind == quorumlock.Refused {
					told = e.Steps
				}
			})
			waiter, paths := locktest.Another(t, servers, logger, quorumlock.WithObserver(observer))
			slow(paths[0])
			paths[1].Delay(time.Millisecond)
			paths[2].Delay(2 * time.Millisecond)
			before := servers[1].Ran("acquire")
			ctx, cancel := context.WithTimeout(t.Context(), waits)
			defer cancel()
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
	for name, slow := range map[string]func(s *embedded.Server){
		"killed": (*embedded.Server).Kill, "frozen": (*embedded.Server).Stall, "requests lost": (*embedded.Server).Lose, "way back cut": (*embedded.Server).Mute,
	} {
		t.Run(name, func(t *testing.T) {
			if ran := scripts(t, slow); 10*ran > 11*well {
				t.Errorf("a healthy node ran %d scripts in %v, and %d while all were well", ran, waits, well)
			}
		})
	}
}

// Two of three nodes do not answer, so the third cannot prove that the lock is held. A caller that
// skips its job if the lock is held must not skip it now.
func TestAnOutageIsNoQuorumThoughOneNodeRefuses(t *testing.T) {
	for _, tt := range cuts {
		locktest.Run(t, tt.name, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			locktest.MustLock(t, c.Mutex("x"))
			other, _ := locktest.Another(t, servers, quorumlock.WithWait(time.Second))
			locktest.Warm(t, other)
			locktest.Each(servers[1:], tt.cut)
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
			locktest.Each(servers[1:], tt.end)
		})
	}
}

// A minority that is cut off costs holders and new callers nothing. An outage that ends before the
// deadline costs no lease. A loss is reported at the deadline, not earlier: an unreachable node
// revokes nothing.
func TestWhatACutOffNodeCosts(t *testing.T) {
	refuse := func(with string) func(s *embedded.Server) { return func(s *embedded.Server) { s.Redis.SetError(with) } }
	for _, tt := range append(slices.Clone(cuts), cut{"refuses", refuse("OOM command not allowed when used memory > 'maxmemory'."), refuse("")}) {
		locktest.Run(t, tt.name, func(t *testing.T) {
			c, servers := locktest.Client(t, 5)
			other, _ := locktest.Another(t, servers)
			locktest.Warm(t, c)
			locktest.Warm(t, other)
			early := locktest.Lock(t, c.Mutex("early"))
			locktest.Each(servers[:2], tt.cut)
			atOnce := func(what string, do func()) {
				t.Helper()
				began := time.Now()
				do()
				if took := time.Since(began); took > 0 {
					t.Errorf("%s took %v, want none but the round trips", what, took)
				}
			}
			var lease *quorumlock.Lease
			atOnce("TryLock", func() { lease = locktest.TryLock(t, c.Mutex("x")) })
			time.Sleep(2 * quorumlock.DefaultTTL)
			locktest.Held(t, early)
			locktest.Refused(t, other.Mutex("x"))
			atOnce("Extend", func() {
				if err := lease.Extend(t.Context()); err != nil {
					t.Error("Extend:", err)
				}
			})
			atOnce("Unlock", func() { locktest.Unlock(t, lease) })
			locktest.Unlock(t, locktest.TryLock(t, other.Mutex("x")))
			locktest.Each(servers[:2], tt.end)

			for range 5 {
				locktest.Each(servers, tt.cut)
				time.Sleep(quorumlock.DefaultTTL / 2)
				locktest.Each(servers, tt.end)
				time.Sleep(quorumlock.DefaultTTL / 2)
			}
			locktest.Held(t, early)

			locktest.Each(servers[1:4], tt.cut)
			time.Sleep(quorumlock.DefaultTTL / 20)
			deadline := early.ValidUntil()
			locktest.Lost(t, early, time.Minute)
			if now := time.Now(); !now.Equal(deadline) || !now.Equal(early.ValidUntil()) {
				t.Errorf("told %v after the deadline", now.Sub(deadline))
			}
			if err := early.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Unlock: %v, want ErrLost", err)
			}
			locktest.Each(servers[1:4], tt.end)
			time.Sleep(quorumlock.DefaultTTL)
			locktest.Nothing(t, servers)
		})
	}
}
