package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// cuts are the ways in which a node can be out of reach, each with its end.
var cuts = []struct {
	name     string
	cut, end func(s *embedded.Server)
}{
	{"killed", (*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(true) }},
	{"frozen", (*embedded.Server).Stall, (*embedded.Server).Resume},
	{"requests lost", (*embedded.Server).Lose, (*embedded.Server).Resume},
	{"way back cut", (*embedded.Server).Mute, (*embedded.Server).Resume},
}

func TestMinorityCutOffCostsNothing(t *testing.T) {
	for _, tt := range cuts {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				other, _ := locktest.Another(t, servers)
				warm(t, c)
				early := locktest.Lock(t, c.Mutex("early"))
				locktest.Each(servers[:2], tt.cut)
				start := time.Now()
				lease := locktest.TryLock(t, c.Mutex("x"))
				if took := time.Since(start); took > 0 {
					t.Errorf("TryLock took %v, want none but the round trips", took)
				}
				locktest.Refused(t, other.Mutex("x"))
				time.Sleep(2 * quorumlock.DefaultTTL)
				locktest.Held(t, early)
				locktest.Held(t, lease)
				locktest.Refused(t, other.Mutex("x"))
				if err := lease.Extend(t.Context()); err != nil {
					t.Error("Extend:", err)
				}
				start = time.Now()
				locktest.Unlock(t, lease)
				locktest.Unlock(t, early)
				if took := time.Since(start); took > 0 {
					t.Errorf("Unlock took %v, want none but the round trips", took)
				}
				locktest.Unlock(t, locktest.TryLock(t, other.Mutex("x")))
				time.Sleep(quorumlock.DefaultTTL)
				locktest.Each(servers[:2], tt.end)
				time.Sleep(quorumlock.DefaultTTL)
				locktest.Nothing(t, servers)
			})
		})
	}
}

// "The holder learns of loss no later than its own local deadline", and not earlier: nodes that are out
// of reach take nothing away.
func TestMajorityCutOffIsToldAtTheDeadline(t *testing.T) {
	for _, tt := range cuts {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				lease := locktest.Lock(t, c.Mutex("x"))
				time.Sleep(2 * quorumlock.DefaultTTL)
				locktest.Each(servers[1:4], tt.cut)
				time.Sleep(quorumlock.DefaultTTL / 20)
				deadline := lease.ValidUntil()
				locktest.Lost(t, lease, time.Minute)
				if now := time.Now(); !now.Equal(deadline) || !now.Equal(lease.ValidUntil()) {
					t.Errorf("told %v after the deadline", now.Sub(deadline))
				}
				if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
					t.Errorf("Unlock: %v, want ErrLost", err)
				}
				locktest.Each(servers[1:4], tt.end)
				time.Sleep(quorumlock.DefaultTTL)
				locktest.Nothing(t, servers)
			})
		})
	}
}

// A holder whom an outage does not last beyond the deadline keeps the lease.
func TestOutageShorterThanTheLeaseIsRiddenOut(t *testing.T) {
	for _, tt := range cuts {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				lease := locktest.Lock(t, c.Mutex("x"))
				for range 5 {
					locktest.Each(servers, tt.cut)
					time.Sleep(quorumlock.DefaultTTL / 2)
					locktest.Each(servers, tt.end)
					time.Sleep(quorumlock.DefaultTTL / 2)
				}
				locktest.Held(t, lease)
				locktest.Unlock(t, lease)
				locktest.Nothing(t, servers)
			})
		})
	}
}

func TestMajorityCutOffTryLockNamesTheNodesAndLockWaits(t *testing.T) {
	for _, tt := range cuts {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				warm(t, c)
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
		})
	}
}

// "One slow or dead node costs nothing while a quorum of the others answers": in fake time, exactly.
func TestOneNodeSlowCostsNothing(t *testing.T) {
	times := func(t *testing.T, slow func(s *embedded.Server)) (took [3]time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 5)
			locktest.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
			warm(t, c)
			time.Sleep(time.Second)
			slow(servers[2])
			for i := range 4 {
				start := time.Now()
				lease, err := c.Mutex("x").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
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

// A node is frozen for a long time, and runs all that it was sent when it thaws: nobody is kept out, and
// at the TTL it has forgotten.
func TestNodeFrozenThenBackKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		warm(t, c)
		warm(t, other)
		servers[1].Stall()
		for range 20 {
			locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
			locktest.Unlock(t, locktest.TryLock(t, other.Mutex("x")))
			time.Sleep(100 * time.Millisecond)
		}
		held := locktest.Lock(t, c.Mutex("x"))
		time.Sleep(time.Second)
		servers[1].Resume()
		synctest.Wait()
		locktest.Refused(t, other.Mutex("x"))
		time.Sleep(2 * quorumlock.DefaultTTL)
		locktest.Held(t, held)
		locktest.HoldsAll(t, servers, held)
		locktest.Unlock(t, held)
		locktest.Nothing(t, servers)
	})
}

// A holder that dies keeps others out for the TTL, no less and little more.
func TestHolderKilledFreesTheLockAtItsTTL(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5, quorumlock.WithTTL(ttl))
				dies, paths := locktest.Another(t, servers, quorumlock.WithTTL(ttl))
				dead := locktest.Lock(t, dies.Mutex("x"))
				locktest.Each(paths, (*embedded.Server).Kill)
				start := time.Now()
				lease := locktest.Lock(t, c.Mutex("x"))
				if took := time.Since(start); took < ttl || took > ttl+100*time.Millisecond {
					t.Errorf("it took %v until the lock was free, want %v and little more", took, ttl)
				}
				locktest.Lost(t, dead, 0)
				if lease.Token() <= dead.Token() {
					t.Errorf("token %d after %d", lease.Token(), dead.Token())
				}
				locktest.Unlock(t, lease)
				locktest.Nothing(t, servers)
			})
		})
	}
}
