package scripts_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

func (s *server) proclaims(want wire.Proclamation, owner quorumlock.Owner, token, version uint64, value string) {
	s.Helper()
	got, err := s.send(wire.Proclaim("x", owner, ttl, token, version, value)).Proclaimed()
	if err != nil || got != want {
		s.Errorf("Proclaim of %q by %s: %d, %v, want %d", value, owner, got, err, want)
	}
}

// led checks who leads, and with which value; nobody does if the value is empty.
func (s *server) led(holder quorumlock.Owner, value string) {
	s.Helper()
	got, err := s.send(wire.Leader("x")).Led()
	if err != nil || got.Holder != holder || got.Value != value || got.Leads != (value != "") {
		s.Errorf("Leader: %+v, %v, want %q of %q", got, err, value, holder)
	}
}

func TestOnlyTheHolderProclaims(t *testing.T) {
	s := start(t)
	s.proclaims(wire.NotHeld, alice, 100, 1, "early")
	s.led("", "")
	a := s.grant("x", alice, 1, 100)
	s.led(alice, "")
	s.proclaims(wire.Proclaimed, alice, a.Token, 1, "of alice")
	s.proclaims(wire.NotHeld, bob, a.Token+1, 1, "of bob")
	s.led(alice, "of alice")
	if got, _ := s.send(wire.Leader("x")).Led(); got.Token != a.Token || got.Version != 1 || got.TTL != ttl {
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
	keep := func(version uint64) wire.Proclamation {
		p, err := s.send(wire.KeepProclaimed("x", alice, ttl, 100, version)).Proclaimed()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if got := keep(1); got != wire.NotHeld {
		t.Errorf("%d, want NotHeld", got)
	}
	s.grant("x", alice, 1, 100)
	if got := keep(1); got != wire.NotThere {
		t.Errorf("%d, want NotThere", got)
	}
	s.proclaims(wire.Proclaimed, alice, 100, 1, "value")
	s.data.FastForward(ttl / 2)
	s.checkTTL(wire.LeaderKey("x"), ttl/2)
	if got := keep(1); got != wire.Proclaimed {
		t.Errorf("%d, want Proclaimed", got)
	}
	s.checkTTL(wire.LeaderKey("x"), ttl)
	if got := keep(2); got != wire.NotThere {
		t.Errorf("%d, want NotThere for a later version", got)
	}
	s.led(alice, "value")
}

func TestOnlyItsOwnerWithdrawsAValue(t *testing.T) {
	s := start(t)
	s.grant("x", alice, 1, 100)
	s.proclaims(wire.Proclaimed, alice, 100, 1, "value")
	if s.done(wire.Withdraw("x", bob)) {
		t.Error("withdrawn by somebody else")
	}
	s.led(alice, "value")
	if !s.done(wire.Withdraw("x", alice)) || s.done(wire.Withdraw("x", alice)) {
		t.Error("not withdrawn once")
	}
	s.led(alice, "")
}

func TestChangesOfALeaderAreTold(t *testing.T) {
	s := start(t)
	heard := make(chan string, 9)
	defer transport.Of(s.node).Listen(wire.LeaderKey("x"), func(m string) { heard <- m })()
	want := func(m string) {
		t.Helper()
		if got := <-heard; got != m {
			t.Errorf("heard %q, want %q", got, m)
		}
	}
	want("") // it listens
	s.grant("x", alice, 1, 100)
	s.proclaims(wire.Proclaimed, alice, 100, 1, "a")
	want("100 1")
	s.proclaims(wire.Proclaimed, alice, 100, 1, "a") // nothing new
	s.proclaims(wire.Proclaimed, alice, 100, 2, "b")
	want("100 2")
	s.done(wire.Withdraw("x", alice))
	want("")
}

func TestAKeyThatIsNoValueIsNamedAndNotTouched(t *testing.T) {
	s := start(t)
	s.grant("x", alice, 1, 100)
	key := wire.LeaderKey("x")
	s.put(key, "mine")
	for name, c := range map[string]wire.Call{"proclaim": wire.Proclaim("x", alice, ttl, 100, 1, "v"), "keep": wire.KeepProclaimed("x", alice, ttl, 100, 1), "leader": wire.Leader("x")} {
		r := s.send(c)
		_, err := r.Proclaimed()
		if name == "leader" {
			_, err = r.Led()
		}
		if !errors.Is(err, quorumlock.ErrNotALock) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v, want ErrNotALock that names the key", name, err)
		}
	}
	if _, err := s.send(wire.Withdraw("x", alice)).Done(); !errors.Is(err, quorumlock.ErrNotALock) {
		t.Errorf("withdraw: %v", err)
	}
	if got, _ := s.data.Get(key); got != "mine" {
		t.Errorf("it is %q now", got)
	}
	s.data.Del(key)
	s.release("x", alice, 1)
	s.put("x", "mine")
	for _, err := range []error{
		func() error {
			_, err := s.send(wire.Proclaim("x", alice, ttl, 100, 1, "v")).Proclaimed()
			return err
		}(),
		func() error { _, err := s.send(wire.Leader("x")).Led(); return err }(),
	} {
		if !errors.Is(err, quorumlock.ErrNotALock) {
			t.Errorf("a lock that is a string: %v", err)
		}
	}
}
