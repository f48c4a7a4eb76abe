package scripts_test

import (
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

func (s *server) proclaims(want wire.Proclamation, owner quorumlock.Owner, token, version uint64, value string) {
	s.Helper()
	got, err := s.send(wire.Proclaim("x", owner, ttl, token, version, value)).Proclaimed()
	if err != nil || got != want {
		s.Errorf("Proclaim of %q by %s: %d, %v, want %d", value, owner, got, err, want)
	}
}

// keeps has alice keep a value without sending it.
func (s *server) keeps(want wire.Proclamation, version uint64) {
	s.Helper()
	if got, err := s.send(wire.KeepProclaimed("x", alice, ttl, 100, version)).Proclaimed(); err != nil || got != want {
		s.Errorf("Keep of version %d: %d, %v, want %d", version, got, err, want)
	}
}

// led checks who leads, and with which value; nobody does if the value is empty.
func (s *server) led(holder quorumlock.Owner, value string) wire.Standing {
	s.Helper()
	got, err := s.send(wire.Leader("x")).Led()
	if err != nil || got.Holder != holder || got.Value != value || got.Leads != (value != "") {
		s.Errorf("Leader: %+v, %v, want %q of %q", got, err, value, holder)
	}
	return got
}

func TestOnlyTheHolderProclaims(t *testing.T) {
	s := start(t)
	s.proclaims(wire.NotHeld, alice, 100, 1, "early")
	s.led("", "")
	a := s.grant("x", alice, 1, 100)
	s.led(alice, "")
	s.proclaims(wire.Proclaimed, alice, a.Token, 1, "of alice")
	s.proclaims(wire.NotHeld, bob, a.Token+1, 1, "of bob")
	if got := s.led(alice, "of alice"); got.Token != a.Token || got.Version != 1 || got.TTL != ttl {
		t.Errorf("Leader: %+v", got)
	}
	s.release("x", alice, 1)
	s.led("", "") // though the key is there
	s.checkTTL(wire.LeaderKey("x"), ttl)
	b := s.grant("x", bob, 1, 0)
	s.led(bob, "")
	s.proclaims(wire.NotHeld, alice, a.Token, 2, "late")
	s.proclaims(wire.Proclaimed, bob, b.Token, 1, "of bob")
	s.led(bob, "of bob")
}

func TestAHigherTokenIsNotOverwritten(t *testing.T) {
	s := start(t)
	s.grant("x", alice, 1, 200)
	s.proclaims(wire.Proclaimed, alice, 200, 1, "high")
	s.release("x", alice, 1)
	s.grant("x", bob, 1, 100)
	s.proclaims(wire.Outranked, bob, 199, 7, "low")
	s.led(bob, "")
	s.data.FastForward(ttl)
	s.grant("x", bob, 1, 0)
	s.proclaims(wire.Proclaimed, bob, 199, 7, "low") // it ended with its TTL
	s.led(bob, "low")
}

func TestALaterVersionIsNotOverwritten(t *testing.T) {
	s := start(t)
	s.grant("x", alice, 1, 100)
	s.proclaims(wire.Proclaimed, alice, 100, 2, "second")
	s.proclaims(wire.NotHeld, alice, 100, 1, "first")
	s.led(alice, "second")
	s.proclaims(wire.Proclaimed, alice, 100, 2, "twice") // the same call again
	s.led(alice, "second")
	s.proclaims(wire.Proclaimed, alice, 100, 3, "third")
	s.led(alice, "third")
}

func TestAValueIsKeptWithoutBeingSent(t *testing.T) {
	s := start(t)
	s.keeps(wire.NotHeld, 1)
	s.grant("x", alice, 1, 100)
	s.keeps(wire.NotThere, 1)
	s.proclaims(wire.Proclaimed, alice, 100, 1, "value")
	s.data.FastForward(ttl / 2)
	s.checkTTL(wire.LeaderKey("x"), ttl/2)
	s.keeps(wire.Proclaimed, 1)
	s.checkTTL(wire.LeaderKey("x"), ttl)
	s.keeps(wire.NotThere, 2)
	s.led(alice, "value")
}

// All who follow a leader are told of each change, once.
func TestOnlyItsOwnerWithdrawsAValueAndAllAreTold(t *testing.T) {
	s := start(t)
	heard := s.listenTo(wire.LeaderKey("x"))
	s.grant("x", alice, 1, 100)
	s.proclaims(wire.Proclaimed, alice, 100, 1, "a")
	s.proclaims(wire.Proclaimed, alice, 100, 1, "a") // nothing new
	s.proclaims(wire.Proclaimed, alice, 100, 2, "b")
	s.checkDone(wire.Withdraw("x", bob), false)
	s.led(alice, "b")
	heard.check("100 1", "100 2")
	s.checkDone(wire.Withdraw("x", alice), true)
	s.checkDone(wire.Withdraw("x", alice), false)
	s.led(alice, "")
	heard.check("")
}

func TestAKeyThatIsNoValueIsNamedAndNotTouched(t *testing.T) {
	s := start(t)
	s.grant("x", alice, 1, 100)
	key := wire.LeaderKey("x")
	proclaim := wire.Proclaim("x", alice, ttl, 100, 1, "v")
	s.put(key, "mine")
	s.refuses(proclaim, quorumlock.ErrNotALock, key)
	s.refuses(wire.KeepProclaimed("x", alice, ttl, 100, 1), quorumlock.ErrNotALock, key)
	s.refuses(wire.Leader("x"), quorumlock.ErrNotALock, key)
	s.refuses(wire.Withdraw("x", alice), quorumlock.ErrNotALock, "")
	s.data.Del(key)
	s.release("x", alice, 1)
	s.put("x", "mine")
	s.refuses(proclaim, quorumlock.ErrNotALock, "")
	s.refuses(wire.Leader("x"), quorumlock.ErrNotALock, "")
}
