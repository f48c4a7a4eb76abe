package scripts_test

import (
	"crypto/sha1"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

const (
	lent   = time.Second // the TTL of the handoffs
	secret = "SECRET"    // of every waiter
)

// standWith is an attempt of a waiter that names a successor.
func (c *crowd) standWith(waiter quorumlock.Owner, ticket int64, attempt int) wire.Answer {
	c.Helper()
	return c.standFor(lent, waiter, ticket, attempt)
}

// standFor is standWith, with that TTL of the handoff.
func (c *crowd) standFor(lent time.Duration, waiter quorumlock.Owner, ticket int64, attempt int) wire.Answer {
	c.Helper()
	return c.queue(wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life,
		Successor: wire.Successor{Attempt: attempt, TTL: lent, Cell: 7, Secret: secret}})
}

// handoff is the message of a handoff at cell 7, with its proof.
func handoff(waiter quorumlock.Owner, attempt int, token uint64, lock string) string {
	proof := sha1.Sum(fmt.Appendf(nil, "%s %s %d 7 %d %s %s", secret, string(waiter), attempt, token, lock, secret))
	return fmt.Sprintf("handoff %s %d 7 %d %x %s", string(waiter), attempt, token, proof, lock)
}

func TestAReleaseHandsOverToTheFirstInTheQueue(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 100)
	c.standWith("bob:1", 200, 1)
	c.standWith("alice:1", 100, 3)
	c.wait(lent / 2)
	c.release("x", "holder:1", 1)
	c.checkHold("x", "alice:1/3.7", "1")
	c.checkTTL("x", lent)
	c.checkToken("x", "101")
	c.checkTTL(wire.TokenKey("x"), kept-lent/2)
	c.checkQueue("bob:1")
	c.checkHeard(handoff("alice:1", 3, 101, "x"))
	if !c.done(wire.Renew("x", "alice:1/3.7", ttl)) {
		t.Error("the successor cannot renew")
	}
	c.checkTTL("x", ttl)
	c.wait(time.Millisecond)
	c.release("x", "alice:1/3.7", 1)
	c.checkHold("x", "bob:1", "") // bob came too long ago
	c.checkHeard("turn bob:1 x")
}

func TestNothingIsHandedOverWithout(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(c *crowd)
	}{
		{"a successor", func(c *crowd) { c.stand("alice:1", 100) }},
		{"a waiter who came a moment ago", func(c *crowd) { c.standWith("alice:1", 100, 1); c.wait(lent/2 + time.Millisecond) }},
		{"one who came 0.65 s ago at most, for however long", func(c *crowd) { c.standFor(1800*time.Millisecond, "alice:1", 100, 1); c.wait(651 * time.Millisecond) }},
		{"a clock that goes forward", func(c *crowd) { c.standWith("alice:1", 100, 1); c.now = c.now.Add(-time.Minute); c.data.SetTime(c.now) }},
		{"a counter", func(c *crowd) {
			c.standWith("alice:1", 100, 1)
			c.data.Del(wire.TokenKey("x"))
			c.Cleanup(func() { c.checkNoToken("x") })
		}},
		{"a counter above zero", func(c *crowd) {
			c.standWith("alice:1", 100, 1)
			c.put(wire.TokenKey("x"), "-1")
			c.Cleanup(func() { c.checkNoToken("x") })
		}},
		{"a counter with a number to come", func(c *crowd) {
			c.standWith("alice:1", 100, 1)
			c.put(wire.TokenKey("x"), "9007199254740991")
			c.Cleanup(func() { c.checkToken("x", "9007199254740991") })
		}},
		{"a secret that proves it", func(c *crowd) {
			c.queue(wire.Entry{Waiter: "alice:1", Ticket: 100, TTL: life, Successor: wire.Successor{Attempt: 1, TTL: lent, Cell: 7}})
		}},
		{"what is stored of the waiter", func(c *crowd) {
			c.standWith("alice:1", 100, 1)
			c.data.HSet(wire.EntriesKey("x"), "alice:1", "99999999999999 1")
		}},
		{"Redisson's clients having their chance", func(c *crowd) {
			c.standWith("alice:1", 100, 1)
			confirmed := make(chan struct{}, 9)
			c.Cleanup(transport.Of(c.node).Listen(wire.UnlockChannel("x"), func(string) { confirmed <- struct{}{} }))
			<-confirmed
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 100)
			tt.prepare(c)
			c.release("x", "holder:1", 1)
			c.checkHold("x", "", "")
			c.checkQueue("alice:1")
			c.checkHeard("turn alice:1 x")
		})
	}
}

func TestTheNextAttemptTakesOverEarlierHandoffs(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 100)
	c.standWith("alice:1", 100, 9)
	c.standWith("bob:1", 50, 1)
	c.standWith("bob:1", 50, 2)
	c.release("x", "holder:1", 1)
	c.checkHold("x", "bob:1/2.7", "1")

	if a := c.standWith("bob:1", 50, 1); a.Granted { // it comes late
		t.Error("an earlier attempt took what a later one was handed")
	}
	if a := c.standWith("bob:1", 50, 2); a.Granted || a.Holder != "bob:1/2.7" {
		t.Errorf("%+v: the same attempt took what it was handed", a)
	}
	if a := c.stand("bob:1", 50); a.Granted {
		t.Error("an attempt without a successor took what an earlier one was handed")
	}
	if a := c.standWith("alice:1", 100, 10); a.Granted {
		t.Error("somebody else took it")
	}
	c.checkHold("x", "bob:1/2.7", "1")
	if a := c.standWith("bob:1", 50, 3); !a.Granted || a.Again || a.Token != 102 {
		t.Errorf("%+v, want the lock with the next token", a)
	}
	c.checkHold("x", "hold:bob:1", "1")
	c.checkTTL("x", ttl)
	c.checkQueue("alice:1")
}

func TestAWaiterReleasesWhatItWasHanded(t *testing.T) {
	for _, tt := range []struct {
		name string
		call wire.Call
		back bool
	}{
		{"leaves", wire.Leave("x", "bob:1", true), true},
		{"leaves, and its successor holds", wire.Leave("x", "bob:1", false), false},
		{"another with a name that begins like it leaves", wire.Leave("x", "bob:", true), false},
		{"another with a longer name leaves", wire.Leave("x", "bob:11", true), false},
		{"its successor leaves, as if it were a waiter", wire.Leave("x", "bob:1/2", true), false},
		{"nobody leaves", wire.Leave("x", "", true), false},
		{"releases what it acquired", wire.ReleaseAndLeave("x", "bob:7", "bob:1", true), true},
		{"releases what it acquired, and its successor holds", wire.ReleaseAndLeave("x", "bob:7", "bob:1", false), false},
		{"another releases", wire.ReleaseAndLeave("x", "bob:7", "bob:11", true), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 100)
			c.standWith("bob:1", 50, 2)
			c.stand("alice:1", 100)
			c.release("x", "holder:1", 1)
			c.checkHeard(handoff("bob:1", 2, 101, "x"))
			if r := c.send(tt.call); r.Err != nil {
				t.Fatal(r.Err)
			}
			if tt.back {
				c.checkHold("x", "", "")
				c.checkHeard("turn alice:1 x")
			} else {
				c.checkHold("x", "bob:1/2.7", "1")
				c.checkHeard()
			}
		})
	}
}
