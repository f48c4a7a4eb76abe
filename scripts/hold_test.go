package scripts_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

func TestRaiseNeedsTheHoldAndItsToken(t *testing.T) {
	for _, tt := range []struct {
		name    string
		owner   quorumlock.Owner
		own, to uint64
		raised  bool
		after   string
	}{
		{"the holder", alice, 100, 250, true, "250"},
		{"digits are kept", alice, 100, 1<<52 + 3, true, "4503599627370499"},
		{"somebody else", bob, 100, 250, false, "100"},
		{"another token counted since", alice, 99, 250, false, "100"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			s.grant("x", alice, 1, 100)
			s.data.FastForward(time.Second)
			s.data.SetTTL(wire.TokenKey("x"), time.Hour)
			if got := s.done(wire.Raise("x", tt.owner, ttl, tt.own, tt.to)); got != tt.raised {
				t.Errorf("raised %v, want %v", got, tt.raised)
			}
			s.checkToken(tt.after)
			s.checkTTL("x", ttl-time.Second) // a raise is no renewal
			want := ttl + day + 2*time.Hour
			if !tt.raised {
				want = time.Hour
			}
			if tt.to < 1<<50 { // a token that is ahead of the clock is kept longer
				s.checkTTL(wire.TokenKey("x"), want)
			}
		})
	}
}

// A hold that was downgraded is over before its key, which another share keeps.
func TestARaiseIsTooLateForAShareThatIsOver(t *testing.T) {
	s := start(t)
	s.data.SetTime(time.UnixMilli(1_800_000_000_000))
	got := s.grant("x", alice, 1, 1_800_000_000_000_000)
	s.done(wire.Downgrade("x", alice, time.Second))
	if a, err := s.send(wire.Acquire("x", bob, ttl, 1, 1).Shared()).Acquired(); err != nil || !a.Granted {
		t.Fatalf("bob's share: %+v, %v", a, err)
	}
	s.data.SetTime(time.UnixMilli(1_800_000_001_500))
	if s.done(wire.Raise("x", alice, ttl, got.Token, got.Token+50)) {
		t.Error("raised for an owner whose share is over")
	}
}

// A token that is days ahead may come from another node, whose clock is. It must not be forgotten
// before the clocks have come by it.
func TestATokenAheadOfTheClockIsKeptUntilTheClockIsPastIt(t *testing.T) {
	s := start(t)
	s.setClock(today)
	ahead := uint64(today.Add(3 * day).UnixMicro())
	if a := s.acquired(wire.Restore("x", alice, ttl, ahead)); a.Token != ahead {
		t.Fatalf("answer %+v, want the token of the hold", a)
	}
	s.checkTTL(wire.TokenKey("x"), 3*day+kept)
	if !s.done(wire.Renew("x", alice, ttl)) {
		t.Error("not renewed")
	}
	s.checkTTL(wire.TokenKey("x"), 3*day+kept) // which does not shorten it
	if !s.done(wire.Raise("x", alice, ttl, ahead, ahead+uint64(day.Microseconds()))) {
		t.Error("not raised")
	}
	s.checkTTL(wire.TokenKey("x"), 4*day+day+2*time.Hour+ttl)
}

func TestRenewIsForTheHolderOnly(t *testing.T) {
	s := start(t)
	s.grant("x", alice, 1, 100)
	s.grant("x", alice, 2, 100)
	s.data.FastForward(4 * time.Second)
	if s.done(wire.Renew("x", bob, time.Hour)) || !s.done(wire.Renew("x", alice, ttl)) {
		t.Error("renewed for somebody else, or not for the holder")
	}
	s.checkHold("x", alice, "2")
	s.checkTTL("x", ttl)
	s.checkTTL(wire.TokenKey("x"), kept-4*time.Second)
	s.data.FastForward(ttl)
	if s.done(wire.Renew("x", alice, ttl)) {
		t.Error("renewed after it expired")
	}
	s.checkHold("x", alice, "")
}

func TestReleaseIsForAnEntryThatIsHeld(t *testing.T) {
	for _, tt := range []struct {
		name  string
		owner quorumlock.Owner
		held  int // entries of alice
		hold  int
		left  int
		was   bool
		after string
	}{
		{"somebody else", bob, 1, 1, 0, false, "1"},
		{"a free lock", alice, 0, 1, 0, false, ""},
		{"an entry not made yet", alice, 1, 2, 0, false, "1"},
		{"an entry two beyond", alice, 1, 3, 0, false, "1"},
		{"the third of three", alice, 3, 3, 2, true, "2"},
		{"the last", alice, 1, 1, 0, true, ""},
		{"the first of three, and with it all", alice, 3, 1, 0, true, ""},
		{"the second of three, and with it the third", alice, 3, 2, 1, true, "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			for hold := 1; hold <= tt.held; hold++ {
				s.grant("x", alice, hold, 100)
			}
			heard := s.listen("x")
			if left, held := s.release("x", tt.owner, tt.hold); left != tt.left || held != tt.was {
				t.Errorf("%d left, held %v, want %d, %v", left, held, tt.left, tt.was)
			}
			s.checkHold("x", alice, tt.after)
			if tt.was && tt.after == "" {
				heard.check(unlocked)
			} else {
				heard.check()
			}
		})
	}
}

func TestForceReleaseFreesWhoeverHolds(t *testing.T) {
	s := start(t)
	heard := s.listen("x")
	if s.done(wire.ForceRelease("x")) {
		t.Error("a free lock was released")
	}
	heard.check()
	s.grant("x", alice, 1, 100)
	s.grant("x", alice, 2, 100)
	if !s.done(wire.ForceRelease("x")) {
		t.Error("not released")
	}
	s.checkHold("x", alice, "")
	heard.check(unlocked)
	if a := s.grant("x", bob, 1, 0); a.Token != 101 {
		t.Errorf("the token after a forced release is %d, want 101", a.Token)
	}
}

func TestInspectTellsTheState(t *testing.T) {
	s := start(t)
	check := func(want quorumlock.State) {
		t.Helper()
		if got := s.inspect("x"); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	check(quorumlock.State{})
	s.put(wire.TokenKey("x"), "4503599627370496")
	s.grant("x", alice, 1, 100)
	s.grant("x", alice, 2, 0)
	s.data.FastForward(time.Second)
	check(quorumlock.State{Owner: alice, HoldCount: 2, TTL: ttl - time.Second, Token: 1<<52 + 1})
	s.data.SetTTL("x", 0)
	check(quorumlock.State{Owner: alice, HoldCount: 2, Token: 1<<52 + 1})
	s.data.Del("x")
	check(quorumlock.State{Token: 1<<52 + 1})
}
