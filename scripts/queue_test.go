package scripts_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// since returns the messages since its last call, in their order: to the clients that are named, or
// to all.
func (s *server) since(clients ...string) (told []string) {
	s.data.Publish("quorumlock_wake:end", "end") // it comes after all earlier messages
	for m := range s.told {
		if m.Message == "end" {
			return told
		}
		if _, client, _ := strings.Cut(m.Channel, ":"); clients == nil || slices.Contains(clients, client) {
			told = append(told, m.Message)
		}
	}
	return told
}

// checkHeard checks the messages since the last check.
func (s *server) checkHeard(want ...string) {
	s.Helper()
	if got := s.since("alice", "bob", "carol"); !slices.Equal(got, want) {
		s.Errorf("told %q, want %q", got, want)
	}
}

// stand is an attempt of a waiter, under an owner that is used once.
func (s *server) stand(waiter quorumlock.Owner, ticket int64) wire.Answer {
	s.Helper()
	return s.queue(wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life})
}

// queue is stand with any entry.
func (s *server) queue(e wire.Entry) wire.Answer {
	s.Helper()
	return s.acquired(wire.AcquireInTurn("x", "hold:"+e.Waiter, ttl, 1, e))
}

func (s *server) checkQueue(want ...string) {
	s.Helper()
	state := s.inspect("x")
	var got []string
	for _, w := range state.Queue {
		got = append(got, string(w.Owner))
	}
	if !slices.Equal(got, want) || state.Waiting != len(want) {
		s.Errorf("%d in the queue: %q, want %q", state.Waiting, got, want)
	}
	if len(want) == 0 && (s.data.Exists(wire.QueueKey("x")) || s.data.Exists(wire.EntriesKey("x"))) {
		s.Error("the empty queue is still there")
	}
}

func TestWaitersAreQueuedInTheOrderOfTheirTickets(t *testing.T) {
	s := busy(t)
	for _, tt := range []struct {
		waiter   quorumlock.Owner
		ticket   int64
		position int
	}{{"bob:1", 200, 0}, {"alice:1", 300, 1}, {"carol:1", 100, 0}, {"bob:2", 300, 3}, {"alice:1", 300, 2}} {
		if a := s.stand(tt.waiter, tt.ticket); a != (wire.Answer{Holder: "holder:1", TTL: ttl, Position: tt.position}) {
			t.Errorf("%s with ticket %d: %+v, want position %d", tt.waiter, tt.ticket, a, tt.position)
		}
	}
	s.checkQueue("carol:1", "bob:1", "alice:1", "bob:2")
	s.checkHeard()
}

// The first, who is told its turn, has a second. Then the next one is served.
func TestAFreeLockIsGrantedToTheFirstInTheQueueOnly(t *testing.T) {
	for _, comes := range []bool{true, false} {
		s := busy(t)
		s.stand("bob:1", 200)
		s.stand("alice:1", 300)
		s.release("x", "holder:1", 1)
		s.checkHeard("turn bob:1 x")
		s.wait(999 * time.Millisecond)
		if a := s.stand("alice:1", 300); a.Granted || !a.Free || a.Holder != "bob:1" || a.Position != 1 {
			t.Errorf("the second in the queue: %+v", a)
		}
		if a := s.acquire("x", "try:1", 1, 1); a.Granted || !a.Free || a.Holder != "bob:1" || a.Position != -1 {
			t.Errorf("one without a ticket: %+v, want a refusal that says who is the first", a)
		}
		if comes {
			s.checkGranted(s.stand("bob:1", 200))
			s.checkQueue("alice:1")
			continue
		}
		s.wait(time.Millisecond)
		s.checkGranted(s.stand("alice:1", 300))
		s.checkQueue()
	}
}

// A client that knows the clocks of too few nodes sends unsure tickets. A node takes one that is
// near its own clock. Any other overtakes nobody who waits, and is not overtaken by those who come
// later.
func TestAnUnsureTicketCountsIfItIsNearTheClock(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead time.Duration
		want  string
	}{
		{"right", 0, "bob:1 alice:1 carol:1 dave:1"},
		{"a second ahead", time.Second, "bob:1 carol:1 dave:1 alice:1"},
		{"a second behind", -time.Second, "alice:1 bob:1 carol:1 dave:1"},
		{"more than a second ahead", time.Second + time.Microsecond, "bob:1 alice:1 carol:1 dave:1"},
		{"more than a second behind", -time.Second - time.Microsecond, "bob:1 alice:1 carol:1 dave:1"},
		{"years ahead", 20 * year, "bob:1 alice:1 carol:1 dave:1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := busy(t)
			s.stand("bob:1", s.now.Add(-time.Second/2).UnixMicro())
			s.queue(wire.Entry{Waiter: "alice:1", Ticket: s.now.Add(tt.ahead).UnixMicro(), Unsure: true, TTL: life})
			s.stand("carol:1", s.now.Add(time.Second/4).UnixMicro())
			s.stand("dave:1", s.now.Add(time.Second/2).UnixMicro())
			s.checkQueue(strings.Fields(tt.want)...)
		})
	}
}

// The client sets its clock right by what a node says when it refuses a waiter.
func TestARefusalTellsAWaiterTheClock(t *testing.T) {
	s := busy(t)
	s.do(wire.AcquireInTurn("s", "holder:2", ttl, 1, wire.Entry{Waiter: "bob:1", TTL: life}).OfSemaphore(1, 0))
	e := wire.Entry{Waiter: "alice:1", Ticket: 100, TTL: life}
	for name, call := range map[string]wire.Call{
		"of a lock":      wire.AcquireInTurn("x", "hold:alice:1", ttl, 1, e),
		"of a reader":    wire.AcquireInTurn("x", "hold:alice:1", ttl, 1, e).Shared(),
		"of a semaphore": wire.AcquireInTurn("s", "hold:alice:1", ttl, 1, e).OfSemaphore(1, 0),
	} {
		reply := s.send(call)
		if now, ok := reply.Clock(); !ok || now.UnixMilli() != s.now.UnixMilli() {
			t.Errorf("%s: %v, %v in %v, want %v", name, now, ok, reply.Value, s.now)
		}
	}
	if _, ok := s.send(wire.Acquire("x", "hold:carol:1", ttl, 1, 1)).Clock(); ok {
		t.Error("one who does not wait is told the clock")
	}
}

func TestAYieldRejoinsWithItsTicketAndWakesTheFirst(t *testing.T) {
	s := gather(t)
	s.stand("bob:1", 200) // granted
	s.stand("alice:1", 100)
	if open, _, err := s.send(wire.Yield("x", "hold:bob:1", wire.Entry{Waiter: "bob:1", Ticket: 200, TTL: life})).Yielded(); open || err != nil {
		t.Errorf("open %v, %v, though somebody with a lower ticket waits", open, err)
	}
	s.checkHold("x", "", "")
	s.checkQueue("alice:1", "bob:1")
	s.checkHeard("turn alice:1 x")
}

func TestLeaveTakesOutAndPassesTheTurnOn(t *testing.T) {
	s := busy(t)
	s.stand("bob:1", 100)
	s.stand("alice:1", 200)
	s.checkDone(wire.Leave("x", "alice:1", false), true)
	s.checkDone(wire.Leave("x", "alice:1", false), false)
	s.checkHeard() // it is held
	s.stand("alice:1", 200)
	s.release("x", "holder:1", 1)
	s.checkHeard("turn bob:1 x")
	s.do(wire.Leave("x", "bob:1", false))
	s.checkHeard("turn alice:1 x")
	s.do(wire.Leave("x", "alice:1", false))
	s.checkHeard()
	s.checkQueue()
}

// Clients that die in the queue again and again leave no more than the last entry, though the first
// waiter lives on.
func TestTheDeadDoNotPileUpBehindALivingWaiter(t *testing.T) {
	for _, c := range []struct {
		name string
		of   func(e wire.Entry) wire.Call
	}{
		{"mutex", func(e wire.Entry) wire.Call { return wire.AcquireInTurn("x", "hold:"+e.Waiter, ttl, 1, e) }},
		{"share", func(e wire.Entry) wire.Call { return wire.AcquireInTurn("x", "hold:"+e.Waiter, ttl, 1, e).Shared() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := busy(t)
			first := wire.Entry{Waiter: "alice:1", Ticket: 1, TTL: time.Hour}
			for i := range 20 {
				s.acquired(c.of(first))
				s.acquired(c.of(wire.Entry{Waiter: quorumlock.Owner("bob:" + strconv.Itoa(i)), Ticket: int64(2 + i), TTL: life}))
				if n := s.inspect("x").Waiting; n > 2 {
					t.Fatalf("%d waiters, want 2", n)
				}
				s.checkDone(wire.Renew("x", "holder:1", ttl), true)
				s.wait(life + time.Millisecond)
			}
			s.acquired(c.of(first))
			s.acquired(c.of(wire.Entry{Waiter: "carol:1", Ticket: 100, TTL: life}))
			s.checkQueue("alice:1", "carol:1")
		})
	}
}
