package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// seen has the results of an iteration.
type seen struct {
	mu       sync.Mutex
	all      []string // the value of the leader, or a word for the error
	at       []time.Time
	leaders  []election.Leader
	tops     []uint64 // tokens of the sure leaders
	versions []uint64 // of their values
	end      func()
}

// watches observes until end.
func (c *candidate) watches(t *testing.T) *seen {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &seen{}
	var running sync.WaitGroup
	running.Go(func() {
		for l, err := range c.Observe(ctx) {
			s.add(l, err)
		}
	})
	s.end = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(s.end)
	synctest.Wait()
	return s
}

func (s *seen) add(l election.Leader, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := l.Value
	switch _, few := errors.AsType[*quorumlock.QuorumError](err); {
	case few:
		what = "?"
	case errors.Is(err, election.ErrNoLeader):
		what = "-"
	case err != nil:
		what = err.Error()
	case !l.Sure:
		what += "?"
	default:
		s.tops, s.versions = append(s.tops, l.Token), append(s.versions, l.Version)
	}
	s.all, s.at, s.leaders = append(s.all, what), append(s.at, time.Now()), append(s.leaders, l)
}

// saw checks the results so far, and that the last one came within limit of since.
func (s *seen) saw(t *testing.T, since time.Time, limit time.Duration, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.all, want) {
		t.Fatalf("told %q, want %q", s.all, want)
	}
	if late := s.at[len(s.at)-1].Sub(since); late > limit {
		t.Errorf("%q was told after %v, want %v", want[len(want)-1], late, limit)
	}
	if !slices.IsSorted(s.tops) {
		t.Errorf("tokens %d", s.tops)
	}
}

func TestObserveTellsEachChangeAtOnce(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 3)
		o := c[2].watches(t)
		o.saw(t, time.Now(), 0, "-")
		now := time.Now()
		first := c[0].leads(t)
		o.saw(t, now, time.Millisecond, "-", "0")
		time.Sleep(5 * time.Minute)
		now = time.Now()
		if err := first.Proclaim(t.Context(), "0b"); err != nil {
			t.Fatal(err)
		}
		o.saw(t, now, time.Millisecond, "-", "0", "0b")
		time.Sleep(5 * time.Minute)
		next := c[1].queues(t)
		time.Sleep(time.Second)
		now = time.Now()
		resign(t, first)
		second := <-next
		o.saw(t, now, 20*time.Millisecond, "-", "0", "0b", "1")
		time.Sleep(time.Minute)
		now = time.Now()
		resign(t, second)
		time.Sleep(50 * time.Millisecond)
		// looks after 5, 10 and 20 ms, until all nodes agree
		o.saw(t, now, 50*time.Millisecond, "-", "0", "0b", "1", "-")
		o.end()
		locktest.Nothing(t, servers)
	})
}

// There is no message for a death: the observer looks when the keys expire.
func TestObserveTellsOfADeadLeaderWhenItsKeysExpire(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		o := c[1].watches(t)
		term := c[0].leads(t)
		time.Sleep(5 * time.Second)
		locktest.Each(c[0].paths, (*embedded.Server).Kill)
		time.Sleep(time.Until(term.ValidUntil()))
		time.Sleep(102 * time.Millisecond) // the drift
		for servers[0].Redis.Exists("job") {
			time.Sleep(time.Millisecond)
		}
		now := time.Now()
		time.Sleep(100 * time.Millisecond)
		// the last renewal was sent to one node after the other
		o.saw(t, now, 3*time.Millisecond+quorumlock.DefaultTTL/1000, "-", "0", "-")
	})
}

// Observe finds the change without any message.
func TestObserveFindsOutWithoutMessages(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 2)
		locktest.Each(c[1].paths, func(s *embedded.Server) { s.LoseMessages(true) })
		o := c[1].watches(t)
		time.Sleep(time.Minute)
		now := time.Now()
		term := c[0].leads(t)
		time.Sleep(quorumlock.DefaultTTL)
		o.saw(t, now, quorumlock.DefaultTTL, "-", "0")
		now = time.Now()
		if err := c[0].client.Mutex("job").ForceUnlock(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(quorumlock.DefaultTTL)
		o.saw(t, now, quorumlock.DefaultTTL, "-", "0", "-")
		_ = term.Resign(t.Context())
	})
}

func TestObserveRidesOutAnOutage(t *testing.T) {
	for name, outage := range map[string]struct {
		begin, end func(*embedded.Server)
		lasts      time.Duration // shorter than go-redis's second write, which holds a mutex
	}{
		"down":   {(*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(true) }, 5 * time.Minute},
		"frozen": {(*embedded.Server).Stall, (*embedded.Server).Resume, 2 * time.Second},
		"cut":    {(*embedded.Server).Lose, (*embedded.Server).Resume, 2 * time.Second},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := start(t, 3, quorumlock.WithTTL(time.Second))
			o := c[2].watches(t)
			term := c[0].leads(t)
			o.saw(t, time.Now(), 0, "-", "0")
			locktest.Each(c[2].paths, outage.begin)
			time.Sleep(outage.lasts)
			o.saw(t, time.Now(), 0, "-", "0", "?")
			resign(t, term)
			second := c[1].leads(t)
			locktest.Each(c[2].paths, outage.end)
			now := time.Now()
			time.Sleep(3 * time.Second)
			o.saw(t, now, 2*time.Second, "-", "0", "?", "1")
			resign(t, second)
			time.Sleep(time.Second)
			o.saw(t, now, 4*time.Second, "-", "0", "?", "1", "-")
			o.end()
			locktest.Nothing(t, servers)
		})
	}
}

// A node that fails and returns meanwhile is part of the same outage.
func TestAnOutageIsToldOnceThoughANodeComesAndGoes(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 2)
		term := c[0].leads(t)
		o := c[1].watches(t)
		locktest.Each(c[1].paths[:3], (*embedded.Server).Kill)
		for range 5 {
			time.Sleep(20 * time.Second)
			locktest.Each(c[1].paths[3:], (*embedded.Server).Kill)
			time.Sleep(20 * time.Second)
			locktest.Each(c[1].paths[3:], func(s *embedded.Server) { s.Restart(true) })
		}
		o.saw(t, time.Now(), 0, "0", "?")
		locktest.Each(c[1].paths[:3], func(s *embedded.Server) { s.Restart(true) })
		time.Sleep(quorumlock.DefaultTTL)
		o.saw(t, time.Now(), quorumlock.DefaultTTL, "0", "?", "0")
		o.end()
		resign(t, term)
	})
}

// A slow loop skips past states, and never the latest.
func TestObserveSkipsWhatHasPassedAndNeverTheLatest(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 2)
		term := c[0].leads(t)
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			for l := range c[1].Observe(ctx) {
				told = append(told, l.Value)
				time.Sleep(time.Second)
			}
		})
		for i := range 35 {
			time.Sleep(100 * time.Millisecond)
			if err := term.Proclaim(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		cancel()
		running.Wait()
		if len(told) < 4 || len(told) > 6 || told[0] != "0" || told[len(told)-1] != "34" {
			t.Errorf("told %q, want a few, and the last", told)
		}
		resign(t, term)
	})
}

func TestObserveEndsWithItsLoopItsContextOrItsClient(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		for range c[0].Observe(t.Context()) {
			break
		}
		n := 0
		for range c[0].Observe(within(t, time.Minute)) {
			n++
		}
		if n != 1 {
			t.Errorf("told %d times, want once", n)
		}
		locktest.Nothing(t, servers)
		time.AfterFunc(time.Minute, func() { _ = c[0].client.Close() })
		var last error
		for _, last = range c[0].Observe(t.Context()) {
		}
		if !errors.Is(last, quorumlock.ErrClosed) {
			t.Errorf("Observe ended with %v, want ErrClosed", last)
		}
	})
}

// While nodes lose the value, and the term restores it, there is no change of leader.
func TestObserveTellsNothingOfAValueThatIsBroughtBack(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		o := c[1].watches(t)
		term := c[0].leads(t)
		time.Sleep(9900 * time.Millisecond) // just before a round
		for _, s := range servers[:3] {
			s.Redis.Del(wire.LeaderKey("job"))
		}
		time.Sleep(time.Minute)
		o.saw(t, time.Now(), 0, "-", "0")
		resign(t, term)
	})
}

// A message during a read may be too late for that read. It causes another one.
func TestObserveReadsAgainAfterAMessageThatCameWhileItRead(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		locktest.Each(c[1].paths[3:], (*embedded.Server).Kill)
		slow := c[1].paths[2]
		slow.LoseMessages(true)
		o := c[1].watches(t)
		term := c[0].leads(t)
		time.Sleep(time.Second) // the messages of two nodes may come before the third has the value
		o.saw(t, time.Now(), 0, "-", "0")
		slow.Mute()
		servers[0].Redis.Publish(wire.LeaderKey("job"), "noise")
		time.Sleep(time.Millisecond) // the nodes have answered, with one reply in transit
		now := time.Now()
		if err := term.Proclaim(t.Context(), "0b"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		slow.Resume()
		time.Sleep(10 * time.Millisecond)
		o.saw(t, now, 5*time.Millisecond, "-", "0", "0b")
		resign(t, term)
	})
}
