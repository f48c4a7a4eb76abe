package scripts_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// lent is for how long the tests hand over.
const lent = time.Second

// standWith is an attempt of a waiter that names an heir.
func (c *crowd) standWith(waiter quorumlock.Owner, ticket int64, attempt int) scripts.Answer {
	c.Helper()
	return c.standFor(lent, waiter, ticket, attempt)
}

// standFor is standWith, to be handed the lock for so long.
func (c *crowd) standFor(lent time.Duration, waiter quorumlock.Owner, ticket int64, attempt int) scripts.Answer {
	c.Helper()
	p := scripts.Place{Waiter: waiter, Ticket: ticket, TTL: life, Heir: scripts.Heir{Attempt: attempt, TTL: lent, Cell: 7}}
	a, err := c.send(scripts.AcquireInTurn("x", "hold:"+waiter, ttl, 1, p)).Acquired()
	if err != nil {
		c.Fatal(err)
	}
	return a
}

func TestAReleaseHandsOverToTheFirstInLine(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 100)
	c.standWith("bob:1", 200, 1)
	c.standWith("alice:1", 100, 3)
	c.wait(lent / 2)
	c.release("x", "holder:1", 1)
	c.checkHold("x", "alice:1/3", "1")
	c.checkTTL("x", lent)
	c.checkToken("x", "101")
	c.checkLine("bob:1")
	c.checkHeard("hand alice:1 3 7 101 x")
	if !c.done(scripts.Renew("x", "alice:1/3", ttl)) {
		t.Error("the heir cannot renew")
	}
	c.checkTTL("x", ttl)
	c.wait(time.Millisecond)
	c.release("x", "alice:1/3", 1)
	c.checkHold("x", "bob:1", "") // bob came too long ago
	c.checkHeard("turn bob:1 x")
}

func TestNothingIsHandedOverWithout(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(c *crowd)
	}{
		{"an heir", func(c *crowd) { c.stand("alice:1", 100) }},
		{"a waiter who came a moment ago", func(c *crowd) { c.standWith("alice:1", 100, 1); c.wait(lent/2 + time.Millisecond) }},
		{"one who came 0.65 s ago at most, for however long", func(c *crowd) { c.standFor(1800*time.Millisecond, "alice:1", 100, 1); c.wait(651 * time.Millisecond) }},
		{"a clock that goes forward", func(c *crowd) { c.standWith("alice:1", 100, 1); c.now = c.now.Add(-time.Minute); c.data.SetTime(c.now) }},
		{"a counter", func(c *crowd) { c.standWith("alice:1", 100, 1); c.data.Del(scripts.TokenKey("x")) }},
		{"a counter with a number to come", func(c *crowd) {
			c.standWith("alice:1", 100, 1)
			c.put(scripts.TokenKey("x"), "9007199254740991")
		}},
		{"Redisson's clients having their chance", func(c *crowd) {
			c.standWith("alice:1", 100, 1)
			confirmed := make(chan struct{}, 9)
			c.Cleanup(c.node.Listen(scripts.UnlockChannel("x"), func(string) { confirmed <- struct{}{} }))
			<-confirmed
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 100)
			tt.prepare(c)
			c.release("x", "holder:1", 1)
			c.checkHold("x", "", "")
			c.checkLine("alice:1")
			c.checkHeard("turn alice:1 x")
		})
	}
}

func TestTheNextAttemptTakesOverWhatWasHandedOver(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 100)
	c.standWith("alice:1", 100, 9)
	c.standWith("bob:1", 50, 1)
	c.standWith("bob:1", 50, 2)
	c.release("x", "holder:1", 1)
	c.checkHold("x", "bob:1/2", "1")

	if a := c.standWith("bob:1", 50, 1); a.Granted { // it comes late
		t.Error("an earlier attempt took what a later one was handed")
	}
	if a := c.standWith("alice:1", 100, 10); a.Granted {
		t.Error("somebody else took it")
	}
	c.checkHold("x", "bob:1/2", "1")
	if a := c.standWith("bob:1", 50, 3); !a.Granted || a.Again || a.Token != 102 {
		t.Errorf("%+v, want the lock with the next token", a)
	}
	c.checkHold("x", "hold:bob:1", "1")
	c.checkTTL("x", ttl)
	c.checkLine("alice:1")
}

func TestAWaiterGivesBackWhatItWasHanded(t *testing.T) {
	for _, tt := range []struct {
		name string
		call scripts.Call
		back bool
	}{
		{"leaves", scripts.Leave("x", "bob:1", scripts.AnyHeir), true},
		{"leaves with that heir", scripts.Leave("x", "", "bob:1/2"), true},
		{"leaves with an earlier heir", scripts.Leave("x", "bob:1", "bob:1/1"), false},
		{"leaves, and its heir holds", scripts.Leave("x", "bob:1", ""), false},
		{"another with a name that begins like it leaves", scripts.Leave("x", "bob:", scripts.AnyHeir), false},
		{"releases what it acquired", scripts.ReleaseAndLeave("x", "bob:7", "bob:1", scripts.AnyHeir), true},
		{"releases what it acquired, and its heir holds", scripts.ReleaseAndLeave("x", "bob:7", "bob:1", ""), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 100)
			c.standWith("bob:1", 50, 2)
			c.stand("alice:1", 100)
			c.release("x", "holder:1", 1)
			c.checkHeard("hand bob:1 2 7 101 x")
			c.send(tt.call)
			if tt.back {
				c.checkHold("x", "", "")
				c.checkHeard("turn alice:1 x")
			} else {
				c.checkHold("x", "bob:1/2", "1")
				c.checkHeard()
			}
		})
	}
}

func TestAYieldHandsOverToALowerTicketOnly(t *testing.T) {
	c := gather(t)
	c.grant("x", "hold:bob:1", 1, 100)
	c.standWith("alice:1", 200, 1)
	if !c.yield("bob:1", 100) {
		t.Error("not open to the lowest ticket")
	}
	c.checkHold("x", "", "")
	c.checkHeard()

	c.stand("bob:1", 100)
	c.checkHold("x", "hold:bob:1", "1")
	c.standWith("carol:1", 50, 4)
	if c.yield("bob:1", 100) {
		t.Error("open, though it was handed over")
	}
	c.checkHold("x", "carol:1/4", "1")
	c.checkLine("bob:1", "alice:1")
}
