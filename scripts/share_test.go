package scripts_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// reader is the entry of a waiter that wants to share the lock.
func reader(waiter quorumlock.Owner, ticket int64, attempt int) wire.Entry {
	return wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life, Callers: 1,
		Successor: wire.Successor{Attempt: attempt, TTL: lent, Cell: 7, Secret: secret}}
}

// share is an attempt of a waiter that wants to share the lock.
func (c *crowd) share(owner quorumlock.Owner, e wire.Entry) wire.Answer {
	c.Helper()
	a, err := c.send(wire.AcquireInTurn("x", owner, ttl, 0, e).Shared()).Acquired()
	if err != nil {
		c.Fatal(err)
	}
	return a
}

// A reader was handed the lock in its turn, and asks again. A writer that has come since must not keep it out: each would wait
// for the other until the share is over.
func TestTheNextAttemptOfAReaderTakesOverWhatWasHandedToIt(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 100)
	c.share("bob:1.7", reader("bob:1", 100, 1))
	c.release("x", "holder:1", 1)
	if a := c.stand("alice:1", 50); a.Granted {
		t.Fatal("a writer was granted what a reader shares")
	}
	if a := c.share("bob:1.1", reader("bob:1", 100, 2)); !a.Granted {
		t.Errorf("the reader's next attempt was refused: %+v", a)
	}
	if c.data.HGet("x", "bob:1/1.7") != "" {
		t.Error("the successor of its first attempt still shares the lock")
	}
	c.checkQueue("alice:1")
}

// Two addresses may lead to one server. It counts once, whoever else shares the lock there.
func TestAServerWithTwoAddressesIsSharedOnce(t *testing.T) {
	c := gather(t)
	ask := func(owner quorumlock.Owner, cell int) wire.Answer {
		a, err := c.send(wire.Acquire("x", owner, ttl, 1, 100).Shared().Among(0, 2).At(cell)).Acquired()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if !ask("carol:1.1", 2).Granted || !ask("bob:1.1", 0).Granted {
		t.Fatal("two readers were not granted a free lock")
	}
	if a := ask("bob:1.1", 1); a.Granted || wire.Base(a.Holder) != "bob:1.1" {
		t.Errorf("a reader that shares the lock there as another cell got %+v, want a refusal that names it", a)
	}
	c.wait(ttl + 2*time.Millisecond)
	if !ask("carol:1.2", 2).Granted || !ask("bob:1.1", 1).Granted {
		t.Error("what is over is in the way")
	}
}

// A yield through a server's other address queues a waiter again, though its successor already shares the lock there. If the lock
// were handed to it once more, one server would count twice.
func TestAServerWithTwoAddressesHandsOverOneShare(t *testing.T) {
	c := gather(t)
	bob := reader("bob:1", 100, 1)
	again := bob
	again.Successor.Cell = 8
	c.grant("x", "holder:1", 1, 100)
	if _, err := c.send(wire.AcquireInTurn("x", "bob:1.7", ttl, 0, bob).Shared().Among(6, 8)).Acquired(); err != nil {
		t.Fatal(err)
	}
	c.release("x", "holder:1", 1)
	if c.data.HGet("x", "bob:1/1.7") == "" {
		t.Fatal("the waiter was not handed its share")
	}
	c.send(wire.Acquire("x", "carol:1", ttl, 1, 0).Shared())
	c.send(wire.Yield("x", "bob:1.8", again).Shared().Among(6, 8))
	c.checkQueue("bob:1")
	c.release("x", "carol:1", 1)
	if c.data.HGet("x", "bob:1/1.8") != "" {
		t.Error("the waiter was handed a second share, as another cell")
	}
	c.checkQueue()

	// When the first share is over, the waiter may have the other one.
	c.wait(lent + 2*time.Millisecond)
	c.send(wire.Acquire("x", "carol:1", ttl, 1, 0).Shared())
	c.send(wire.Yield("x", "bob:1.8", again).Shared().Among(6, 8))
	c.release("x", "carol:1", 1)
	if c.data.HGet("x", "bob:1/1.8") == "" {
		t.Error("a share that is over is in the way")
	}
}
