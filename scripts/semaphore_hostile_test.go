package scripts_test

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// slotOf returns the slot of an owner of the semaphore x, -1 if it has none, and the end of its hold in ms of the node's clock.
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

// A yield that comes late queues a waiter whose successor has had a slot for long. No release moves that to another slot, or
// ends it earlier.
func TestALateYieldMovesNoSlot(t *testing.T) {
	c := gather(t)
	slot(c.server, "w:1", 1, 0)
	slot(c.server, "w:2", 2, 1)
	slot(c.server, "w:3", 3, 0)
	releaseSlot(c.server, "w:1.1")
	if n, _ := slotOf(c.server, "w:3/1.7"); n != 0 {
		t.Fatalf("the successor has slot %v, want 0", n)
	}
	if !c.done(wire.Renew("x", "w:3/1", ttl).At(7).OfSemaphore(2, 0)) {
		t.Fatal("the successor cannot renew")
	}
	c.wait(2 * life) // the queue and its entries are gone
	_, end := slotOf(c.server, "w:3/1.7")
	if r := c.send(wire.Yield("x", "w:3.1", semaphoreEntry("w:3", 3)).At(7).OfSemaphore(2, 0)); r.Err != nil {
		t.Fatal(r.Err)
	}
	releaseSlot(c.server, "w:2.1")
	if n, until := slotOf(c.server, "w:3/1.7"); n != 0 || until != end {
		t.Errorf("it has slot %v until %v, want 0 until %v", n, until, end)
	}
}

// A call on a semaphore that has the name of a mutex is refused, and the queue of the mutex stays as it is.
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

// Where a waiter that looks seldom is next, it is told so as soon as the one before it has a slot.
func TestTheOneBehindIsToldThatItIsNext(t *testing.T) {
	c := gather(t)
	slot(c.server, "w:1", 1, 0)
	slot(c.server, "w:2", 2, 1)
	slot(c.server, "bob:3", 3, 0)
	seldom := semaphoreEntry("alice:4", 4)
	seldom.TTL = 10 * time.Second
	if a, err := c.send(wire.AcquireInTurn("x", "alice:4.1", ttl, 100, seldom).At(7).OfSemaphore(2, 0)).Acquired(); err != nil || a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	releaseSlot(c.server, "w:1.1")
	proof := sha1.Sum([]byte(secret + " bob:3 1 7 101@0 x " + secret))
	c.checkHeardInAnyOrder(fmt.Sprintf("handoff bob:3 1 7 101@0 %x x", proof), "next alice:4 x")
}

// gatherHanded has slot 0 handed to w:3, and slot 1 held.
func gatherHanded(t *testing.T) *crowd {
	c := gather(t)
	slot(c.server, "w:1", 1, 0)
	slot(c.server, "w:2", 2, 1)
	slot(c.server, "w:3", 3, 0)
	slot(c.server, "w:4", 4, 0)
	releaseSlot(c.server, "w:1.1")
	if n, _ := slotOf(c.server, "w:3/1.7"); n != 0 {
		t.Fatalf("the successor has slot %v, want 0", n)
	}
	return c
}

// Whoever gives a slot back because it would like another one does not leave the waiters to their refresh.
func TestASlotThatIsGivenBackForAnotherCallsAWaiter(t *testing.T) {
	again := func(wish int) wire.Call {
		e := semaphoreEntry("bob:3", 3)
		e.Successor.Attempt = 2
		return wire.AcquireInTurn("x", "bob:3.2", ttl, 100, e).At(7).OfSemaphore(2, wish)
	}
	for name, test := range map[string]struct {
		permits int  // that alice knows, who waits; 0 if she does not
		one     bool // slot 1 is free
		call    wire.Call
		want    string
	}{
		"for one that is taken":                  {0, false, again(1), "turn bob:3 x"},
		"for one that is free":                   {1, true, again(1), "turn alice:4 x"},
		"by a restore, for one that is taken":    {2, false, wire.Restore("x", "w:2.1", ttl, 500).At(7).OfSemaphore(2, 0), "turn alice:4 x"},
		"by a restore for the next successor":    {2, false, wire.Restore("x", "bob:3/2", ttl, 500).At(7).OfSemaphore(3, 2), "turn alice:4 x"},
		"by a restore, for another that is free": {1, true, wire.Restore("x", "bob:3/1", ttl, 500).At(7).OfSemaphore(2, 1), "turn alice:4 x"},
	} {
		t.Run(name, func(t *testing.T) {
			c := gather(t)
			slot(c.server, "w:1", 1, 0)
			slot(c.server, "w:2", 2, 1)
			slot(c.server, "bob:3", 3, 0)
			releaseSlot(c.server, "w:1.1")
			proof := sha1.Sum([]byte(secret + " bob:3 1 7 101@0 x " + secret))
			c.checkHeard(fmt.Sprintf("handoff bob:3 1 7 101@0 %x x", proof))
			if test.permits > 0 {
				a, err := c.send(wire.AcquireInTurn("x", "alice:4.1", ttl, 100, semaphoreEntry("alice:4", 4)).At(7).OfSemaphore(test.permits, 0)).Acquired()
				if err != nil || a.Granted {
					t.Fatalf("%+v, %v", a, err)
				}
			}
			if test.one {
				releaseSlot(c.server, "w:2.1")
			}
			c.checkHeard()
			if r := c.send(test.call); r.Err != nil {
				t.Fatal(r.Err)
			}
			c.checkHeard(test.want)
		})
	}
}

// If a node evicts the keys of the queue and keeps the slots, a waiter still finds the slot that it was handed, and gives it back
// when it leaves.
func TestTheSuccessorsSlotIsFoundThoughTheQueueIsEvicted(t *testing.T) {
	handed := map[string]float64{"w:2.1.7": 1, "w:3/1.7": 0, "w:3/": -1}
	again := semaphoreEntry("w:3", 3)
	again.Successor.Attempt = 2
	for name, test := range map[string]struct {
		call wire.Call
		want map[string]float64 // who has which slot then
	}{
		"its waiter comes again": {wire.AcquireInTurn("x", "w:3.2", ttl, 100, again).At(7), map[string]float64{"w:2.1.7": 1, "w:3.2.7": 0}},
		"its waiter leaves":      {wire.Leave("x", "w:3", true), map[string]float64{"w:2.1.7": 1}},
		"an attempt ends":        {wire.ReleaseAndLeave("x", "w:3.2", "w:3", true).At(7), map[string]float64{"w:2.1.7": 1}},
		"its waiter keeps it":    {wire.ReleaseAndLeave("x", "w:3.2", "w:3", false).At(7), handed},
		"an attempt is late":     {wire.AcquireInTurn("x", "w:3.1", ttl, 100, semaphoreEntry("w:3", 3)).At(7), handed},
	} {
		t.Run(name, func(t *testing.T) {
			c := gatherHanded(t)
			c.data.Del(wire.QueueKey("x"))
			c.data.Del(wire.EntriesKey("x"))
			if r := c.send(test.call.OfSemaphore(2, 0)); r.Err != nil {
				t.Fatal(r.Err)
			}
			if slots, err := c.data.SortedSet(wire.SlotsKey("x")); err != nil || !maps.Equal(slots, test.want) {
				t.Errorf("%v, %v: want %v", slots, err, test.want)
			}
		})
	}
}

// A node that was out of reach hands a slot to the successor of an attempt that is over. When it grants what the waiter holds, it
// takes that back: nobody else will.
func TestARestoreGivesBackWhatAnEarlierSuccessorHas(t *testing.T) {
	c := gatherHanded(t)
	if a, err := c.send(wire.Restore("x", "w:3/2", ttl, 100).At(7).OfSemaphore(3, 2)).Acquired(); err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	want := map[string]float64{"w:2.1.7": 1, "w:3/2.7": 2, "w:3/": -3}
	if slots, err := c.data.SortedSet(wire.SlotsKey("x")); err != nil || !maps.Equal(slots, want) {
		t.Errorf("%v, %v: want %v", slots, err, want)
	}
	// The same attempt may have a slot of another member of a MultiLock here.
	if a, err := c.send(wire.Restore("x", "w:3/2", ttl, 100).At(8).OfSemaphore(3, 0)).Acquired(); err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	if n, _ := slotOf(c.server, "w:3/2.7"); n != 2 {
		t.Errorf("the hold's first slot is %v, want 2", n)
	}
}

// What is stored of a successor goes with its slot, however it loses that, and comes with another slot.
func TestNothingIsKeptOfASuccessorWithoutASlot(t *testing.T) {
	for name, test := range map[string]struct {
		loses func(c *crowd)
		want  float64 // what is stored of the successor; 0 is nothing
	}{
		"a release":         {func(c *crowd) { releaseSlot(c.server, "w:3/1") }, 0},
		"a forced release":  {func(c *crowd) { c.done(wire.ForceRelease("x").OfSemaphore(0, 0)) }, 0},
		"an eviction":       {func(c *crowd) { c.data.Del("x"); slot(c.server, "w:5", 5, 0) }, 0},
		"the end of a hold": {func(c *crowd) { c.wait(lent + 100*time.Millisecond); slot(c.server, "w:5", 5, 0) }, 0},
		"a restore": {func(c *crowd) {
			if a, err := c.send(wire.Restore("x", "w:3/1", ttl, 100).At(7).OfSemaphore(3, 2)).Acquired(); err != nil || !a.Granted {
				c.Fatalf("%+v, %v", a, err)
			}
		}, -3},
	} {
		t.Run(name, func(t *testing.T) {
			c := gatherHanded(t)
			test.loses(c)
			if slots, err := c.data.SortedSet(wire.SlotsKey("x")); err != nil && c.data.Exists(wire.SlotsKey("x")) || slots["w:3/"] != test.want {
				t.Errorf("%v, %v: want %v of the successor", slots, err, test.want)
			}
		})
	}
}

// Inspect changes nothing, so that a user who may only read can use it. Holds that are over are not shown.
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
