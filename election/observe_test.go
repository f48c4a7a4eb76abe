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
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
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
	c.watching = append(c.watching, s)
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
	if late := s.at[len(s.at)-1].Sub(since); late > limit || !slices.IsSorted(s.tops) {
		t.Errorf("%q was told after %v, want %v; tokens %d", want[len(want)-1], late, limit, s.tops)
	}
}

func TestObserve(t *testing.T) {
	elect(t, "tells each change at once", 3, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		o := c[2].watches(t)
		o.saw(t, time.Now(), 0, "-")
		now := time.Now()
		first := c[0].leads(t)
		o.saw(t, now, time.Millisecond, "-", "0")
		time.Sleep(5 * time.Minute)
		now = time.Now()
		testkit.Must(t, first.Proclaim(t.Context(), "0b"), "Proclaim")
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
	})
	// There is no message for a death.
	elect(t, "tells of a dead leader when its keys expire", 2, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		o := c[1].watches(t)
		term := c[0].leads(t)
		time.Sleep(5 * time.Second)
		testkit.Kill(c[0].paths...)
		time.Sleep(time.Until(term.ValidUntil()) + 102*time.Millisecond) // the drift
		for servers[0].Redis.Exists("job") {
			time.Sleep(time.Millisecond)
		}
		now := time.Now()
		time.Sleep(100 * time.Millisecond)
		// the last renewal was sent to one node after the other
		o.saw(t, now, 3*time.Millisecond+quorumlock.DefaultTTL/1000, "-", "0", "-")
		time.Sleep(quorumlock.DefaultTTL)
	})
	elect(t, "finds out without messages", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		testkit.Each(c[1].paths, func(s *embedded.Server) { s.LoseMessages(true) })
		o := c[1].watches(t)
		time.Sleep(time.Minute)
		now := time.Now()
		term := c[0].leads(t)
		time.Sleep(quorumlock.DefaultTTL)
		o.saw(t, now, quorumlock.DefaultTTL, "-", "0")
		now = time.Now()
		testkit.OK(t, c[0].client.ForceUnlock(t.Context(), "job"), "ForceUnlock")
		time.Sleep(quorumlock.DefaultTTL)
		o.saw(t, now, quorumlock.DefaultTTL, "-", "0", "-")
		_ = term.Resign(t.Context())
	})
	elect(t, "tells an outage once though a node comes and goes", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		c[0].leads(t)
		o := c[1].watches(t)
		testkit.Kill(c[1].paths[:3]...)
		for range 5 {
			time.Sleep(20 * time.Second)
			testkit.Kill(c[1].paths[3:]...)
			time.Sleep(20 * time.Second)
			testkit.Restart(c[1].paths[3:]...)
		}
		o.saw(t, time.Now(), 0, "0", "?")
		testkit.Restart(c[1].paths[:3]...)
		time.Sleep(quorumlock.DefaultTTL)
		o.saw(t, time.Now(), quorumlock.DefaultTTL, "0", "?", "0")
	})
	elect(t, "skips past states for a slow loop, and never the latest", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		term := c[0].leads(t)
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		ended := testkit.Go(func() error {
			for l := range c[1].Observe(ctx) {
				told = append(told, l.Value)
				time.Sleep(time.Second)
			}
			return nil
		})
		for i := range 35 {
			time.Sleep(100 * time.Millisecond)
			testkit.Must(t, term.Proclaim(t.Context(), fmt.Sprint(i)), "Proclaim")
		}
		time.Sleep(3 * time.Second)
		cancel()
		<-ended
		if len(told) < 4 || len(told) > 6 || told[0] != "0" || told[len(told)-1] != "34" {
			t.Errorf("told %q, want a few, and the last", told)
		}
	})
	elect(t, "ends with its loop, its context or its client", 2, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		for range c[0].Observe(t.Context()) {
			break
		}
		n := 0
		for range c[0].Observe(testkit.Within(t, time.Minute)) {
			n++
		}
		testkit.Equal(t, n, 1, "results before the end of the context")
		testkit.Nothing(t, servers)
		time.AfterFunc(time.Minute, func() { _ = c[0].client.Close() })
		var last error
		for _, last = range c[0].Observe(t.Context()) {
		}
		testkit.Is(t, last, quorumlock.ErrClosed, "the last of Observe")
	})
	elect(t, "ends with its client at once though it waits for a message", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		o := c[0].watches(t)
		time.Sleep(time.Second)
		now := time.Now()
		testkit.OK(t, c[0].client.Close(), "Close")
		time.Sleep(time.Minute)
		o.saw(t, now, time.Second, "-", quorumlock.ErrClosed.Error())
	})
	elect(t, "tells nothing of a value that nodes lose and the term brings back", 2, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		o := c[1].watches(t)
		c[0].leads(t)
		time.Sleep(9900 * time.Millisecond) // just before a round
		for _, s := range servers[:3] {
			s.Redis.Del(wire.LeaderKey("job"))
		}
		time.Sleep(time.Minute)
		o.saw(t, time.Now(), 0, "-", "0")
	})
	elect(t, "reads again after a message that came while it read", 2, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		testkit.Kill(c[1].paths[3:]...)
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
		testkit.Must(t, term.Proclaim(t.Context(), "0b"), "Proclaim")
		time.Sleep(time.Millisecond)
		slow.Resume()
		time.Sleep(10 * time.Millisecond)
		o.saw(t, now, 5*time.Millisecond, "-", "0", "0b")
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
		elect(t, name, 3, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
			o := c[2].watches(t)
			term := c[0].leads(t)
			o.saw(t, time.Now(), 0, "-", "0")
			testkit.Each(c[2].paths, outage.begin)
			time.Sleep(outage.lasts)
			o.saw(t, time.Now(), 0, "-", "0", "?")
			resign(t, term)
			second := c[1].leads(t)
			testkit.Each(c[2].paths, outage.end)
			now := time.Now()
			time.Sleep(3 * time.Second)
			o.saw(t, now, 2*time.Second, "-", "0", "?", "1")
			resign(t, second)
			time.Sleep(time.Second)
			o.saw(t, now, 4*time.Second, "-", "0", "?", "1", "-")
		}, quorumlock.WithTTL(time.Second))
	}
}

// A node that is behind causes no older value, and hides no outage.
func TestAnOutageIsToldWithoutAGuessThatIsOlderThanWhatWasTold(t *testing.T) {
	for _, change := range []string{"value", "term"} {
		elect(t, change, 3, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
			term := c[0].leads(t)
			c[0].paths[4].Kill()
			if change == "value" {
				testkit.Must(t, term.Proclaim(t.Context(), "1"), "Proclaim")
			} else {
				resign(t, term)
				c[1].leads(t)
			}
			o := c[2].watches(t)
			testkit.Kill(c[2].paths[:4]...)
			now := time.Now()
			servers[4].Redis.Publish(wire.LeaderKey("job"), "noise") // it is behind
			time.Sleep(time.Second)
			o.saw(t, now, time.Second, "1", "?")
			if got := o.leaders; got[1].Owner != "" {
				t.Errorf("told %v, older than %v", got[1], got[0])
			}
			c[0].paths[4].Restart(true)
			if change == "value" {
				resign(t, term)
			}
			time.Sleep(quorumlock.DefaultTTL)
		})
	}
}

// Reads and proclamations count as round trips, for metrics and for the log.
func TestAnObserverLearnsOfTheRoundTripsOfAnElection(t *testing.T) {
	var events testkit.Events
	elect(t, "five nodes", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		asked := 0
		after := func(what string, asks, downs int) {
			t.Helper()
			synctest.Wait()
			testkit.Equal(t, events.Of(quorumlock.EventNodeAsked)-asked, asks, "%s: nodes were asked", what)
			testkit.Equal(t, events.Of(quorumlock.EventNodeDown), downs, "%s: nodes went down so far", what)
			asked = events.Of(quorumlock.EventNodeAsked)
		}
		c[0].nobody(t)
		after("a read", 5, 0)
		c[0].paths[4].Kill()
		c[0].nobody(t)
		time.Sleep(time.Second)
		after("a read without a node", 5, 1)
		c[0].paths[4].Restart(true)
		term := c[0].leads(t)
		time.Sleep(time.Second)
		asked = events.Of(quorumlock.EventNodeAsked)
		testkit.Must(t, term.Proclaim(t.Context(), "1"), "Proclaim")
		after("a proclamation", 5, 1)
	}, quorumlock.WithObserver(&events))
}
