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

// A reader was handed the lock in its turn, and asks again. A writer that has come since must not
// keep it out: each would wait for the other until the share is over.
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

// A yield through a server's other address queues a waiter again, though its successor already
// shares the lock there. If the lock were handed to it once more, one server would count twice.
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

// Waiters that want to share the lock and wait for other locks, too, may have no use for a share
// yet. So only the first of them is handed one, and only by an owner that had other locks, too, or
// had this one for itself. Others are called once.
func TestAShareIsHandedToOneWaiterForSeveralLocks(t *testing.T) {
	several := func(waiter quorumlock.Owner, ticket int64) wire.Entry {
		e := reader(waiter, ticket, 1)
		e.Several = true
		return e
	}
	for what, tt := range map[string]struct {
		release func(c *crowd)
		handed  bool
	}{
		"one reader leaves":                    {func(c *crowd) { c.release("x", "reader:1", 1) }, false},
		"a reader with other locks leaves":     {func(c *crowd) { c.send(wire.Release("x", "reader:1", 1).Lends()) }, true},
		"a waiter for several locks gives up":  {func(c *crowd) { c.send(wire.Leave("x", "carol:1", true)) }, false},
		"a waiter for several locks gives way": {func(c *crowd) { c.send(wire.Yield("x", "carol:1.1", several("carol:1", 300)).Shared()) }, false},
	} {
		t.Run(what, func(t *testing.T) {
			c := gather(t)
			c.send(wire.Acquire("x", "reader:1", ttl, 1, 100).Shared())
			c.send(wire.Acquire("x", "reader:2", ttl, 1, 100).Shared())
			for i, waiter := range []quorumlock.Owner{"alice:1", "bob:1", "carol:1"} { // each gave its share back, as another lock was taken
				c.share(waiter+".1", several(waiter, int64(100*(i+1))))
				if r := c.send(wire.Yield("x", waiter+".1", several(waiter, int64(100*(i+1)))).Shared()); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			tt.release(c)
			for successor, want := range map[quorumlock.Owner]bool{"alice:1/1.7": tt.handed, "bob:1/1.7": false, "carol:1/1.7": false} {
				if got := c.done(wire.Renew("x", successor, ttl)); got != want {
					t.Errorf("%s has a share: %v, want %v", successor, got, want)
				}
			}
		})
	}
	t.Run("a writer leaves", func(t *testing.T) {
		c := gather(t)
		c.grant("x", "writer:1", 1, 100)
		c.share("alice:1.1", several("alice:1", 100))
		c.share("bob:1.1", several("bob:1", 200))
		c.share("carol:1.1", reader("carol:1", 300, 1))
		c.release("x", "writer:1", 1)
		for successor, want := range map[quorumlock.Owner]bool{"alice:1/1.7": true, "bob:1/1.7": false, "carol:1/1.7": true} {
			if got := c.done(wire.Renew("x", successor, ttl)); got != want {
				t.Errorf("%s has a share: %v, want %v", successor, got, want)
			}
		}
	})
}
