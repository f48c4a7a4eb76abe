package scripts_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// reader is the entry of a waiter that wants to share the lock.
func reader(waiter quorumlock.Owner, ticket int64, attempt int) wire.Entry {
	return wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life, Callers: 1, Successor: heir(attempt, lent)}
}

// reads is an attempt of a waiter that wants to share the lock.
func (s *server) reads(owner quorumlock.Owner, e wire.Entry) wire.Answer {
	s.Helper()
	return s.acquired(wire.AcquireInTurn("x", owner, ttl, 0, e).Shared())
}

// A yield through a server's other address queues a waiter again, though its successor already
// shares the lock there. If the lock were handed to it once more, one server would count twice.
func TestAServerWithTwoAddressesHandsOverOneShare(t *testing.T) {
	s := busy(t)
	again := reader("bob:1", 100, 1)
	again.Successor.Cell = 8
	yields := func(want bool) {
		t.Helper()
		s.share("carol:1", ttl)
		s.do(wire.Yield("x", "bob:1.8", again).Shared().Among(6, 8))
		s.checkQueue("bob:1")
		s.release("x", "carol:1", 1)
		if got := s.data.HGet("x", "bob:1/1.8") != ""; got != want {
			t.Errorf("the waiter shares the lock as another cell: %v, want %v", got, want)
		}
	}
	s.acquired(wire.AcquireInTurn("x", "bob:1.7", ttl, 0, reader("bob:1", 100, 1)).Shared().Among(6, 8))
	s.release("x", "holder:1", 1)
	if s.data.HGet("x", "bob:1/1.7") == "" {
		t.Fatal("the waiter was not handed its share")
	}
	yields(false)
	s.checkQueue()
	s.wait(lent + 2*time.Millisecond) // the first share is over
	yields(true)
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
		leaves wire.Call
		handed bool
	}{
		"one reader leaves":                    {wire.Release("x", "reader:1", 1), false},
		"a reader with other locks leaves":     {wire.Release("x", "reader:1", 1).Lends(), true},
		"a waiter for several locks gives up":  {wire.Leave("x", "carol:1", true), false},
		"a waiter for several locks gives way": {wire.Yield("x", "carol:1.1", several("carol:1", 300)).Shared(), false},
		"a writer leaves":                      {wire.Release("x", "writer:1", 1), true},
	} {
		t.Run(what, func(t *testing.T) {
			s := gather(t)
			s.setClock(today)
			write := what == "a writer leaves"
			if write {
				s.grant("x", "writer:1", 1, 100)
			} else {
				s.share("reader:1", ttl)
				s.share("reader:2", ttl)
			}
			for i, waiter := range []quorumlock.Owner{"alice:1", "bob:1", "carol:1"} {
				e := several(waiter, int64(100*(i+1)))
				e.Several = !write || waiter != "carol:1"
				if a := s.reads(waiter+".1", e); a.Granted { // it gives its share back, as another lock was taken
					s.do(wire.Yield("x", waiter+".1", e).Shared())
				}
			}
			s.do(tt.leaves)
			for successor, want := range map[quorumlock.Owner]bool{"alice:1/1.7": tt.handed, "bob:1/1.7": false, "carol:1/1.7": write} {
				s.checkDone(wire.Renew("x", successor, ttl), want)
			}
		})
	}
}

// Shares that nobody has released pile up while others share the lock and nobody waits. However
// many, they must not make the lock unusable.
func TestManySharesThatAreOver(t *testing.T) {
	s := start(t)
	s.setClock(today)
	s.share(alice, ttl)
	for i := range 9000 {
		s.data.HSet("x", fmt.Sprint("dead:", i), fmt.Sprint(today.Add(time.Second).UnixMilli()))
	}
	s.setClock(today.Add(2 * time.Second))
	s.checkRefused(s.acquire("x", bob, 1, 100), alice)
	if n, _ := s.data.HKeys("x"); len(n) != 2 {
		t.Errorf("%d fields are left", len(n))
	}
}

// A writer among many sharers reads only some of their shares. It is refused while one share lasts.
// Shares that are over do not refuse it.
func TestAWriterAmongManyShares(t *testing.T) {
	for _, alive := range []bool{true, false} {
		s := start(t)
		s.setClock(today.Add(50 * time.Microsecond)) // not a moment at which a call reads all
		s.share(alice, time.Hour)
		for i := range 90 {
			s.data.HSet("x", fmt.Sprint("dead:", i), fmt.Sprint(today.Add(-time.Second).UnixMilli()))
		}
		if !alive {
			s.data.HDel("x", string(alice))
		}
		if a := s.acquire("x", bob, 1, 200); a.Granted == alive || alive && (!a.Shared || a.TTL != time.Hour) {
			t.Errorf("%+v, with a share that lasts: %v", a, alive)
		}
	}
}

// In a long queue, a node skips the waiters that know that they may share the lock. A writer among
// them still blocks those behind it. They are called when the writer leaves, and when it has had
// the lock.
func TestAWriterInALongQueueOfReaders(t *testing.T) {
	const n = 100
	several := func(i int) wire.Entry {
		e := reader(quorumlock.Owner(fmt.Sprintf("r:%d", i)), int64(100*i), 1)
		e.Several, e.TTL = true, time.Minute
		return e
	}
	asks := func(s *server, i int) wire.Answer { return s.reads(several(i).Waiter+".1", several(i)) }
	for what, leaves := range map[string]func(s *server){
		"gives up":  func(s *server) { s.do(wire.Leave("x", "w:1", true)) },
		"is served": func(s *server) { s.release("x", "reader:1", 1); s.stand("w:1", 5010); s.release("x", "hold:w:1", 1) },
	} {
		t.Run(what, func(t *testing.T) {
			s := gather(t)
			s.setClock(today)
			s.share("reader:1", ttl)
			for i := range n {
				s.do(wire.Yield("x", several(i).Waiter+".1", several(i)).Shared())
			}
			s.share("reader:2", ttl)
			s.release("x", "reader:2", 1)
			if s.data.HGet(wire.EntriesKey("x"), "served") == "" {
				t.Fatal("the node would look at all waiters again")
			}
			s.stand("w:1", 5010)
			if a := asks(s, 80); a.Granted || a.Holder != "" && !a.Shared {
				t.Errorf("a reader behind the writer got %+v", a)
			}
			s.checkGranted(asks(s, 40))
			s.release("x", "r:40.1", 1)
			if what == "is served" { // all waiters before the writer give up
				for i := range 51 {
					s.do(wire.Leave("x", several(i).Waiter, true))
				}
			}
			s.since()
			leaves(s)
			if told := s.since("r"); !slices.Contains(told, "turn r:80 x") {
				t.Errorf("told %q, want that r:80 is called", told)
			}
			for i := range n {
				s.do(wire.Leave("x", several(i).Waiter, true))
			}
			s.checkQueue()
		})
	}
}

// The key of a lock ends with the last share: Redisson's clients wait for the key's own TTL.
func TestTheKeyOfASharedLockEndsWithItsLastShare(t *testing.T) {
	s := start(t)
	s.setClock(today)
	s.share(alice, time.Hour)
	s.share(bob, ttl)
	if in := s.inspect("x"); len(in.Readers) != 2 || in.Readers[0].Owner != alice || in.Readers[1].Owner != bob {
		t.Errorf("%+v, want both readers", in)
	}
	s.release("x", alice, 1)
	if left := s.data.TTL("x"); left > ttl {
		t.Errorf("the key ends in %v, and the only share in %v", left, ttl)
	}
	s.setClock(today.Add(2 * ttl)) // bob is dead
	if state := s.inspect("x"); state.Held() || state.TTL != 0 {
		t.Errorf("%+v, want a free lock without a TTL", state)
	}
	s.share("carol:1", ttl)
	s.release("x", "carol:1", 1)
	s.checkHold("x", "", "")
}

// What a call of a reader costs that waits behind a writer, beside so many who read. Of 5,000
// readers it must not cost fifty times what it does beside 100.
func BenchmarkAReaderBehindAWriter(b *testing.B) {
	for _, many := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			_, nodes := testkit.Nodes(b, 1)
			send := func(c wire.Call) {
				if r := testkit.Send(b.Context(), nodes[0], c)[0]; r.Err != nil {
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
