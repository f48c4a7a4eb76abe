package scripts_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// slotted is the attempt of a waiter for a slot of x.
func slotted(waiter quorumlock.Owner, ticket int64, permits, wish int) wire.Call {
	e := wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life, Successor: heir(1, lent)}
	return wire.AcquireInTurn("x", wire.OwnerOf(waiter, 1), ttl, 100, e).At(7).OfSemaphore(permits, wish)
}

// slot is an attempt for one of two slots.
func (s *server) slot(waiter quorumlock.Owner, ticket int64, wish int) wire.Answer {
	s.Helper()
	return s.acquired(slotted(waiter, ticket, 2, wish))
}

func (s *server) releaseSlot(waiter quorumlock.Owner) {
	s.Helper()
	s.checkRelease(wire.Release("x", wire.OwnerOf(waiter, 1), 1).At(7).OfSemaphore(2, 0), 0, true)
}

func TestANodeGivesEachSlotToOneOwner(t *testing.T) {
	s := start(t)
	for i, want := range []wire.Answer{
		{Granted: true, Token: 100, Slot: 1, Position: -1},
		{Granted: true, Token: 100, Slot: 0, Position: -1},
		{Holder: "w:2.1.7", TTL: ttl + time.Millisecond, Position: 0},
		{Holder: "w:2.1.7", TTL: ttl + time.Millisecond, Position: 1},
	} {
		if a := s.slot(quorumlock.Owner(fmt.Sprint("w:", i+1)), int64(i), 1); a != want {
			t.Errorf("attempt %d: %+v, want %+v", i+1, a, want)
		}
	}
	if slots, err := s.data.SortedSet(wire.SlotsKey("x")); err != nil || slots["w:1.1.7"] != 1 || slots["w:2.1.7"] != 0 {
		t.Errorf("the slots are %v, %v", slots, err)
	}
}

// A waiter that takes no other slot is told a free one: the first from the one on that it names. A
// waiter that gives back is told one, too.
func TestANodeNamesAFreeSlot(t *testing.T) {
	s := start(t)
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
		if a := s.acquired(slotted(quorumlock.Owner(fmt.Sprint("w:", i+1)), int64(i), 5, tt.slot).Only(tt.other)); a != tt.want {
			t.Errorf("attempt %d: %+v, want %+v", i+1, a, tt.want)
		}
	}
	entry := wire.Entry{Waiter: "w:1", TTL: life, Successor: heir(1, lent)}
	open, slot, err := s.send(wire.Yield("x", "w:1.1", entry).At(7).OfSemaphore(5, 1).Only(3)).Yielded()
	if !open || slot != 4 || err != nil {
		t.Errorf("a waiter that gives back hears open %v, slot %d, %v: want slot 4", open, slot, err)
	}
	if a := s.acquired(slotted("w:6", 5, 5, 1).Only(3)); !a.Free { // w:1 is queued before it again
		t.Errorf("%+v, want a refusal for those before", a)
	}
}

// While a semaphore is in use, a waiter with another number of slots is told both numbers, and is not
// handed a slot. A restore sets the number of its holder. A semaphore that is not in use has no
// number. Nor has one whose clients so far do not tell theirs.
func TestASemaphoreInUseHasOneNumberOfSlots(t *testing.T) {
	s := gather(t)
	refused := func(waiter quorumlock.Owner, permits int, want string) {
		t.Helper()
		if _, err := s.send(slotted(waiter, 9, permits, 0)).Acquired(); !errors.Is(err, quorumlock.ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrMismatch with %q", err, want)
		}
	}
	has := func(want int) {
		t.Helper()
		if state, err := s.send(wire.Inspect("x", 10).OfSemaphore(9, 0)).InspectedSlots(); err != nil || state.Permits != want {
			t.Errorf("%d permits, %v, want %d", state.Permits, err, want)
		}
	}
	s.acquired(slotted("w:1", 1, 1, 0))
	s.acquired(slotted("alice:2", 2, 1, 0))
	refused("w:3", 3, "3 here, and 1 at the node")
	has(1)
	s.send(wire.Restore("x", "w:1.1", ttl, 100).At(7).OfSemaphore(3, 0))
	has(3)
	refused("w:4", 1, "1 here, and 3 at the node")
	s.acquired(slotted("w:5", 5, 3, 1))
	s.releaseSlot("w:1")
	s.checkHeard("slot alice:2 0 x")

	s = start(t)
	s.slot("w:1", 1, 0)
	s.wait(ttl + time.Millisecond) // the hold is over, and still there
	s.acquired(slotted("w:2", 2, 3, 0))
	has(3)
	if _, err := s.data.ZAdd("x", math.Inf(1), "quorumlock_semaphore"); err != nil {
		t.Fatal(err)
	}
	has(0)
	s.acquired(slotted("w:3", 3, 2, 1))
	has(2)
}

// A renewal counts only for the slot that the owner has here: otherwise nodes with different slots
// would keep a hold.
func TestARenewalIsForOneSlot(t *testing.T) {
	s := start(t)
	s.slot("w:1", 1, 1)
	for number, want := range []bool{false, true} {
		s.checkDone(wire.Renew("x", "w:1.1", ttl).At(7).OfSemaphore(2, number), want)
	}
}

// While several slots are free, waiters are on their way to them. If they were handed slots, each
// node would hand other ones. They are told which slot was released.
func TestASlotIsHandedOverOnlyIfNoOtherIsFree(t *testing.T) {
	s := gather(t)
	s.slot("w:1", 1, 0)
	s.slot("w:2", 2, 1)
	s.slot("alice:3", 3, 0)
	s.wait(lent/2 + time.Millisecond) // alice may be dead
	s.slot("bob:4", 4, 0)
	s.releaseSlot("w:1")
	s.checkHeard("slot alice:3 0 x")
	s.releaseSlot("w:2")
	s.checkHeard("slot bob:4 1 x")
	s.slot("alice:3", 3, 0)
	s.slot("bob:4", 4, 0)
	s.slot("carol:5", 5, 1)
	s.checkHeard()
	s.releaseSlot("bob:4")
	s.checkHeard(handoff("carol:5", 1, "102@1"))
}

// The first waiter may know of a free slot from its own yield, and the next yield calls it once more.
// So a yield calls the last waiter with a slot, too, as a release does.
func TestAYieldCallsTheFirstAndTheLastWithASlot(t *testing.T) {
	s := gather(t)
	yield := func(waiter quorumlock.Owner, ticket int64) {
		s.send(wire.Yield("x", wire.OwnerOf(waiter, 1), wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life, Successor: heir(1, lent)}).At(7).OfSemaphore(2, 0))
	}
	s.slot("alice:1", 1, 0)
	s.slot("carol:3", 3, 1)
	s.slot("bob:2", 2, 0)
	yield("alice:1", 1)
	s.checkHeard()
	yield("carol:3", 3)
	s.checkHeard("turn alice:1 x", "turn bob:2 x")
}

// The waiters may be fewer than the free slots.
func TestAReleaseCallsTheLastOfFewWaiters(t *testing.T) {
	s := gather(t)
	for i, waiter := range []quorumlock.Owner{"w:1", "w:2", "w:3", "alice:4", "bob:5"} {
		s.acquired(slotted(waiter, int64(i), 3, i%3))
	}
	s.data.Del(wire.SlotsKey("x"))
	s.data.Del("x")
	s.send(wire.Release("x", "w:1.1", 1).At(7).OfSemaphore(3, 0))
	s.checkHeard("turn alice:4 x", "turn bob:5 x")
}

// A late yield queues a waiter whose successor has a slot. With that slot it leaves the queue, and a
// free slot is left for the next waiter.
func TestAWaiterThatTakesItsSuccessorsSlotCallsTheNext(t *testing.T) {
	s := gather(t)
	for i, waiter := range []quorumlock.Owner{"w:1", "w:2", "alice:3", "bob:4"} {
		s.slot(waiter, int64(i+1), i%2)
	}
	s.releaseSlot("w:1")
	s.checkHeard(handoff("alice:3", 1, "101@0"))
	late := wire.Entry{Waiter: "alice:3", Ticket: 3, TTL: life, Successor: heir(1, lent)}
	s.send(wire.Yield("x", "alice:3.1", late).At(7).OfSemaphore(2, 0))
	s.releaseSlot("w:2")
	s.checkHeard("slot alice:3 1 x")
	late.Successor = heir(2, lent)
	s.checkGranted(s.acquired(wire.AcquireInTurn("x", "alice:3.2", ttl, 100, late).At(7).OfSemaphore(2, 0)))
	s.checkHeard("turn bob:4 x")
}

// A forced release frees many slots at once. As many waiters are called.
func TestAForcedReleaseCallsAWaiterForEachSlot(t *testing.T) {
	s := gather(t)
	var called []string
	for i := range 60 {
		waiter := quorumlock.Owner(fmt.Sprint("alice:", i))
		if a := s.acquired(slotted(waiter, int64(i), 30, i%30)); !a.Granted {
			called = append(called, "turn "+string(waiter)+" x")
		}
	}
	s.send(wire.ForceRelease("x").OfSemaphore(30, 0))
	s.checkHeard(called...)
}

// A waiter that was called may move back with its sure ticket. Then it calls those before it.
func TestAWaiterBehindTheFreeSlotsCallsTheFirstAndTheLast(t *testing.T) {
	s := gather(t)
	s.slot("w:1", 1, 0)
	s.slot("w:2", 2, 1)
	s.slot("alice:3", 3, 0)
	s.slot("bob:4", 4, 0)
	s.data.Del(wire.SlotsKey("x"))
	s.data.Del("x")
	if a := s.slot("carol:5", 5, 0); !a.Free || a.Holder != "alice:3" {
		t.Errorf("%+v, want a refusal by those before", a)
	}
	s.checkHeard("turn bob:4 x", "turn alice:3 x")
}

// A call on a semaphore that has the name of a mutex is refused, and the queue of the mutex stays
// as it is.
func TestASemaphoreLeavesTheQueueOfAMutexAlone(t *testing.T) {
	for name, call := range map[string]wire.Call{
		"release": wire.ReleaseAndLeave("x", "w:9.1", "w:9", true).At(7),
		"leave":   wire.Leave("x", "w:9", true),
		"yield":   wire.Yield("x", "w:9.1", wire.Entry{Waiter: "w:9", Ticket: 1, TTL: life, Successor: heir(1, lent)}).At(7),
		"raise":   wire.Raise("x", "w:9.1", ttl, 100, 150).At(7),
		"force":   wire.ForceRelease("x"),
	} {
		t.Run(name, func(t *testing.T) {
			s := busy(t)
			s.stand("alice:1", 100)
			s.stand("bob:1", 200)
			s.release("x", "holder:1", 1) // it is free, and alice was called
			s.checkHeard("turn alice:1 x")
			s.send(call.OfSemaphore(2, 0))
			s.checkQueue("alice:1", "bob:1")
			s.checkHeard()
		})
	}
}

// Inspect changes nothing, so that a user who may only read can use it. Holds that are over are not
// shown. A mutex of the name of a semaphore says what it is, even if nobody has that.
func TestInspectOfASemaphoreChangesNothing(t *testing.T) {
	s := start(t)
	s.slot("w:1", 1, 0)
	s.wait(time.Second)
	s.slot("w:2", 2, 1)
	s.wait(ttl - time.Second)
	look := func(want ...int) {
		t.Helper()
		s.unchanged(func() {
			state, err := s.send(wire.Inspect("x", 10).OfSemaphore(2, 0)).InspectedSlots()
			if err != nil || len(state.Slots) != len(want) || len(want) == 1 && state.Slots[0].Number != want[0] {
				t.Errorf("%+v, %v, want the slots %v", state.Slots, err, want)
			}
		})
	}
	look(0, 1)
	s.wait(time.Millisecond)
	look(1)
	s.releaseSlot("w:2")
	if _, err := s.send(wire.Inspect("x", 10)).Inspected(); !errors.Is(err, quorumlock.ErrWrongKind) {
		t.Errorf("%v, want ErrWrongKind", err)
	}
	s.slot("w:2", 2, 1)
	s.data.Del("x") // nobody knows when the holds end
	look()
}
