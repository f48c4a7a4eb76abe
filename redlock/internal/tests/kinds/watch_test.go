package kinds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// sights has the results of a Watch of the lock x.
type sights struct {
	mu   sync.Mutex
	all  []string // the holders by label, with their data; "-" for none; a word for an error
	last time.Time
}

// watches watches until the end of the test.
func watches(t *testing.T, c *redlock.Client) *sights {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &sights{}
	ended := testkit.Go(func() error {
		for in, err := range c.Watch(ctx, "x") {
			s.add(in, err)
		}
		return ctx.Err()
	})
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
	return s
}

func (s *sights) add(in redlock.Inspection, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var who []string
	if o := in.State.Owner; o != "" {
		who = append(who, strings.TrimSuffix(o.Label()+" "+in.State.Data, " "))
	}
	for _, r := range in.State.Readers {
		who = append(who, r.Owner.Label()+" reads")
	}
	for _, s := range in.State.Slots {
		who = append(who, s.Owner.Label()+" has a slot")
	}
	switch _, few := errors.AsType[*quorumlock.QuorumError](err); {
	case few:
		who = []string{"?"}
	case err != nil:
		who = []string{err.Error()}
	case len(who) == 0:
		who = []string{"-"}
	}
	slices.Sort(who)
	s.all, s.last = append(s.all, strings.Join(who, ", ")), time.Now()
}

// saw checks the results so far, and that the last one came within limit of since.
func (s *sights) saw(t *testing.T, since time.Time, limit time.Duration, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.all, want) {
		t.Fatalf("seen %q, want %q", s.all, want)
	}
	if late := s.last.Sub(since); late > limit {
		t.Errorf("%q was seen after %v, want %v", want[len(want)-1], late, limit)
	}
}

// skip forgets a result that may be missing.
func (s *sights) skip(what string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(seen string) bool { return seen == what })
}

// watched runs a test of a watcher and of two other clients, a and b, of three servers. Watch must
// leave nothing at the servers.
func watched(t *testing.T, name string, f func(t *testing.T, s *sights, a, b *redlock.Client, servers, paths []*embedded.Server)) {
	testkit.Run(t, name, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 3)
		a, _ := testkit.Another(t, servers, quorumlock.WithLabel("a"))
		b, _ := testkit.Another(t, servers, quorumlock.WithLabel("b"))
		c, paths := testkit.Another(t, servers)
		s := watches(t, c)
		s.saw(t, time.Now(), 0, "-")
		f(t, s, a, b, servers, paths)
		testkit.NoLocks(t, servers)
	})
}

const aSecond = time.Second + 10*time.Millisecond

func TestWatch(t *testing.T) {
	watched(t, "sees holders within a second", func(t *testing.T, s *sights, a, b *redlock.Client, servers, _ []*embedded.Server) {
		time.Sleep(time.Minute)
		now := time.Now()
		lease := testkit.Lock(t, a.Mutex("x"))
		time.Sleep(time.Minute) // renewals are no change
		s.saw(t, now, aSecond, "-", "a")
		waiter := testkit.Waiter(t, b.Mutex("x"))
		time.Sleep(time.Minute) // nor are waiters
		s.saw(t, now, aSecond, "-", "a")
		if slices.Contains(servers[0].Redis.PubSubChannels("*"), "redisson_lock__channel:{x}") {
			t.Error("the watcher listens to releases, which prevents handoffs")
		}
		now = time.Now()
		testkit.Unlock(t, lease)
		lease = <-waiter
		time.Sleep(aSecond)
		s.saw(t, now, aSecond, "-", "a", "b")
		now = time.Now()
		testkit.Unlock(t, lease)
		time.Sleep(aSecond)
		s.saw(t, now, aSecond, "-", "a", "b", "-")
	})
	watched(t, "sees data at once", func(t *testing.T, s *sights, a, b *redlock.Client, _, _ []*embedded.Server) {
		time.Sleep(time.Minute + 300*time.Millisecond)
		now := time.Now()
		lease := testkit.Lock(t, withData(a, "1"))
		s.saw(t, now, time.Millisecond, "-", "a 1")
		waiter := testkit.Waiter(t, withData(b, "2"))
		time.Sleep(time.Minute)
		now = time.Now()
		testkit.Unlock(t, lease)
		lease = <-waiter
		s.skip("b") // before its data
		s.saw(t, now, time.Millisecond, "-", "a 1", "b 2")
		time.Sleep(time.Minute)
		now = time.Now()
		testkit.Unlock(t, lease)
		time.Sleep(50 * time.Millisecond) // looks after 5, 10 and 20 ms, until all nodes agree
		s.saw(t, now, 50*time.Millisecond, "-", "a 1", "b 2", "-")
	})
	watched(t, "sees data without messages", func(t *testing.T, s *sights, a, _ *redlock.Client, _, paths []*embedded.Server) {
		testkit.Each(paths, func(s *embedded.Server) { s.LoseMessages(true) })
		time.Sleep(time.Minute)
		now := time.Now()
		lease := testkit.Lock(t, withData(a, "1"))
		time.Sleep(aSecond)
		s.saw(t, now, aSecond, "-", "a 1")
		now = time.Now()
		testkit.Unlock(t, lease)
		time.Sleep(aSecond)
		s.saw(t, now, aSecond, "-", "a 1", "-")
	})
	// There is no message for a death.
	watched(t, "sees an expiry at once", func(t *testing.T, s *sights, _, _ *redlock.Client, servers, _ []*embedded.Server) {
		dies, paths := testkit.Another(t, servers, quorumlock.WithLabel("dead"))
		testkit.Lock(t, dies.Mutex("x"))
		time.Sleep(12300 * time.Millisecond)
		testkit.Kill(paths...)
		for servers[0].Redis.Exists("x") {
			time.Sleep(time.Millisecond)
		}
		now := time.Now()
		time.Sleep(100 * time.Millisecond)
		s.saw(t, now, 20*time.Millisecond, "-", "dead", "-")
		time.Sleep(quorumlock.DefaultTTL)
	})
	watched(t, "sees a ForceUnlock", func(t *testing.T, s *sights, a, b *redlock.Client, _, _ []*embedded.Server) {
		lease := testkit.Lock(t, a.Mutex("x"))
		time.Sleep(aSecond)
		now := time.Now()
		testkit.Must(t, b.ForceUnlock(t.Context(), "x"), "ForceUnlock")
		time.Sleep(aSecond)
		s.saw(t, now, aSecond, "-", "a", "-")
		testkit.Lost(t, lease, quorumlock.DefaultTTL)
		_ = lease.Unlock(t.Context())
	})
	watched(t, "sees readers and writers", func(t *testing.T, s *sights, a, b *redlock.Client, _, _ []*embedded.Server) {
		first := testkit.Lock(t, a.RWMutex("x").RLocker())
		time.Sleep(aSecond)
		second := testkit.Lock(t, b.RWMutex("x").RLocker())
		time.Sleep(aSecond)
		writer := testkit.Waiter(t, a.RWMutex("x"))
		testkit.Unlock(t, first)
		time.Sleep(aSecond)
		now := time.Now()
		testkit.Unlock(t, second)
		lease := <-writer
		time.Sleep(aSecond)
		s.saw(t, now, aSecond, "-", "a reads", "a reads, b reads", "b reads", "a")
		testkit.Unlock(t, lease)
	})
	watched(t, "sees slots", func(t *testing.T, s *sights, a, b *redlock.Client, _, _ []*embedded.Server) {
		first := testkit.Lock(t, a.Semaphore("x", 2))
		time.Sleep(aSecond)
		second := testkit.Lock(t, b.Semaphore("x", 2))
		time.Sleep(aSecond)
		now := time.Now()
		testkit.Unlock(t, first)
		time.Sleep(aSecond)
		s.saw(t, now, aSecond, "-", "a has a slot", "a has a slot, b has a slot", "b has a slot")
		testkit.Unlock(t, second)
	})
	watched(t, "tells of an outage once, and of no minority", func(t *testing.T, s *sights, a, _ *redlock.Client, _, paths []*embedded.Server) {
		lease := testkit.Lock(t, a.Mutex("x"))
		paths[0].Kill()
		time.Sleep(time.Minute)
		s.saw(t, time.Now(), 0, "-", "a")
		now := time.Now()
		paths[1].Kill()
		time.Sleep(time.Minute)
		s.saw(t, now, 2*time.Second, "-", "a", "?")
		now = time.Now()
		testkit.Restart(paths...)
		time.Sleep(time.Minute)
		s.saw(t, now, 3*time.Second, "-", "a", "?", "a")
		testkit.Unlock(t, lease)
	})
	watched(t, "tells of no short outage", func(t *testing.T, s *sights, a, _ *redlock.Client, _, paths []*embedded.Server) {
		lease := testkit.Lock(t, a.Mutex("x"))
		time.Sleep(aSecond + 850*time.Millisecond) // the next look is within the outage
		testkit.Kill(paths...)
		time.Sleep(300 * time.Millisecond)
		testkit.Restart(paths...)
		time.Sleep(time.Minute)
		s.saw(t, time.Now(), 0, "-", "a")
		testkit.Unlock(t, lease)
	})
	// The holder has one node of three, as if the others had lost their keys.
	watched(t, "tells of no holder of a minority", func(t *testing.T, s *sights, a, _ *redlock.Client, servers, _ []*embedded.Server) {
		lease := testkit.Lock(t, a.Mutex("x", quorumlock.WithoutRenewal()))
		time.Sleep(aSecond)
		now := time.Now()
		servers[0].Redis.FlushAll()
		servers[1].Redis.FlushAll()
		time.Sleep(5 * time.Second)
		s.saw(t, now, 3*time.Second, "-", "a", "-")
		_ = lease.Unlock(t.Context())
	})
}

func TestWatchEnds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		var noCtx context.Context
		for name, tt := range map[string]struct {
			ctx  context.Context
			name string
			opts []quorumlock.Option
			want error
		}{
			"a nil context": {noCtx, "x", nil, quorumlock.ErrNilContext},
			"a bad name":    {t.Context(), "", nil, quorumlock.ErrMisuse},
			"a bad option":  {t.Context(), "x", []quorumlock.Option{quorumlock.WithTTL(0)}, quorumlock.ErrMisuse},
		} {
			n := 0
			for _, err := range c.Watch(tt.ctx, tt.name, tt.opts...) {
				testkit.Is(t, err, tt.want, "%s", name)
				n++
			}
			testkit.Equal(t, n, 1, "%s: results", name)
		}
		for range c.Watch(t.Context(), "x") {
			break
		}
		n := 0
		for range c.Watch(testkit.Within(t, time.Minute), "x") {
			n++
		}
		testkit.Equal(t, n, 1, "results before the end of the context")
		testkit.Nothing(t, servers)
		time.AfterFunc(time.Minute+500*time.Millisecond, func() { _ = c.Close() })
		began := time.Now()
		var last error
		for _, last = range c.Watch(t.Context(), "x") {
		}
		testkit.Is(t, last, quorumlock.ErrClosed, "the last result")
		testkit.Took(t, began, time.Minute, time.Minute+600*time.Millisecond, "Watch until Close")
	})
}
