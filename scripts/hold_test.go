package scripts_test

import (
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
			s.data.SetTTL(wire.TokenKey("x"), time.Minute)
			s.checkDone(wire.Raise("x", tt.owner, ttl, tt.own, tt.to), tt.raised)
			s.checkToken(tt.after)
			s.checkTTL("x", ttl-time.Second) // a raise is no renewal
			want := past
			if !tt.raised {
				want = time.Minute
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
	s.setClock(today)
	got := s.grant("x", alice, 1, uint64(today.UnixMicro()))
	s.do(wire.Downgrade("x", alice, time.Second))
	s.share(bob, ttl)
	s.setClock(today.Add(1500 * time.Millisecond))
	s.checkDone(wire.Raise("x", alice, ttl, got.Token, got.Token+50), false)
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
	s.checkDone(wire.Renew("x", alice, ttl), true)
	s.checkTTL(wire.TokenKey("x"), 3*day+kept) // which does not shorten it
	s.checkDone(wire.Raise("x", alice, ttl, ahead, ahead+uint64(day.Microseconds())), true)
	s.checkTTL(wire.TokenKey("x"), 4*day+past)
}

func TestRenewIsForTheHolderOnly(t *testing.T) {
	s := start(t)
	s.grant("x", alice, 1, 100)
	s.grant("x", alice, 2, 100)
	s.data.FastForward(4 * time.Second)
	s.checkDone(wire.Renew("x", bob, time.Hour), false)
	s.checkDone(wire.Renew("x", alice, ttl), true)
	s.checkHold("x", alice, "2")
	s.checkTTL("x", ttl)
	s.checkTTL(wire.TokenKey("x"), kept-4*time.Second)
	s.data.FastForward(ttl)
	s.checkDone(wire.Renew("x", alice, ttl), false)
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
			s.checkRelease(wire.Release("x", tt.owner, tt.hold), tt.left, tt.was)
			s.checkHold("x", alice, tt.after)
			if tt.was && tt.after == "" {
				heard.check(unlocked)
			} else {
				heard.check()
			}
		})
	}
}

func TestInspectTellsTheState(t *testing.T) {
	s := start(t)
	s.checkState("x", quorumlock.State{})
	s.put(wire.TokenKey("x"), "4503599627370496")
	s.grant("x", alice, 1, 100)
	s.grant("x", alice, 2, 0)
	s.data.FastForward(time.Second)
	s.checkState("x", quorumlock.State{Owner: alice, HoldCount: 2, TTL: ttl - time.Second, Token: 1<<52 + 1})
	s.data.SetTTL("x", 0)
	s.checkState("x", quorumlock.State{Owner: alice, HoldCount: 2, Token: 1<<52 + 1})
	s.data.Del("x")
	s.checkState("x", quorumlock.State{Token: 1<<52 + 1})
}
