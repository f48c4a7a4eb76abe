package scriptmodel_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// costs counts the arguments of all commands of a script, and the fields that a command reads from
// a whole hash.
func (s *lua) costs(c wire.Call) (n int) {
	s.redis.Server().SetPreHook(func(_ *server.Peer, command string, args ...string) bool {
		n += len(args)
		if command == "HGETALL" || command == "HKEYS" {
			fields, _ := s.redis.HKeys(args[0])
			n += len(fields)
		}
		return false
	})
	s.run(c)
	s.redis.Server().SetPreHook(nil)
	return n
}

// crowd creates a lock with these numbers of shares and waiters, at a moment when a call reads only
// some shares.
func (s *lua) crowd(t *testing.T, shares, waiters int, several bool) {
	t.Helper()
	at := epoch - epoch%1_000_000
	for fields := shares; shares > 20 && fields <= shares+3; fields++ {
		for int(at%1_000_000)%fields < 20 {
			at += 7
			fields = shares
		}
	}
	s.reset(at)
	ms := int64(at / 1000)
	expires := ms + 60_000
	lock := scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "mode", Value: "shared"}}, Expires: expires}
	for i := range shares {
		lock.Fields = append(lock.Fields, scriptmodel.Field{Name: fmt.Sprintf("r:%d.2", i), Value: fmt.Sprintf("%013d", expires-1)})
	}
	queue, entries := scriptmodel.Value{Expires: expires}, scriptmodel.Value{Expires: expires}
	for i := range waiters {
		waiter := fmt.Sprintf("w:%d", i)
		queue.Members = append(queue.Members, scriptmodel.Member{Name: waiter, Score: float64(int(at) + i)})
		entry := fmt.Sprintf("%d 1", ms+30_000)
		if several {
			entry += "sm"
		}
		entries.Fields = append(entries.Fields, scriptmodel.Field{Name: waiter, Value: entry})
	}
	token := scriptmodel.Value{Text: "7", Expires: expires}
	scene(map[string]scriptmodel.Value{"x": lock, wire.TokenKey("x"): token, wire.QueueKey("x"): queue, wire.EntriesKey("x"): entries}).do(s)
}

// The number of keys and fields that a script looks at does not grow with the number of sharers or
// of waiters. The first call may look at all of them, once.
func TestACallLooksAtFewOfMany(t *testing.T) {
	s := newLua(t)
	entry := func(waiter quorumlock.Owner, attempt int) wire.Entry {
		return wire.Entry{Waiter: waiter, Ticket: int64(s.now), TTL: 2 * time.Second, Callers: 1,
			Successor: wire.Successor{Attempt: attempt, TTL: time.Second, Cell: 2, Secret: "SECRET"}}
	}
	write := func(n int) wire.Call {
		return wire.AcquireInTurn("x", wire.OfCell(quorumlock.Owner(fmt.Sprintf("a:%d.1", n)), 2), time.Minute, 1, entry(quorumlock.Owner(fmt.Sprintf("a:%d", n)), 1))
	}
	read := func(waiter quorumlock.Owner, attempt int) wire.Call {
		owner := wire.OfCell(waiter+quorumlock.Owner(fmt.Sprintf(".%d", attempt)), 2)
		return wire.AcquireInTurn("x", owner, time.Minute, 1, entry(waiter, attempt)).Shared().Among(0, 4)
	}
	for what, cost := range map[string]func(n int) int{
		"a writer among readers": func(n int) int {
			s.crowd(t, n, 0, false)
			s.run(write(1))
			return s.costs(write(1))
		},
		"a TryLock among readers": func(n int) int {
			s.crowd(t, n, 0, false)
			return s.costs(wire.Acquire("x", "a:1.1.2", time.Minute, 1, 1))
		},
		"a reader among readers, after a long wait behind a writer": func(n int) int {
			s.crowd(t, 2000, 1, false)
			return s.costs(read("b:1", n))
		},
		"a reader that leaves after a long wait": func(n int) int {
			s.crowd(t, 5000, 2, false)
			return s.costs(wire.Leave("x", "w:1", true).Through(n, 2))
		},
		"a reader that leaves while several MultiLocks wait": func(n int) int {
			s.crowd(t, 3, n, true)
			s.run(wire.Release("x", "r:0.2", 1))
			return s.costs(wire.Release("x", "r:1.2", 1).Lends())
		},
		"a reader in the queue of MultiLocks": func(n int) int {
			s.crowd(t, 3, n, true)
			s.run(wire.Release("x", "r:0.2", 1))
			return s.costs(read(quorumlock.Owner(fmt.Sprintf("w:%d", n-1)), 2))
		},
		"a MultiLock that gives its share back": func(n int) int {
			s.crowd(t, 3, n, true)
			waiter := quorumlock.Owner(fmt.Sprintf("w:%d", n-1))
			s.run(read(waiter, 2))
			e := entry(waiter, 2)
			e.Ticket, e.Several = int64(s.now)+int64(n), true
			s.run(wire.Release("x", "r:0.2", 1))
			return s.costs(wire.Yield("x", wire.OfCell(waiter+".2", 2), e).Shared())
		},
		"a MultiLock that leaves": func(n int) int {
			s.crowd(t, 3, n, true)
			s.run(wire.Release("x", "r:0.2", 1))
			return s.costs(wire.Leave("x", quorumlock.Owner(fmt.Sprintf("w:%d", n-1)), true).Through(2, 2))
		},
	} {
		t.Run(what, func(t *testing.T) {
			few, many := cost(50), cost(2000)
			t.Logf("%d for 50, %d for 2,000", few, many)
			if many > few+10 {
				t.Errorf("a call looks at %d for 50, and %d for 2,000", few, many)
			}
		})
	}
}
