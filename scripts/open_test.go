package scripts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

const place quorumlock.Owner = "billing~5:0"

func (s *server) releaseOpen(name string, owner quorumlock.Owner, window time.Duration) bool {
	s.Helper()
	_, held, err := s.send(wire.Release(name, owner, 1).Open(window, place)).Released()
	if err != nil {
		s.Fatal(err)
	}
	return held
}

// During the window nobody of ours gets the lock, whether queued or not. A client of Redisson's
// does. It is so even if nobody has met Redisson's clients yet, for which the window is negative.
func TestAWindowIsForStrangersOnly(t *testing.T) {
	for name, tt := range map[string]struct {
		queued bool
		window time.Duration
	}{
		"with a queue": {true, 20 * time.Millisecond}, "without a queue": {false, 20 * time.Millisecond}, "the first": {false, -20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.grant("x", alice, 1, 100)
			first := wire.Entry{Waiter: "billing~5:3", Ticket: 5, TTL: 2 * time.Second}
			if tt.queued {
				s.send(wire.AcquireInTurn("x", "billing~5:3.1", ttl, 1, first))
			}
			if !s.releaseOpen("x", alice, tt.window) {
				t.Fatal("it was not released")
			}
			s.checkHold("x", "", "")
			if a := s.acquire("x", bob, 1, 200); a.Granted || !a.Free {
				t.Errorf("a newcomer in the window: %+v", a)
			}
			a, err := s.send(wire.AcquireInTurn("x", "billing~5:3.2", ttl, 1, first)).Acquired()
			if err != nil || a.Granted || !a.Free || a.TTL > 20*time.Millisecond {
				t.Errorf("the first waiter in the window: %+v, %v", a, err)
			}
			in, err := s.send(wire.Inspect("x", 10)).Inspected()
			if err != nil || len(in.Queue) != 1 || in.Queue[0].Owner != "billing~5:3" {
				t.Errorf("Inspect in the window: %+v, %v", in, err)
			}
			if !s.redissonLocks("x") {
				t.Error("Redisson is kept out in the window")
			}
			s.redissonUnlocks("x")
			s.data.SetTime(epoch.Add(25 * time.Millisecond))
			if a, err = s.send(wire.AcquireInTurn("x", "billing~5:3.3", ttl, 1, first)).Acquired(); err != nil || !a.Granted {
				t.Errorf("the first waiter after the window: %+v, %v", a, err)
			}
		})
	}
}

// The token counter outlives days in which only Java is at work, once Java has been met. In a fleet
// of Go alone it is kept for about a day, as ever.
func TestOnlyWhereRedissonWasMetTheTokenIsKeptForYears(t *testing.T) {
	const day = 24 * time.Hour
	for window, years := range map[time.Duration]bool{0: true, 2 * time.Millisecond: true, -2 * time.Millisecond: false} {
		s := start(t)
		s.grant("x", alice, 1, 100)
		if !s.releaseOpen("x", alice, window) {
			t.Fatal("it was not released")
		}
		if kept := s.data.TTL(wire.TokenKey("x")); kept > 2*day != years {
			t.Errorf("after a release with a window of %v the token is kept for %v", window, kept)
		}
	}
}

// What Redisson's clients hear is a number: 0 if they should ask, and one that means nothing to
// them otherwise.
func TestTheMessagesOfAReleaseAreNumbers(t *testing.T) {
	for message, want := range map[string]struct {
		theirs bool
		window time.Duration
	}{
		"0": {true, 0}, "1": {true, 0}, "": {true, 0}, "x": {true, 0},
		"00": {false, 0}, "2": {false, 0}, "000" + strings.Repeat("0", 7): {false, 7 * time.Millisecond},
	} {
		if theirs, window := wire.IsTheirs(message); theirs != want.theirs || window != want.window {
			t.Errorf("IsTheirs(%q) = %v, %v", message, theirs, window)
		}
	}
}

// Redisson's clients sleep while a lock goes from one of ours to the next. Whoever is the last may
// be dead: then nobody else would wake them.
func TestAReleaseForTheLastWaiterWakesRedissonToo(t *testing.T) {
	successor := wire.Successor{Attempt: 1, TTL: time.Second, Secret: "s"}
	for name, tt := range map[string]struct {
		waiters   int
		successor wire.Successor
		want      string
	}{
		"it is handed over":             {1, successor, "000"},
		"it is handed over, and queued": {2, successor, "2"},
		"it is called":                  {1, wire.Successor{}, "2"},
		"it is called, and queued":      {2, wire.Successor{}, "2"},
		"nobody waits":                  {0, wire.Successor{}, "000"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			heard := s.listen("x")
			s.grant("x", alice, 1, 100)
			for i := range tt.waiters {
				waiter := quorumlock.Owner(fmt.Sprintf("billing~5:%d", 3+i))
				s.send(wire.AcquireInTurn("x", waiter+".1", ttl, 1, wire.Entry{Waiter: waiter, Ticket: int64(5 + i), TTL: 2 * time.Second, Successor: tt.successor}))
			}
			if !s.releaseOpen("x", alice, 0) {
				t.Fatal("it was not released")
			}
			s.data.Publish(heard.name, "end")
			heard.check(tt.want)
		})
	}
}

// Whoever waits for a fair lock of Redisson's listens to a channel of its own.
func TestWhateverFreesALockTellsThoseNextAtAFairLock(t *testing.T) {
	entry := wire.Entry{Waiter: "billing~5:3", Ticket: 5, TTL: 2 * time.Second, Successor: wire.Successor{Attempt: 1, TTL: time.Second, Secret: "s"}}
	for name, frees := range map[string]func(s *server){
		"a release":              func(s *server) { s.grant("x", alice, 1, 100); s.release("x", alice, 1) },
		"the release of a share": func(s *server) { s.send(wire.Acquire("x", alice, ttl, 1, 100).Shared()); s.release("x", alice, 1) },
		"a release, and a leave": func(s *server) {
			s.grant("x", "billing~5:3.1", 1, 100)
			s.send(wire.ReleaseAndLeave("x", "billing~5:3.1", "billing~5:3", false))
		},
		"a yield": func(s *server) {
			s.grant("x", "billing~5:3.1", 1, 100)
			s.send(wire.Yield("x", "billing~5:3.1", entry))
		},
		"a leave, of a successor": func(s *server) {
			s.grant("x", "billing~5:3/1.0", 1, 100)
			s.send(wire.Leave("x", "billing~5:3", true))
		},
		"a forced release": func(s *server) { s.grant("x", alice, 1, 100); s.done(wire.ForceRelease("x")) },
		"a window":         func(s *server) { s.grant("x", alice, 1, 100); s.releaseOpen("x", alice, 2*time.Millisecond) },
		"a release to the last": func(s *server) {
			s.grant("x", alice, 1, 100)
			s.send(wire.AcquireInTurn("x", "billing~5:3.1", ttl, 1, entry))
			s.releaseOpen("x", alice, 0)
		},
		"a release for a waiter that is called": func(s *server) {
			entry := entry
			entry.Successor = wire.Successor{}
			s.grant("x", alice, 1, 100)
			s.send(wire.AcquireInTurn("x", "billing~5:3.1", ttl, 1, entry))
			s.release("x", alice, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			if _, err := s.data.Push(wire.FairQueueKey("x"), thread, "second", "third"); err != nil {
				t.Fatal(err)
			}
			var heard []channel
			for _, thread := range []string{thread, "second", "third"} { // the first may be dead
				heard = append(heard, s.listenTo(wire.UnlockChannel("x")+":"+thread))
			}
			frees(s)
			for i, h := range heard {
				s.data.Publish(h.name, "end")
				h.check([]string{"0", "0", "end"}[i])
			}
		})
	}
}

// Other calls are not opened: those of semaphores and shares, yields, and releases of one entry of
// several.
func TestOnlyAWholeHoldIsReleasedOpen(t *testing.T) {
	e := wire.Entry{Waiter: "a~1:1", TTL: time.Second}
	for name, c := range map[string]wire.Call{
		"an entry": wire.Release("x", alice, 2), "a yield": wire.Yield("x", alice, e), "a leave": wire.Leave("x", "a~1:1", true),
		"a semaphore": wire.Release("x", alice, 1).OfSemaphore(2, 0),
	} {
		if opened := c.Open(0, place); opened.Script != c.Script {
			t.Errorf("%s was opened", name)
		}
	}
}
