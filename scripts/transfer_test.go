package scripts_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

func (s *server) passed(c wire.Call) wire.Transferred {
	s.Helper()
	p, err := s.send(c).Transferred()
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// The holder, a parked owner, and two who attach, as a cell has them.
const (
	parked quorumlock.Owner = "p:7.1"
	carol  quorumlock.Owner = "carol:1.1"
	dave   quorumlock.Owner = "dave:1.1"
)

func TestPassGivesAHoldToOneOwner(t *testing.T) {
	s := start(t)
	s.grant("x", alice+".0", 1, 100)
	at := func(o quorumlock.Owner) quorumlock.Owner { return wire.OfCell(o, 0) }
	step := func(name string, c wire.Call, want wire.Transferred, owner quorumlock.Owner, left time.Duration) {
		t.Helper()
		if got := s.passed(c); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		s.checkHold("x", at(owner), "1")
		s.checkTTL("x", left)
		s.checkToken("x", "100")
	}
	yes, no := wire.Transferred{OK: true, Token: 100}, wire.Transferred{}
	again := wire.Transferred{OK: true, Again: true, Token: 100}
	step("somebody else parks", wire.Park("x", bob, parked, time.Hour, 0), no, alice, ttl)
	step("another cell parks", wire.Park("x", alice, parked, time.Hour, 1), no, alice, ttl)
	step("attach to what is not parked", wire.Attach("x", carol, parked, ttl, 100, 0, 0), wire.Transferred{Other: at(alice)}, alice, ttl)
	step("park", wire.Park("x", alice, parked, time.Hour, 0), yes, parked, time.Hour)
	step("park again", wire.Park("x", alice, parked, time.Minute, 0), again, parked, time.Hour)
	step("another text", wire.Attach("x", carol, "p:8.1", ttl, 100, 0, 0), wire.Transferred{Other: at(parked)}, parked, time.Hour)
	step("a text of before a token", wire.Attach("x", carol, parked, ttl, 99, 0, 0), no, parked, time.Hour)
	step("as another cell", wire.Attach("x", carol, parked, ttl, 100, 0, 1), wire.Transferred{Other: at(parked)}, parked, time.Hour)
	step("as another cell, of before a token", wire.Attach("x", carol, parked, ttl, 99, 0, 1), wire.Transferred{Token: 100, Other: at(parked)}, parked, time.Hour)
	step("attach", wire.Attach("x", carol, parked, ttl, 100, 0, 0), yes, carol, time.Hour)
	step("attach again", wire.Attach("x", carol, parked, ttl, 100, 0, 0), again, carol, time.Hour)
	step("another one", wire.Attach("x", dave, parked, ttl, 100, 0, 0), wire.Transferred{Other: at(carol)}, carol, time.Hour)
	step("another one returns", wire.Return("x", dave, parked, 0, 0), no, carol, time.Hour)
	step("return", wire.Return("x", carol, parked, 0, 0), yes, parked, time.Hour)
	s.data.SetTTL("x", time.Second)
	step("attach late", wire.Attach("x", dave, parked, ttl, 100, 0, 0), yes, dave, ttl)
	if s.done(wire.Renew("x", at(alice), time.Hour)) {
		t.Error("a late renewal of the holder")
	}
	if _, held := s.release("x", at(alice), 1); held {
		t.Error("a late release of the holder")
	}
	s.checkHold("x", at(dave), "1")
	s.release("x", at(dave), 1)
	if got := s.passed(wire.Attach("x", carol, parked, ttl, 100, 0, 0)); got != no {
		t.Errorf("attach to a free lock: %+v", got)
	}
	s.checkHold("x", "", "")
}

// A share, and a semaphore, are not passed on.
func TestPassIsForMutexesOnly(t *testing.T) {
	s := start(t)
	if a, err := s.send(wire.Acquire("x", alice+".0", ttl, 1, 100).Shared()).Acquired(); err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	if got := s.passed(wire.Park("x", alice, parked, time.Hour, 0)); got.OK {
		t.Errorf("%+v of a share", got)
	}
}
