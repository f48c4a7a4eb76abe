package scripts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Shares that nobody has released pile up while others share the lock and nobody waits. However
// many, they must not make the lock unusable.
func TestManySharesThatAreOver(t *testing.T) {
	s := start(t)
	now := time.UnixMilli(1_800_000_000_000)
	s.data.SetTime(now)
	s.send(wire.Acquire("x", alice, ttl, 1, 100).Shared())
	for i := range 9000 {
		s.data.HSet("x", fmt.Sprint("dead:", i), fmt.Sprint(now.Add(time.Second).UnixMilli()))
	}
	s.data.SetTime(now.Add(2 * time.Second))
	if a, err := s.send(wire.Acquire("x", bob, ttl, 1, 100)).Acquired(); err != nil || a.Granted || a.Holder != alice {
		t.Errorf("%+v, %.200v, want that alice has it", a, err)
	}
	if n, _ := s.data.HKeys("x"); len(n) != 2 {
		t.Errorf("%d fields are left", len(n))
	}
}

// The key of a lock ends with the last share: Redisson's clients wait for the key's own TTL.
func TestTheKeyOfASharedLockEndsWithItsLastShare(t *testing.T) {
	s := start(t)
	now := time.UnixMilli(1_800_000_000_000)
	s.data.SetTime(now)
	s.send(wire.Acquire("x", alice, time.Hour, 1, 100).Shared())
	s.send(wire.Acquire("x", bob, ttl, 1, 100).Shared())
	s.release("x", alice, 1)
	if left := s.data.TTL("x"); left > ttl {
		t.Errorf("the key ends in %v, and the only share in %v", left, ttl)
	}
	s.data.SetTime(now.Add(2 * ttl)) // bob is dead
	if a, err := s.send(wire.Acquire("x", "carol:1", ttl, 1, 100).Shared()).Acquired(); err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	s.release("x", "carol:1", 1)
	if s.data.Exists("x") {
		fields, _ := s.data.HKeys("x")
		t.Errorf("nobody shares the lock, and %q is left of it for %v", fields, s.data.TTL("x"))
	}
}

// Where many share the lock and somebody waits to have it alone, a reader that comes, leaves or
// releases does not look at all others.
func TestReadersBehindAWriterDoNotLookAtAllReaders(t *testing.T) {
	c := gather(t)
	c.now = time.UnixMilli(1_800_000_000_000).Add(999 * time.Microsecond) // by which nobody of so many looks
	c.data.SetTime(c.now)
	const many = 900
	for i := range many {
		c.send(wire.Acquire("x", quorumlock.Owner(fmt.Sprint("w:", i)), ttl, 1, 100).Shared())
	}
	over := fmt.Sprintf("%013d", c.now.UnixMilli()-1)
	c.data.HSet("x", "dead:1", over)
	for _, who := range []string{"bob:1/1.7", "bob:1/2.7", "bob:1/3.7", "bob:11/1.7"} {
		c.data.HSet("x", who, fmt.Sprintf("%013d", c.now.Add(lent).UnixMilli()))
	}
	c.stand("alice:1", 50)
	c.data.HSet("x", "dead:1", over) // which alice has dropped

	ask := func(owner quorumlock.Owner, attempt int) wire.Answer {
		waiter := owner[:strings.LastIndexByte(string(owner), '.')]
		a, err := c.send(wire.AcquireInTurn("x", owner, ttl, 0, reader(waiter, 100, attempt)).Shared().Among(7, 7)).Acquired()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask("carol:1.7", 1); a.Granted || a.Free || a.Holder != "" || a.TTL != ttl || a.Position != 1 {
		t.Errorf("a reader behind a writer got %+v, want a refusal that names nobody", a)
	}
	if a := ask("bob:1.7", 3); !a.Granted {
		t.Errorf("a reader that was handed the lock got %+v", a)
	}
	c.data.HSet("x", "dave:1/1.7", over)
	if a := ask("dave:1.7", 2); a.Granted || a.Position != 2 {
		t.Errorf("a reader that was handed the lock for a time that is over got %+v, want that it waits behind the writer", a)
	}
	c.release("x", "bob:1.7", 1)
	c.done(wire.Leave("x", "bob:1", true).Through(3, 7))
	fields, _ := c.data.HKeys("x")
	if len(fields) != many+4 || c.data.HGet("x", "bob:11/1.7") == "" {
		t.Errorf("%d fields are left, want the mode, %d readers, two whose share is over, and somebody else's successor", len(fields), many)
	}
	c.checkQueue("alice:1", "carol:1", "dave:1")
}

// What a call of a reader costs that waits behind a writer, beside so many who read. Of 5,000
// readers it must not cost fifty times what it does beside 100.
func BenchmarkAReaderBehindAWriter(b *testing.B) {
	for _, many := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			_, nodes := locktest.Nodes(b, 1)
			send := func(c wire.Call) {
				if r := transport.Of(nodes[0]).Send(b.Context(), c)[0]; r.Err != nil {
					b.Fatal(r.Err)
				}
			}
			for i := range many {
				send(wire.Acquire("x", quorumlock.Owner(fmt.Sprint("w:", i)), time.Hour, 1, 100).Shared())
			}
			send(wire.AcquireInTurn("x", "alice:1.0", time.Hour, 100, wire.Entry{Waiter: "alice:1", Ticket: 1, TTL: time.Hour}))
			again := wire.AcquireInTurn("x", "bob:1.0", time.Hour, 100, reader("bob:1", 2, 1)).Shared().Among(0, 0)
			for b.Loop() {
				send(again)
			}
		})
	}
}

func TestInspectOfALockWhoseSharesAreOver(t *testing.T) {
	s := start(t)
	now := time.UnixMilli(1_800_000_000_000)
	s.data.SetTime(now)
	s.send(wire.Acquire("x", alice, time.Hour, 1, 100).Shared())
	s.send(wire.Acquire("x", bob, ttl, 1, 100).Shared())
	s.release("x", alice, 1)
	s.data.SetTime(now.Add(2 * ttl))
	if state, err := s.send(wire.Inspect("x", 10)).Inspected(); err != nil || state.Held() || state.TTL != 0 {
		t.Errorf("%+v, %v, want a free lock without a TTL", state, err)
	}
}
