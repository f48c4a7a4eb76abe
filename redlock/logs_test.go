package redlock_test

import (
	"context"
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

// stuck is a log handler that returns only when it is closed. It has no mutex: time stands still in
// a bubble while a goroutine waits for one.
type stuck chan struct{}

func (stuck) Enabled(context.Context, slog.Level) bool { return true }

func (s stuck) Handle(context.Context, slog.Record) error {
	<-s
	return nil
}

func (s stuck) WithAttrs([]slog.Attr) slog.Handler { return s }
func (s stuck) WithGroup(string) slog.Handler      { return s }

// The answer of a node shows that the keys are gone. Its reader reports the loss, and logs it.
func TestALogThatIsStuckDelaysNeitherALossNorANode(t *testing.T) {
	for name, lose := range map[string]func(s *embedded.Server){
		"keys gone":  func(s *embedded.Server) { s.Redis.Del("x") },
		"nodes down": (*embedded.Server).Kill,
	} {
		locktest.Run(t, name, func(t *testing.T) {
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
	}
}

func TestALogThatIsStuckHoldsUpNobodyWhoEntersAHold(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		log := make(stuck)
		c, servers := locktest.Client(t, 3, quorumlock.WithLogger(slog.New(log)), quorumlock.WithoutRenewal())
		goOn := sync.OnceFunc(func() { close(log) })
		t.Cleanup(goOn)
		outer := locktest.Lock(t, c.Mutex("x"))
		time.Sleep(quorumlock.DefaultTTL * 2 / 3)
		// The lease cannot be extended, which is logged.
		locktest.Each(servers[:2], (*embedded.Server).Kill)
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
	locktest.Bubble(t, func(t *testing.T) {
		log, option := locktest.Logger()
		c, servers := locktest.Client(t, 5, option)
		const n = 100
		for i := range n {
			locktest.Lock(t, c.Mutex(fmt.Sprintf("x%d", i)))
		}
		time.Sleep(time.Minute)
		if lines := log.Lines(); len(lines) > 0 {
			t.Errorf("%d lines while all is well: %s", len(lines), lines[0])
		}
		locktest.Each(servers[:3], (*embedded.Server).Kill)
		time.Sleep(2 * quorumlock.DefaultTTL)
		for what, want := range map[string]int{"node down": 3, "renewal late": n, "lease lost": n, "node up": 0, "": 2*n + 3} {
			if got := len(log.Lines(what)); got != want {
				t.Errorf("%d lines with %q, want %d", got, what, want)
			}
		}
		for _, s := range servers[:3] {
			if len(log.Lines("node down", "node="+s.Name, "error=")) != 1 {
				t.Errorf("no line says that %s is down, and why: %q", s.Name, log.Lines("node down"))
			}
			if len(log.Lines("lease lost", "lock=x7 ", "not renewed in time", s.Name)) != 1 {
				t.Errorf("the loss of x7 does not name %s", s.Name)
			}
		}
		all := log.Lines("lock=x7 ")
		if len(all) != 2 || !strings.Contains(all[1], "lease lost") {
			t.Errorf("the lines of x7 are %q, want none after its loss", all)
		}
		locktest.Each(servers[:3], func(s *embedded.Server) { s.Restart(true) })
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("y")))
		time.Sleep(time.Second)
		if got := len(log.Lines("node up")); got != 3 {
			t.Errorf("%d lines say that a node is up, want 3", got)
		}
	})
}

// A server that is out of memory refuses every acquire, and does every release.
func TestANodeThatIsOutOfMemoryIsLoggedDownOnceAndUpWhenItServes(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		log, option := locktest.Logger()
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
		if lines := log.Lines(); len(lines) != 1 || len(log.Lines("node down", "OOM")) != 1 {
			t.Errorf("%d lines of 100 locks, want one that says that the node is down: %q", len(lines), lines)
		}
		full.Before(nil)
		full.Redis.SetError("")
		time.Sleep(time.Second)
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("x")))
		if lines := log.Lines(); len(lines) != 2 || len(log.Lines("node up")) != 1 {
			t.Errorf("logged %q, want that the node is up again", lines)
		}
	})
}

func TestALockThatWaitsForAQuorumSaysSoOnce(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		log, option := locktest.Logger()
		c, servers := locktest.Client(t, 3, option)
		locktest.Each(servers[:2], (*embedded.Server).Kill)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Mutex("x").Lock(ctx); err == nil {
			t.Fatal("granted without a quorum")
		}
		if lines := log.Lines(); len(lines) != 3 || len(log.Lines("no quorum")) != 1 || len(log.Lines("node down")) != 2 {
			t.Errorf("logged %q, want two nodes down and one call without a quorum", lines)
		}
	})
}

func TestANumberOfNodesThatWastesOneIsLoggedOnce(t *testing.T) {
	for nodes, want := range []int{1: 1, 2: 1, 3: 0, 4: 1, 5: 0} {
		if nodes == 0 {
			continue
		}
		locktest.Run(t, fmt.Sprint(nodes), func(t *testing.T) {
			log, option := locktest.Logger()
			c, _ := locktest.Client(t, nodes, option)
			_ = c.Mutex("x", quorumlock.WithoutRenewal())
			if lines := log.Lines("node"); len(lines) != want || len(log.Lines()) != want {
				t.Errorf("with %d nodes %q is logged, want %d lines", nodes, log.Lines(), want)
			}
		})
	}
}
