package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// logged is what a logger has written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines returns those with all of the parts.
func (l *logged) lines(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

func logging() (*logged, quorumlock.Option) {
	l := &logged{}
	return l, quorumlock.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

// stuck is a log handler that returns only when it is closed. It has no mutex: time stands still in a bubble while a goroutine
// waits for one.
type stuck chan struct{}

func (stuck) Enabled(context.Context, slog.Level) bool { return true }

func (s stuck) Handle(context.Context, slog.Record) error {
	<-s
	return nil
}

func (s stuck) WithAttrs([]slog.Attr) slog.Handler { return s }
func (s stuck) WithGroup(string) slog.Handler      { return s }

func TestALogThatIsStuckHoldsUpNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := make(stuck)
		c, servers := locktest.Client(t, 3, quorumlock.WithLogger(slog.New(log)))
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[0].Kill()
		time.Sleep(time.Minute)
		locktest.Held(t, lease) // renewed by the others
		for range 3 {
			other, err := c.Mutex("y").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			locktest.MustUnlock(t, other)
		}
		servers[0].Restart(true)
		close(log)
		locktest.Unlock(t, lease)
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Nothing(t, servers)
	})
}

// The answer of a node says that the keys are gone. Whoever reads that answer reports the loss, and logs it.
func TestALogThatIsStuckDelaysNeitherALossNorANode(t *testing.T) {
	for name, lose := range map[string]func(s *embedded.Server){
		"keys gone":  func(s *embedded.Server) { s.Redis.Del("x") },
		"nodes down": (*embedded.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := make(stuck)
				c, servers := locktest.Client(t, 3, quorumlock.WithLogger(slog.New(log)))
				goOn := sync.OnceFunc(func() { close(log) })
				t.Cleanup(goOn)
				lost := locktest.Lock(t, c.Mutex("x"))
				time.Sleep(time.Second) // so that the two are not renewed together
				kept := locktest.Lock(t, c.Mutex("y"))
				time.Sleep(time.Minute)
				locktest.Each(servers[:2], lose)
				locktest.Lost(t, lost, time.Until(lost.ValidUntil())+time.Nanosecond)
				if name == "keys gone" {
					before := make([]int, len(servers))
					for i, s := range servers {
						before[i] = s.Ran("renew")
					}
					if err := kept.Extend(t.Context()); err != nil {
						t.Errorf("Extend of another lease: %v", err)
					}
					synctest.Wait()
					for i, s := range servers { // the worker of one has reported the loss
						if s.Ran("renew") == before[i] {
							t.Errorf("%s was sent no renewal of another lease: the log holds it up", s.Name)
						}
					}
				}
				locktest.Each(servers[:2], func(s *embedded.Server) { s.Restart(true) })
				began := time.Now()
				locktest.Unlock(t, locktest.Lock(t, c.Mutex("z")))
				if took := time.Since(began); took > 0 {
					t.Errorf("another lock took %v", took)
				}
				goOn()
				_ = lost.Unlock(t.Context())
				_ = kept.Unlock(t.Context())
				locktest.Nothing(t, servers)
			})
		})
	}
}

func TestALogThatIsStuckHoldsUpNobodyWhoEntersAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := make(stuck)
		c, servers := locktest.Client(t, 3, quorumlock.WithLogger(slog.New(log)), quorumlock.WithoutRenewal())
		goOn := sync.OnceFunc(func() { close(log) })
		t.Cleanup(goOn)
		outer := locktest.Lock(t, c.Mutex("x"))
		time.Sleep(quorumlock.DefaultTTL * 2 / 3)
		locktest.Each(servers[:2], (*embedded.Server).Kill) // it cannot be extended, which is logged
		entered := make(chan *quorumlock.Lease, 1)
		go func() {
			inner, err := c.Mutex("x").Lock(outer.Context())
			if err != nil {
				t.Error(err)
			}
			entered <- inner
		}()
		select {
		case inner := <-entered:
			_ = inner.Unlock(t.Context())
		case <-time.After(quorumlock.DefaultTTL / 10):
			t.Error("the caller waits for the log")
			goOn()
			_ = (<-entered).Unlock(t.Context())
		}
		goOn()
		_ = outer.Unlock(t.Context())
	})
}

func TestEveryEventIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, option := logging()
		c, servers := locktest.Client(t, 5, option)
		const n = 100
		for i := range n {
			locktest.Lock(t, c.Mutex(fmt.Sprintf("x%d", i)))
		}
		time.Sleep(time.Minute)
		if lines := log.lines(); len(lines) > 0 {
			t.Errorf("%d lines while all is well: %s", len(lines), lines[0])
		}
		locktest.Each(servers[:3], (*embedded.Server).Kill)
		time.Sleep(2 * quorumlock.DefaultTTL)
		for what, want := range map[string]int{"node down": 3, "renewal late": n, "lease lost": n, "node up": 0, "": 2*n + 3} {
			if got := len(log.lines(what)); got != want {
				t.Errorf("%d lines with %q, want %d", got, what, want)
			}
		}
		for _, s := range servers[:3] {
			if len(log.lines("node down", "node="+s.Name, "error=")) != 1 {
				t.Errorf("no line says that %s is down, and why: %q", s.Name, log.lines("node down"))
			}
			if len(log.lines("lease lost", "lock=x7 ", "not renewed in time", s.Name)) != 1 {
				t.Errorf("the loss of x7 does not name %s", s.Name)
			}
		}
		all := log.lines("lock=x7 ")
		if len(all) != 2 || !strings.Contains(all[1], "lease lost") {
			t.Errorf("the lines of x7 are %q, want none after its loss", all)
		}
		locktest.Each(servers[:3], func(s *embedded.Server) { s.Restart(true) })
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("y")))
		time.Sleep(time.Second)
		if got := len(log.lines("node up")); got != 3 {
			t.Errorf("%d lines say that a node is up, want 3", got)
		}
	})
}

func TestAFrozenNodeIsLoggedDownAndUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, option := logging()
		c, servers := locktest.Client(t, 5, option) // the TTL is 10 s: one renewal finds that the node is frozen
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[1].Stall()
		time.Sleep(5 * time.Second)
		servers[1].Resume()
		time.Sleep(5 * time.Second)
		if lines := log.lines(); len(lines) != 2 || !strings.Contains(lines[0], "node down") || !strings.Contains(lines[1], "node up") || !strings.Contains(lines[0], "deadline exceeded") {
			t.Errorf("logged %q, want that node-2 was down, why, and that it is up", lines)
		}
		locktest.Unlock(t, lease)
	})
}

// A server that is out of memory refuses every acquire, and does every release.
func TestANodeThatIsOutOfMemoryIsLoggedDownOnceAndUpWhenItServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, option := logging()
		c, servers := locktest.Client(t, 3, option)
		full := servers[1]
		full.Before(func(r embedded.Run) {
			full.Redis.SetError("")
			if r.Script == "acquire" {
				full.Redis.SetError("OOM command not allowed when used memory > 'maxmemory'.")
			}
		})
		for range 100 {
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("x")))
			time.Sleep(10 * time.Millisecond)
		}
		if lines := log.lines(); len(lines) != 1 || len(log.lines("node down", "OOM")) != 1 {
			t.Errorf("%d lines of 100 locks, want one that says that the node is down: %q", len(lines), lines)
		}
		full.Before(nil)
		full.Redis.SetError("")
		time.Sleep(time.Second)
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("x")))
		if lines := log.lines(); len(lines) != 2 || len(log.lines("node up")) != 1 {
			t.Errorf("logged %q, want that the node is up again", lines)
		}
	})
}

func TestALockThatWaitsForAQuorumSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, option := logging()
		c, servers := locktest.Client(t, 3, option)
		locktest.Each(servers[:2], (*embedded.Server).Kill)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Mutex("x").Lock(ctx); err == nil {
			t.Fatal("granted without a quorum")
		}
		if lines := log.lines(); len(lines) != 3 || len(log.lines("no quorum")) != 1 || len(log.lines("node down")) != 2 {
			t.Errorf("logged %q, want two nodes down and one call without a quorum", lines)
		}
	})
}

func TestTheCauseOfALossSaysWhyAndWhichNodes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   []quorumlock.Option
		lose   func(servers []*embedded.Server)
		reason string
		nodes  int
	}{
		{"nodes down", nil, func(s []*embedded.Server) { locktest.Each(s[:2], (*embedded.Server).Kill) }, "not renewed in time", 2},
		{"keys gone", nil, func(s []*embedded.Server) { locktest.Each(s[:2], func(s *embedded.Server) { s.Redis.Del("x") }) }, "too many nodes no longer have its key", 0},
		{"not extended", []quorumlock.Option{quorumlock.WithoutRenewal()}, func([]*embedded.Server) {}, "not extended in time", 0},
		{"held for too long", []quorumlock.Option{quorumlock.WithMaxHold(time.Minute)}, func([]*embedded.Server) {}, "WithMaxHold(1m0s)", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3, tt.opts...)
				lease := locktest.Lock(t, c.Mutex("x"))
				tt.lose(servers)
				<-lease.Context().Done()
				for what, err := range map[string]error{"the cause": context.Cause(lease.Context()), "Unlock": lease.Unlock(t.Context())} {
					lost, ok := errors.AsType[*quorumlock.LostError](err)
					if !ok || !errors.Is(err, quorumlock.ErrLost) {
						t.Errorf("%s: %v, want a LostError", what, err)
						continue
					}
					if lost.Name != "x" || lost.Owner != lease.Owner() || !strings.Contains(lost.Reason, tt.reason) || len(lost.Nodes) != tt.nodes {
						t.Errorf("%s: %+v, want %q and %d nodes", what, lost, tt.reason, tt.nodes)
					}
				}
			})
		})
	}
}

func TestMaxHoldEndsALeaseThatIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		began := time.Now()
		lease := locktest.Lock(t, c.Mutex("x", quorumlock.WithMaxHold(time.Minute)))
		<-lease.Context().Done()
		if held := time.Since(began); held < time.Minute || held > time.Minute+quorumlock.DefaultTTL {
			t.Errorf("held for %v, want a minute and a TTL at most", held)
		}
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
		locktest.Nothing(t, servers)
	})
}

func TestARefusalSaysWhoHoldsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		lease := locktest.Lock(t, clients[0].Mutex("x"))
		_, err := clients[1].Mutex("x").TryLock(t.Context())
		held, ok := errors.AsType[*quorumlock.HeldError](err)
		if !ok || !errors.Is(err, quorumlock.ErrHeld) || held.Name != "x" || held.Holder != lease.Owner() || held.TTL <= 9*time.Second || held.TTL > quorumlock.DefaultTTL || held.Position != 0 {
			t.Errorf("TryLock: %#v, want one that names %s", err, lease.Owner())
		}
		_, err = clients[1].Mutex("x", quorumlock.WithWait(5*time.Second)).Lock(t.Context())
		if held, ok = errors.AsType[*quorumlock.HeldError](err); !ok || held.Holder != lease.Owner() || held.Position != 1 {
			t.Errorf("Lock: %#v, want the holder and the first position", err)
		}
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

// A waiter that was refused by a quorum yields what it was granted elsewhere. Its ctx ends before the node has confirmed that.
func TestARefusalSaysWhoHoldsTheLockEvenIfTheCallerGoesDuringAYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		lease := locktest.Lock(t, clients[0].Mutex("x"))
		servers[2].Redis.Del("x") // this node grants it to the waiter, as one of three
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		servers[2].Before(func(r embedded.Run) {
			if r.Script == "release" {
				cancel()
				<-returned
			}
		})
		_, err := clients[1].Mutex("x").Lock(ctx)
		servers[2].Before(nil)
		close(returned)
		held, ok := errors.AsType[*quorumlock.HeldError](err)
		if !ok || held.Holder != lease.Owner() || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v, want that it was cancelled, and who holds the lock", err)
		}
		synctest.Wait()
		_ = lease.Unlock(t.Context())
		locktest.Nothing(t, servers)
	})
}
