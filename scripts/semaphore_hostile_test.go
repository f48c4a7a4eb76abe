package scripts_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// slotOf returns the slot of an owner of the semaphore x, -1 if it has none, and the end of its
// hold in ms of the node's clock.
func slotOf(s *server, owner string) (slot, end float64) {
	s.Helper()
	slots, err := s.data.SortedSet(wire.SlotsKey("x"))
	slot, has := slots[owner]
	if err != nil || !has {
		return -1, 0
	}
	ends, err := s.data.SortedSet("x")
	if err != nil {
		s.Error(err)
	}
	return slot, ends[owner]
}

func semaphoreEntry(waiter quorumlock.Owner, ticket int64) wire.Entry {
	return wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life, Successor: wire.Successor{Attempt: 1, TTL: lent, Cell: 7, Secret: secret}}
}

func releaseSlot(s *server, owner quorumlock.Owner) {
	s.Helper()
	if _, held, err := s.send(wire.Release("x", owner, 1).At(7).OfSemaphore(2, 0)).Released(); err != nil || !held {
		s.Fatalf("release of %s: held %v, %v", string(owner), held, err)
	}
}

// A call on a semaphore that has the name of a mutex is refused, and the queue of the mutex stays
// as it is.
func TestASemaphoreLeavesTheQueueOfAMutexAlone(t *testing.T) {
	for name, call := range map[string]func() wire.Call{
		"release": func() wire.Call { return wire.ReleaseAndLeave("x", "w:9.1", "w:9", true).At(7) },
		"leave":   func() wire.Call { return wire.Leave("x", "w:9", true) },
		"yield":   func() wire.Call { return wire.Yield("x", "w:9.1", semaphoreEntry("w:9", 1)).At(7) },
		"force":   func() wire.Call { return wire.ForceRelease("x") },
	} {
		t.Run(name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 100)
			c.stand("alice:1", 100)
			c.stand("bob:1", 200)
			c.release("x", "holder:1", 1) // it is free, and alice was called
			c.checkHeard("turn alice:1 x")
			c.send(call().OfSemaphore(2, 0))
			c.checkQueue("alice:1", "bob:1")
			c.checkHeard()
		})
	}
}

// Inspect changes nothing, so that a user who may only read can use it. Holds that are over are not
// shown.
func TestInspectOfASemaphoreChangesNothing(t *testing.T) {
	c := gather(t)
	slot(c.server, "w:1", 1, 0)
	c.wait(time.Second)
	slot(c.server, "w:2", 2, 1)
	c.wait(ttl - time.Second)
	look := func() []quorumlock.Slot {
		state, err := c.send(wire.Inspect("x", 10).OfSemaphore(2, 0)).InspectedSlots()
		if err != nil {
			t.Fatal(err)
		}
		return state.Slots
	}
	if s := look(); len(s) != 2 {
		t.Errorf("%+v, want both", s)
	}
	c.wait(time.Millisecond)
	if s := look(); len(s) != 1 || s[0].Number != 1 {
		t.Errorf("%+v, want slot 1", s)
	}
	if n, _ := slotOf(c.server, "w:1.1.7"); n != 0 {
		t.Error("Inspect has taken a slot away")
	}
	c.data.Del("x") // nobody knows when the holds end
	if s := look(); len(s) != 0 {
		t.Errorf("%+v, want none", s)
	}
}

// A mutex of the name of a semaphore that nobody has says what it is.
func TestInspectOfAnIdleSemaphoreAsAMutex(t *testing.T) {
	s := start(t)
	slot(s, "w:1", 1, 0)
	releaseSlot(s, "w:1.1")
	if _, err := s.send(wire.Inspect("x", 10)).Inspected(); !errors.Is(err, quorumlock.ErrWrongKind) {
		t.Errorf("%v, want ErrWrongKind", err)
	}
}

// A hold that is over does not raise the token, even if nobody has taken its slot away yet.
func TestAHoldOfASlotThatIsOverRaisesNothing(t *testing.T) {
	c := gather(t)
	slot(c.server, "w:1", 1, 0)
	c.wait(time.Second)
	slot(c.server, "w:2", 2, 1) // so that the keys last
	raise := wire.Raise("x", "w:1.1", ttl, 100, 150).At(7).OfSemaphore(2, 0)
	c.wait(ttl - time.Second + time.Millisecond)
	if c.done(raise) {
		t.Error("the hold is over, and has raised the token")
	}
	if got := c.data.HGet(wire.TokenKey("x"), "0"); got != "100" {
		t.Errorf("the token is %s, want 100", got)
	}
}
