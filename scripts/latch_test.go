package scripts_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// latched is a call of the latch x, with three ids to open it, that must not fail. The outcome has
// its ids.
func (s *server) latched(mode wire.LatchMode, ids ...string) wire.LatchState {
	s.Helper()
	got := s.latchState(wire.Latch("x", 3, mode, time.Hour, "me", ids...))
	tail := s.latchState(wire.LatchTail("x", 3, 100))
	got.IDs, tail.IDs = tail.IDs, nil
	if len(got.IDs) != got.Count || tail.There != got.There || tail.Digest != got.Digest {
		s.Errorf("%+v, and read again %+v", got, tail)
	}
	return got
}

func (s *server) latchState(c wire.Call) wire.LatchState {
	s.Helper()
	got, err := s.send(c).Latched(3)
	if err != nil {
		s.Fatal(err)
	}
	return got
}

func (s *server) checkLatch(got wire.LatchState, open bool, server string, ids ...string) {
	s.Helper()
	if !got.There || got.Open != open || got.Server != server || !slices.Equal(got.IDs, ids) {
		s.Errorf("got %+v, want open %v at %s with %q", got, open, server, ids)
	}
}

func TestALatchCountsEachIDOnceAndOpens(t *testing.T) {
	s := start(t)
	s.checkLatch(s.latched(wire.MakeLatch, "b"), false, "me", "b")
	s.checkLatch(s.latched(wire.MakeLatch, "b"), false, "me", "b")
	s.checkLatch(s.latched(wire.MakeLatch, "a", "b"), false, "me", "b", "a")
	s.checkLatch(s.latched(wire.ReadLatch), false, "me", "b", "a")
	s.checkLatch(s.latched(wire.KeepLatch, "c"), true, "me")
	s.checkLatch(s.latched(wire.MakeLatch, "d"), true, "me")
	if keys := s.data.Keys(); !slices.Equal(keys, []string{"x"}) {
		t.Errorf("an open latch has the keys %q, want its name alone", keys)
	}
}

// Two nodes with the same ids have the same digest, in whatever order the ids came.
func TestTheDigestOfALatchIsThatOfItsIDs(t *testing.T) {
	digests := map[int64]string{}
	for _, order := range [][]string{{"a", "b", "c"}, {"b", "a"}, {"a", "b"}, {"c", "a", "b"}, {"a"}, {"ab"}, {"a", "c"}, {}} {
		s := start(t)
		var digest int64
		for _, id := range order {
			digest = s.latchState(wire.Latch("x", 9, wire.MakeLatch, time.Hour, "me", id)).Digest
		}
		slices.Sort(order)
		ids := fmt.Sprint(order)
		if other, ok := digests[digest]; ok && other != ids {
			t.Errorf("%s and %s have the digest %d", ids, other, digest)
		}
		digests[digest] = ids
	}
	if len(digests) != 6 {
		t.Errorf("six sets have the digests %v", digests)
	}
}

// A cell compares the ids up to its cut, without the ids of the call, wherever these are.
func TestALatchComparesTheRestOfItsIDs(t *testing.T) {
	a, b := start(t), start(t)
	for _, id := range []string{"1", "2", "3", "4"} {
		a.latchState(wire.Latch("x", 9, wire.MakeLatch, time.Hour, "me", id))
	}
	for _, id := range []string{"5", "2", "1"} {
		b.latchState(wire.Latch("x", 9, wire.MakeLatch, time.Hour, "me", id))
	}
	if tail := a.latchState(wire.LatchTail("x", 9, 2)); !slices.Equal(tail.IDs, []string{"3", "4"}) || tail.Count != 4 {
		t.Errorf("%+v, want the ids 3 and 4 of 4", tail)
	}
	b.latchState(wire.Latch("x", 9, wire.MakeLatch, time.Hour, "me", "7")) // after the cut
	rest := func(s *server, cut int, ids ...string) wire.LatchState {
		return s.latchState(wire.LatchRest("x", 9, time.Hour, "me", cut, ids))
	}
	if x, y := rest(a, 4, "3", "4", "5"), rest(b, 3, "3", "4", "5"); x.Count != 2 || x.Count != y.Count || x.Digest != y.Digest {
		t.Errorf("%+v and %+v, want the digest of 1 and 2", x, y)
	}
	if x, y := rest(a, 4, "3", "4"), rest(b, 3, "3", "4"); x.Digest == y.Digest {
		t.Errorf("%+v and %+v differ in 5", x, y)
	}
	if x := rest(b, 100, "1", "2", "3", "4", "5", "7"); x.Count != 0 || x.Digest != 0 {
		t.Errorf("%+v, want nothing", x)
	}
}

func TestALatchThatIsNotThereIsMadeOnlyByThoseWhoMay(t *testing.T) {
	for mode, makes := range map[wire.LatchMode]bool{
		wire.ReadLatch: false, wire.KeepLatch: false, wire.MakeLatch: true, wire.RestoreLatch: true, wire.OpenLatch: true,
	} {
		t.Run(string(mode), func(t *testing.T) {
			s := start(t)
			if got := s.latched(mode, "a"); got.There != makes {
				t.Errorf("%+v, want it there: %v", got, makes)
			}
			if keys := s.data.Keys(); len(keys) > 0 != makes {
				t.Errorf("the keys are %q", keys)
			}
		})
	}
}

// A node that missed a latch may have granted a mutex of the same name by mistake. The latch is
// restored there, past the token, and keeps the name of its server.
func TestALatchIsRestored(t *testing.T) {
	s := start(t)
	s.grant("x", alice, 1, 100)
	s.release("x", alice, 1)
	s.checkLatch(s.latched(wire.RestoreLatch, "a"), false, "me", "a")
	if got := s.latchState(wire.Latch("x", 3, wire.RestoreLatch, time.Hour, "another", "b")); got.Server != "me" {
		t.Errorf("%+v, want the server me", got)
	}
}

func TestALatchIsKeptFromTheLastCallThatChangesIt(t *testing.T) {
	s := start(t)
	check := func(want time.Duration) {
		t.Helper()
		s.checkTTL("x", want)
		s.checkTTL(wire.LatchKey("x"), want)
	}
	s.latched(wire.MakeLatch, "a")
	check(time.Hour)
	s.data.FastForward(10 * time.Minute)
	s.latched(wire.ReadLatch)
	check(50 * time.Minute)
	s.latched(wire.KeepLatch)
	check(time.Hour)
	s.data.FastForward(time.Minute)
	// A client with a shorter retention takes nothing from the others.
	s.latchState(wire.Latch("x", 3, wire.MakeLatch, time.Minute, "me", "a"))
	check(59 * time.Minute)
	s.latched(wire.OpenLatch)
	s.checkTTL("x", time.Hour)
	s.data.FastForward(time.Hour)
	if got := s.latched(wire.KeepLatch, "b"); got.There {
		t.Errorf("after its retention: %+v, want that it is not there", got)
	}
}

// One of its two keys may be evicted. Then it has forgotten what was there, and is whole again with
// the next call.
func TestALatchLosesAKey(t *testing.T) {
	s := start(t)
	s.latched(wire.MakeLatch, "a")
	s.data.Del("x")
	if got := s.latched(wire.ReadLatch); got.There || !slices.Equal(got.IDs, []string{"a"}) {
		t.Errorf("%+v, want a latch that is not there, and its id", got)
	}
	s.checkLatch(s.latched(wire.MakeLatch, "b"), false, "me", "a", "b")
	s.data.Del(wire.LatchKey("x"))
	s.checkLatch(s.latched(wire.MakeLatch, "c"), false, "me", "c")
}

func TestALatchTellsOnceThatItOpens(t *testing.T) {
	s := start(t)
	heard := s.listenTo("quorumlock_latch:{x}")
	s.latched(wire.MakeLatch, "a")
	s.latched(wire.MakeLatch, "b")
	heard.check()
	s.latched(wire.MakeLatch, "c")
	heard.check("open")
	s.latched(wire.MakeLatch, "c", "d")
	s.latched(wire.OpenLatch)
	heard.check()
}

func TestALatchOfAnotherNIsRefusedWithBothNumbers(t *testing.T) {
	ofFive := func(r wire.Reply) (any, error) { return r.Latched(5) }
	for _, mode := range []wire.LatchMode{wire.ReadLatch, wire.KeepLatch, wire.MakeLatch, wire.RestoreLatch, wire.OpenLatch} {
		s := start(t)
		s.latched(wire.MakeLatch, "a")
		s.refuses(wire.Latch("x", 5, mode, 2*time.Hour, "me", "b"), ofFive, quorumlock.ErrLatchMismatch, "5 here, and 3 at the node")
	}
}

func TestALatchOnTheNameOfSomethingElseIsRefused(t *testing.T) {
	for what, tt := range map[string]struct {
		put  func(s *server)
		want string
	}{
		"a held mutex":      {func(s *server) { s.grant("x", alice, 1, 100) }, "used as a latch, and is a mutex or a read-write lock:"},
		"a free mutex":      {func(s *server) { s.grant("x", alice, 1, 100); s.release("x", alice, 1) }, "and is a mutex or a read-write lock that was locked within the last day"},
		"Redisson's latch":  {func(s *server) { s.put("x", "3") }, "and is a string, as the countdown latch of Redisson's has"},
		"Redisson's RWLock": {func(s *server) { s.data.HSet("x", "mode", "read", thread, "1") }, "and is a read-write lock of Redisson's"},
		"a hash":            {func(s *server) { s.data.HSet("x", "visits", "5") }, `and is a hash with the field "visits"`},
		"a list":            {func(s *server) { _, _ = s.data.Push("x", "a") }, "and is another type of value"},
		"a zset":            {func(s *server) { _, _ = s.data.ZAdd("x", 1, "a") }, "and is another type of value"},
		"ids that are none": {func(s *server) { s.put(wire.LatchKey("x"), "a") }, "whose key quorumlock_latch holds another type"},
	} {
		t.Run(what, func(t *testing.T) {
			s := start(t)
			tt.put(s)
			err := s.refuses(wire.Latch("x", 3, wire.MakeLatch, time.Hour, "me", "a"), parsers["Latched"], quorumlock.ErrWrongKind, tt.want)
			if n, ok := errors.AsType[*quorumlock.NodeError](err); !ok || n.Node == "" {
				t.Errorf("%v, want a NodeError", err)
			}
		})
	}
}

func TestAMutexOnTheNameOfALatchIsRefused(t *testing.T) {
	for _, ids := range [][]string{{"a"}, {"a", "b", "c"}} {
		for what, tt := range map[string]struct {
			call wire.Call
			read parser
		}{
			"acquire":         {wire.Acquire("x", alice, ttl, 1, 100), asAcquired},
			"guarded":         {wire.Acquire("x", alice, ttl, 1, 100).Guarded(ttl), asAcquired},
			"restore":         {wire.Restore("x", alice, ttl, 100), asAcquired},
			"acquire in turn": {wire.AcquireInTurn("x", alice, ttl, 100, wire.Entry{Waiter: "alice:9", Ticket: 1, TTL: ttl}), asAcquired},
			"force release":   {wire.ForceRelease("x"), parsers["Done"]},
			"inspect":         {wire.Inspect("x", 9), parsers["Inspected"]},
		} {
			t.Run(fmt.Sprint(what, " with ", len(ids)), func(t *testing.T) {
				s := start(t)
				s.latched(wire.MakeLatch, ids...)
				if err := s.refuses(tt.call, tt.read, quorumlock.ErrWrongKind, "used as a mutex, and is a latch"); !errors.Is(err, quorumlock.ErrNotALock) {
					t.Errorf("%v, want ErrNotALock, too", err)
				}
			})
		}
	}
}

func TestALatchHasAnyNameAndAnyIDs(t *testing.T) {
	odd := []string{"\r\n", "\x00", " two  words ", "\xff\xfe", strings.Repeat("k", 200), "1", "-nan", "quorumlock_latch", "🔒"}
	many := make([]string, 4095) // which fit into a reply
	for i := range many {
		many[i] = fmt.Sprintf("%0200d", i)
	}
	check := func(name string, ids []string) {
		s, n := start(t), len(ids)+1
		s.do(wire.Latch(name, n, wire.MakeLatch, time.Hour, "me", ids...))
		got, err := s.send(wire.LatchTail(name, n, n)).Latched(n)
		if err != nil || !slices.Equal(got.IDs, ids) {
			t.Errorf("%q: %d ids, %v, want %d", name, len(got.IDs), err, len(ids))
		}
	}
	for _, name := range names {
		check(name, odd)
	}
	check("x", many)
	if a, b := wire.LatchKey("x"), wire.LatchKey("{x}"); a == b || a != "quorumlock_latch:{x}" || b != "quorumlock_latch*:{x}" {
		t.Errorf("the keys of x and {x} are %s and %s", a, b)
	}
}
