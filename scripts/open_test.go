package scripts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

const place quorumlock.Owner = "billing~5:0"

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
				s.acquired(wire.AcquireInTurn("x", "billing~5:3.1", ttl, 1, first))
			}
			s.checkRelease(wire.Release("x", alice, 1).Open(tt.window, place), 0, true)
			s.checkHold("x", "", "")
			if a := s.acquire("x", bob, 1, 200); a.Granted || !a.Free {
				t.Errorf("a newcomer in the window: %+v", a)
			}
			if a := s.acquired(wire.AcquireInTurn("x", "billing~5:3.2", ttl, 1, first)); a.Granted || !a.Free || a.TTL > 20*time.Millisecond {
				t.Errorf("the first waiter in the window: %+v", a)
			}
			if in := s.inspect("x"); len(in.Queue) != 1 || in.Queue[0].Owner != "billing~5:3" {
				t.Errorf("Inspect in the window: %+v", in)
			}
			if !s.redissonLocks("x") {
				t.Error("Redisson is kept out in the window")
			}
			s.redissonUnlocks("x")
			s.setClock(epoch.Add(25 * time.Millisecond))
			s.checkGranted(s.acquired(wire.AcquireInTurn("x", "billing~5:3.3", ttl, 1, first)))
		})
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

// Each waiter for a fair lock of Redisson's listens to a channel of its own.
func TestWhateverFreesALockTellsThoseNextAtAFairLock(t *testing.T) {
	const mine, next, successor quorumlock.Owner = "billing~5:3.1", "billing~5:3", "billing~5:3/1.0"
	called := wire.Entry{Waiter: next, Ticket: 5, TTL: life}
	heirs := called
	heirs.Successor = heir(1, lent)
	hold, release := wire.Acquire("x", alice, ttl, 1, 100), wire.Release("x", alice, 1)
	for name, tt := range map[string]struct {
		takes, frees wire.Call
		waits        *wire.Entry
	}{
		"a release":                             {hold, release, nil},
		"the release of a share":                {hold.Shared(), release, nil},
		"a release, and a leave":                {wire.Acquire("x", mine, ttl, 1, 100), wire.ReleaseAndLeave("x", mine, next, false), nil},
		"a yield":                               {wire.Acquire("x", mine, ttl, 1, 100), wire.Yield("x", mine, heirs), nil},
		"a leave, of a successor":               {wire.Acquire("x", successor, ttl, 1, 100), wire.Leave("x", next, true).Through(2, 0), nil},
		"a forced release":                      {hold, wire.ForceRelease("x"), nil},
		"a window":                              {hold, release.Open(2*time.Millisecond, place), nil},
		"a release to the last":                 {hold, release.Open(0, place), &heirs},
		"a release for a waiter that is called": {hold, release, &called},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			var heard []channel
			for _, thread := range []string{thread, "second", "third"} {
				_, _ = s.data.Push(wire.FairQueueKey("x"), thread)
				heard = append(heard, s.listenTo(wire.UnlockChannel("x")+":"+thread))
			}
			s.do(tt.takes)
			if tt.waits != nil {
				s.queue(*tt.waits)
			}
			s.do(tt.frees)
			heard[0].check("0") // it may be dead
			heard[1].check("0")
			heard[2].check()
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
