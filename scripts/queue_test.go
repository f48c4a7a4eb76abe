package scripts_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// crowd is a server whose clock the test moves, with ears for all wake channels.
type crowd struct {
	*server
	now  time.Time
	told chan miniredis.PubsubPmessage
}

func gather(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{server: start(t), now: epoch, told: make(chan miniredis.PubsubPmessage, 1000)}
	c.data.SetTime(c.now)
	sub := c.data.NewSubscriber()
	sub.Psubscribe("quorumlock_wake:*")
	var pump sync.WaitGroup
	pump.Go(func() {
		for m := range sub.Pmessages() {
			c.told <- m
		}
	})
	t.Cleanup(func() {
		sub.Close()
		pump.Wait()
	})
	return c
}

// since returns the messages since its last call, in their order: to the clients that are named, or
// to all.
func (c *crowd) since(clients ...string) (told []string) {
	c.data.Publish("quorumlock_wake:end", "end") // it comes after all earlier messages
	for m := range c.told {
		if m.Message == "end" {
			return told
		}
		if _, client, _ := strings.Cut(m.Channel, ":"); clients == nil || slices.Contains(clients, client) {
			told = append(told, m.Message)
		}
	}
	return told
}

func (c *crowd) wait(d time.Duration) {
	c.now = c.now.Add(d)
	c.data.SetTime(c.now)
	c.data.FastForward(d)
}

// checkHeard checks the messages since the last check.
func (c *crowd) checkHeard(want ...string) {
	c.Helper()
	if got := c.since("alice", "bob", "carol"); !slices.Equal(got, want) {
		c.Errorf("told %q, want %q", got, want)
	}
}

const life = 2 * time.Second

// stand is an attempt of a waiter, under an owner that is used once.
func (c *crowd) stand(waiter quorumlock.Owner, ticket int64) wire.Answer {
	c.Helper()
	return c.queue(wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life})
}

// queue is stand with any entry.
func (c *crowd) queue(e wire.Entry) wire.Answer {
	c.Helper()
	a, err := c.send(wire.AcquireInTurn("x", "hold:"+e.Waiter, ttl, 1, e)).Acquired()
	if err != nil {
		c.Fatal(err)
	}
	return a
}

func (c *crowd) yield(waiter quorumlock.Owner, ticket int64) bool {
	c.Helper()
	open, _, err := c.send(wire.Yield("x", "hold:"+waiter, wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life})).Yielded()
	if err != nil {
		c.Fatal(err)
	}
	return open
}

func (c *crowd) checkQueue(want ...string) {
	c.Helper()
	state, err := c.send(wire.Inspect("x", 100)).Inspected()
	if err != nil {
		c.Fatal(err)
	}
	var got []string
	for _, w := range state.Queue {
		got = append(got, string(w.Owner))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") || state.Waiting != len(want) {
		c.Errorf("%d in the queue: %q, want %q", state.Waiting, got, want)
	}
	if len(want) == 0 {
		for _, key := range []string{wire.QueueKey("x"), wire.EntriesKey("x")} {
			if c.data.Exists(key) {
				c.Errorf("%s is still there", key)
			}
		}
	}
}

func TestWaitersAreQueuedInTheOrderOfTheirTickets(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	for _, tt := range []struct {
		waiter   quorumlock.Owner
		ticket   int64
		position int
	}{{"bob:1", 200, 0}, {"alice:1", 300, 1}, {"carol:1", 100, 0}, {"bob:2", 300, 3}, {"alice:1", 300, 2}} {
		if a := c.stand(tt.waiter, tt.ticket); a != (wire.Answer{Holder: "holder:1", TTL: ttl, Position: tt.position}) {
			t.Errorf("%s with ticket %d: %+v, want position %d", tt.waiter, tt.ticket, a, tt.position)
		}
	}
	c.checkQueue("carol:1", "bob:1", "alice:1", "bob:2")
	c.checkHeard()
}

func TestAFreeLockIsGrantedToTheFirstInTheQueueOnly(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 200)
	c.stand("alice:1", 300)
	c.release("x", "holder:1", 1)
	c.checkHeard("turn bob:1 x")
	if a := c.stand("alice:1", 300); a.Granted || !a.Free || a.Holder != "bob:1" || a.Position != 1 {
		t.Errorf("the second in the queue: %+v", a)
	}
	if a := c.acquire("x", "try:1", 1, 1); a.Granted || !a.Free || a.Holder != "bob:1" || a.Position != -1 {
		t.Errorf("one without a ticket: %+v, want a refusal that says who is the first", a)
	}
	if a := c.stand("bob:1", 200); !a.Granted {
		t.Errorf("the first in the queue: %+v", a)
	}
	c.checkQueue("alice:1")
}

func TestTheFirstThatIsToldItsTurnHasASecond(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 200)
	c.stand("alice:1", 300)
	c.release("x", "holder:1", 1)
	c.checkHeard("turn bob:1 x")
	c.wait(999 * time.Millisecond)
	if a := c.stand("alice:1", 300); a.Granted {
		t.Error("served before the turn of the first was over")
	}
	c.wait(time.Millisecond)
	if a := c.stand("alice:1", 300); !a.Granted {
		t.Errorf("the turn of the first is over: %+v", a)
	}
	c.checkQueue()
}

// A client that knows the clocks of too few nodes sends unsure tickets. A node takes one that is
// near its own clock. Any other overtakes nobody who waits, and is not overtaken by those who come
// later.
func TestAnUnsureTicketCountsIfItIsNearTheClock(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead time.Duration
		want  []string
	}{
		{"right", 0, []string{"bob:1", "alice:1", "carol:1", "dave:1"}},
		{"a second ahead", time.Second, []string{"bob:1", "carol:1", "dave:1", "alice:1"}},
		{"a second behind", -time.Second, []string{"alice:1", "bob:1", "carol:1", "dave:1"}},
		{"more than a second ahead", time.Second + time.Microsecond, []string{"bob:1", "alice:1", "carol:1", "dave:1"}},
		{"more than a second behind", -time.Second - time.Microsecond, []string{"bob:1", "alice:1", "carol:1", "dave:1"}},
		{"years ahead", 20 * 365 * 24 * time.Hour, []string{"bob:1", "alice:1", "carol:1", "dave:1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 1)
			now := c.now.Truncate(time.Millisecond)
			c.stand("bob:1", now.Add(-time.Second/2).UnixMicro())
			c.queue(wire.Entry{Waiter: "alice:1", Ticket: now.Add(tt.ahead).UnixMicro(), Unsure: true, TTL: life})
			c.stand("carol:1", now.Add(time.Second/4).UnixMicro())
			c.stand("dave:1", now.Add(time.Second/2).UnixMicro())
			c.checkQueue(tt.want...)
		})
	}
}

// A sure ticket counts as it is, even if it is years away: the caller may have waited elsewhere. An
// unsure one that comes late, from before the client knew better, changes nothing.
func TestALateUnsureTicketMovesNobody(t *testing.T) {
	for name, late := range map[string]func(c *crowd, e wire.Entry){
		"refresh": func(c *crowd, e wire.Entry) { c.queue(e) },
		"yield":   func(c *crowd, e wire.Entry) { c.send(wire.Yield("x", "hold:alice:1", e)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 1)
			e := wire.Entry{Waiter: "alice:1", Ticket: 300, Unsure: true, TTL: life}
			c.queue(e)
			c.stand("bob:1", 200)
			c.checkQueue("bob:1", "alice:1")
			c.stand("alice:1", 100)
			c.checkQueue("alice:1", "bob:1")
			late(c, e)
			c.checkQueue("alice:1", "bob:1")
			c.stand("alice:1", 250)
			c.checkQueue("bob:1", "alice:1")
		})
	}
}

// The client sets its clock right by what a node says when it refuses a waiter.
func TestARefusalTellsAWaiterTheClock(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	e := wire.Entry{Waiter: "alice:1", Ticket: 100, TTL: life}
	for name, call := range map[string]wire.Call{
		"of a lock":      wire.AcquireInTurn("x", "hold:alice:1", ttl, 1, e),
		"of a reader":    wire.AcquireInTurn("x", "hold:alice:1", ttl, 1, e).Shared(),
		"of a semaphore": wire.AcquireInTurn("s", "hold:alice:1", ttl, 1, e).OfSemaphore(1, 0),
	} {
		if name == "of a semaphore" {
			c.send(wire.AcquireInTurn("s", "holder:2", ttl, 1, wire.Entry{Waiter: "bob:1", TTL: life}).OfSemaphore(1, 0))
		}
		reply := c.send(call)
		if now, ok := reply.Clock(); !ok || now.UnixMilli() != c.now.UnixMilli() {
			t.Errorf("%s: %v, %v in %v, want %v", name, now, ok, reply.Value, c.now)
		}
	}
	if _, ok := c.send(wire.Acquire("x", "hold:carol:1", ttl, 1, 1)).Clock(); ok {
		t.Error("one who does not wait is told the clock")
	}
}

func TestAYieldRejoinsWithItsTicketAndWakesTheFirst(t *testing.T) {
	c := gather(t)
	c.stand("bob:1", 200) // granted
	c.stand("alice:1", 100)
	if open := c.yield("bob:1", 200); open {
		t.Error("open, though somebody with a lower ticket waits")
	}
	c.checkHold("x", "", "")
	c.checkQueue("alice:1", "bob:1")
	c.checkHeard("turn alice:1 x")
}

func TestLeaveTakesOutAndPassesTheTurnOn(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 100)
	c.stand("alice:1", 200)
	if !c.done(wire.Leave("x", "alice:1", false)) || c.done(wire.Leave("x", "alice:1", false)) {
		t.Error("Leave does not tell whether the waiter was queued")
	}
	c.checkHeard() // it is held
	c.stand("alice:1", 200)
	c.release("x", "holder:1", 1)
	c.checkHeard("turn bob:1 x")
	c.done(wire.Leave("x", "bob:1", false))
	c.checkHeard("turn alice:1 x")
	c.done(wire.Leave("x", "alice:1", false))
	c.checkHeard()
	c.checkQueue()
}

// Those who hold the lock long keep the dead from gathering before the living: an entry far back is
// one that is refreshed seldom.
func TestARefreshDropsTheDeadBeforeItWhileTheLockIsHeld(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	for i := range 20 {
		c.stand(quorumlock.Owner("dead:"+strings.Repeat("i", i+1)), int64(i+1))
	}
	c.wait(time.Second)
	if a := c.stand("bob:1", 1000); a.Position != 20 {
		t.Errorf("answer %+v, want the position behind those who may be alive", a)
	}
	c.wait(time.Second)
	if a := c.stand("bob:1", 1000); a.Granted || a.Position != 0 {
		t.Errorf("answer %+v, want the first position", a)
	}
	c.checkQueue("bob:1")
	c.checkHeard() // it is held
}
