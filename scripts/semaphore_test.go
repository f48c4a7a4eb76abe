package scripts_test

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// slot has an owner acquire a slot of x, which has two.
func slot(s *server, waiter quorumlock.Owner, ticket int64, wish int) wire.Answer {
	s.Helper()
	e := wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life, Successor: wire.Successor{Attempt: 1, TTL: lent, Cell: 7, Secret: secret}}
	a, err := s.send(wire.AcquireInTurn("x", wire.OwnerOf(waiter, 1), ttl, 100, e).At(7).OfSemaphore(2, wish)).Acquired()
	if err != nil {
		s.Fatal(err)
	}
	return a
}

func TestANodeGivesEachSlotToOneOwner(t *testing.T) {
	s := start(t)
	for i, want := range []wire.Answer{
		{Granted: true, Token: 100, Slot: 1, Position: -1},
		{Granted: true, Token: 100, Slot: 0, Position: -1},
		{Holder: "w:2.1.7", TTL: ttl + time.Millisecond, Position: 0},
		{Holder: "w:2.1.7", TTL: ttl + time.Millisecond, Position: 1},
	} {
		if a := slot(s, quorumlock.Owner(fmt.Sprint("w:", i+1)), int64(i), 1); a != want {
			t.Errorf("attempt %d: %+v, want %+v", i+1, a, want)
		}
	}
}

// A waiter that takes no other slot is told a free one: the first from the one on that it names. A
// waiter that gives back is told one, too.
func TestANodeNamesAFreeSlot(t *testing.T) {
	s := start(t)
	entry := func(waiter quorumlock.Owner, ticket int64) wire.Entry {
		return wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life, Successor: wire.Successor{Attempt: 1, TTL: lent, Cell: 7, Secret: secret}}
	}
	ask := func(waiter quorumlock.Owner, ticket int64, slot, other int) wire.Answer {
		a, err := s.send(wire.AcquireInTurn("x", wire.OwnerOf(waiter, 1), ttl, 100, entry(waiter, ticket)).At(7).OfSemaphore(5, slot).Only(other)).Acquired()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for i, tt := range []struct {
		slot, other int
		want        wire.Answer
	}{
		{1, 4, wire.Answer{Granted: true, Token: 100, Slot: 1, Position: -1}},
		{3, 4, wire.Answer{Granted: true, Token: 100, Slot: 3, Position: -1}},
		{3, 0, wire.Answer{Elsewhere: true, Holder: "w:2.1.7", Slot: 0, Position: 0}},
		{3, 1, wire.Answer{Elsewhere: true, Holder: "w:2.1.7", Slot: 2, Position: 1}},
		{1, 3, wire.Answer{Elsewhere: true, Holder: "w:1.1.7", Slot: 4, Position: 2}},
		{1, 3, wire.Answer{Free: true, Holder: "w:3", TTL: 650 * time.Millisecond, Position: 3}}, // three slots are for those before
	} {
		if a := ask(quorumlock.Owner(fmt.Sprint("w:", i+1)), int64(i), tt.slot, tt.other); a != tt.want {
			t.Errorf("attempt %d: %+v, want %+v", i+1, a, tt.want)
		}
	}
	open, slot, err := s.send(wire.Yield("x", "w:1.1", entry("w:1", 0)).At(7).OfSemaphore(5, 1).Only(3)).Yielded()
	if !open || slot != 4 || err != nil {
		t.Errorf("a waiter that gives back hears open %v, slot %d, %v: want slot 4", open, slot, err)
	}
	if a := ask("w:6", 5, 1, 3); !a.Free { // w:1 is queued before it again
		t.Errorf("%+v, want a refusal for those before", a)
	}
}

// A renewal counts only for the slot that the owner has here: otherwise nodes with different slots
// would keep a hold.
func TestARenewalIsForOneSlot(t *testing.T) {
	s := start(t)
	slot(s, "w:1", 1, 1)
	for number, want := range []bool{false, true} {
		if got := s.done(wire.Renew("x", "w:1.1", ttl).At(7).OfSemaphore(2, number)); got != want {
			t.Errorf("renewing slot %d: %v", number, got)
		}
	}
}

// The proof of a handoff is also one of its slot.
func TestAHandoffsSlotIsProven(t *testing.T) {
	said := func(slot string) string {
		proof := sha1.Sum(fmt.Appendf(nil, "%s a:1 3 7 101@2 x %s", secret, secret))
		return fmt.Sprintf("a:1 3 7 101@%s %x x", slot, proof)
	}
	for slot, want := range map[string]bool{"2": true, "1": false, "02": false} {
		if h, ok := wire.ParseHandoff(said(slot)); !ok || h.ProvenBy(secret) != want {
			t.Errorf("slot %s: %+v, %v, proven %v", slot, h, ok, !want)
		}
	}
	for _, slot := range []string{"", "-1", "1000", "x"} {
		if h, ok := wire.ParseHandoff(said(slot)); ok {
			t.Errorf("slot %q: %+v", slot, h)
		}
	}
}

// A replica that took over may have some slots, and lack others that were given a moment before.
func TestTheGuardAsksThoughASlotIsThere(t *testing.T) {
	s := start(t)
	slot(s, "w:1", 1, 1)
	e := wire.Entry{Waiter: "w:2", Ticket: 2, TTL: life}
	r := s.send(wire.AcquireInTurn("x", "w:2.1", ttl, 100, e).At(7).OfSemaphore(2, 0).Guarded(24 * time.Hour))
	if _, err := r.Acquired(); !errors.Is(err, quorumlock.ErrQuarantined) {
		t.Errorf("%v, want ErrQuarantined", err)
	}
}

// While several slots are free, waiters are on their way to them. If they were handed slots, each
// node would hand other ones. They are told which slot was released.
func TestASlotIsHandedOverOnlyIfNoOtherIsFree(t *testing.T) {
	c := gather(t)
	free := func(waiter quorumlock.Owner) {
		c.Helper()
		if left, held, err := c.send(wire.Release("x", wire.OwnerOf(waiter, 1), 1).At(7).OfSemaphore(2, 0)).Released(); err != nil || left != 0 || !held {
			t.Fatalf("%d left, held %v, %v", left, held, err)
		}
	}
	slot(c.server, "w:1", 1, 0)
	slot(c.server, "w:2", 2, 1)
	slot(c.server, "alice:3", 3, 0)
	c.wait(lent/2 + time.Millisecond) // alice may be dead
	slot(c.server, "bob:4", 4, 0)
	free("w:1")
	c.checkHeard("slot alice:3 0 x")
	free("w:2")
	c.checkHeard("slot bob:4 1 x")
	slot(c.server, "alice:3", 3, 0)
	slot(c.server, "bob:4", 4, 0)
	slot(c.server, "carol:5", 5, 1)
	c.checkHeard()
	free("bob:4")
	proof := sha1.Sum(fmt.Appendf(nil, "%s carol:5 1 7 102@1 x %s", secret, secret))
	c.checkHeard(fmt.Sprintf("handoff carol:5 1 7 102@1 %x x", proof))
}
