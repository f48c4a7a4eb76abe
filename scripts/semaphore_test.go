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

// A renewal counts only for the slot that the owner has here: otherwise nodes with different slots would keep a hold.
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

// While several slots are free, waiters are on their way to them. If they were handed slots, each node would hand other ones. They are
// told which slot was released.
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
