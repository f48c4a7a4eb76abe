package scripts_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

func TestTheBaseOfAnOwnerIsWithoutItsCell(t *testing.T) {
	for _, tt := range []struct{ owner, base quorumlock.Owner }{
		{"", ""}, {"12", "12"}, {".", "."}, {"c:1", "c:1"}, {"c:1.0", "c:1.0"}, {"c:1.", "c:1."}, {"c:1.x", "c:1.x"}, {"c:1.2x", "c:1.2x"},
		{"c:1.1.0", "c:1.1"}, {"c:1.3.12", "c:1.3"},
		{"w:7/3", "w:7/3"}, {"w:7/3.2", "w:7/3"},
		{"10.0.0.1:6", "10.0.0.1:6"}, {"10.0.0.1:6.2.4", "10.0.0.1:6.2"},
		{thread, thread}, {thread + ".3.1", thread + ".3"}, {"web-3~" + thread + "/4.3", "web-3~" + thread + "/4"},
	} {
		if got := wire.Base(tt.owner); got != tt.base {
			t.Errorf("Base(%q) = %q, want %q", tt.owner, got, tt.base)
		}
	}
}

func TestAnOwnerOfACellIsOfItsBase(t *testing.T) {
	seen := make(map[quorumlock.Owner]bool)
	for _, owner := range []quorumlock.Owner{wire.OwnerOf("c:1", 1), wire.OwnerOf("10.0.0.1:6", 12), wire.OwnerOf(thread, 3), wire.SuccessorOf("w:7", 3)} {
		for _, cell := range []int{0, 1, 9, 10, 255} {
			o := wire.OfCell(owner, cell)
			if got := wire.Base(o); seen[o] || got != owner || wire.Base(got) != owner {
				t.Errorf("%q, seen %v: its base is %q, and the base of that is %q, want %q", o, seen[o], got, wire.Base(got), owner)
			}
			seen[o] = true
		}
	}
	if got := wire.OfCell(wire.SuccessorOf("w:7", 3), 2); got != "w:7/3.2" {
		t.Errorf("the successor at cell 2 is %q, want w:7/3.2", got)
	}
}

// Two addresses of one server are two cells. They must not both grant.
func TestTwoCellsOfOneServerDoNotBothGrant(t *testing.T) {
	s := start(t)
	s.grant("x", wire.OfCell("c:1", 0), 1, 100)
	s.checkRefused(s.acquire("x", wire.OfCell("c:1", 1), 1, 100), "c:1.0")
	s.checkDone(wire.Renew("x", "c:1.1", ttl), false)
	s.checkDone(wire.Renew("x", "c:1", ttl), false)
	s.checkDone(wire.Raise("x", "c:1.1", ttl, 100, 200), false)
	s.checkRelease(wire.Release("x", "c:1.1", 1), 0, false)
	s.checkHold("x", "c:1.0", "1")
}

func TestInspectShowsForHowManyCallersAnEntryStands(t *testing.T) {
	s := gather(t)
	s.grant("x", wire.OfCell("c:1.1", 2), 1, 100)
	const ticket = 1_700_000_000_000_001
	ids := []quorumlock.Owner{"alice:1", "bob:1", "bob:2", "carol:1", "carol:2"}
	for i, callers := range []int{256, 0, 3, 9, -1} {
		e := wire.Entry{Waiter: ids[i], Ticket: ticket + int64(i), TTL: life, Callers: callers}
		if i == 0 {
			e.Successor = heir(2, lent)
		}
		s.queue(e)
	}
	s.data.HDel(wire.EntriesKey("x"), "carol:1") // evicted
	check := func(owner quorumlock.Owner, hold int, left time.Duration, callers ...int) {
		t.Helper()
		want := quorumlock.State{Owner: owner, HoldCount: hold, TTL: left, Token: 100, Waiting: 5}
		for i, n := range callers {
			want.Queue = append(want.Queue, quorumlock.Waiter{Owner: ids[i], Since: time.UnixMicro(ticket + int64(i)), Callers: n})
		}
		got, err := s.send(wire.Inspect("x", len(callers))).Inspected()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	check("c:1.1", 1, ttl, 256, 1, 3, 1, 1)
	check("c:1.1", 1, ttl, 256)
	check("c:1.1", 1, ttl)
	s.data.Del("x")
	s.queue(wire.Entry{Waiter: "bob:2", Ticket: ticket + 2, TTL: life, Callers: 4}) // which calls alice
	s.checkHeard("turn alice:1 x")
	check("", 0, 0, 256, 1, 4, 1, 1)
}
