package scripts_test

import (
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

func TestALatchCountsEachIDOnceAndTellsOnceThatItOpens(t *testing.T) {
	s := start(t)
	heard := s.listenTo("quorumlock_latch:{x}")
	s.checkLatch(s.latched(wire.MakeLatch, "b"), false, "me", "b")
	s.checkLatch(s.latched(wire.MakeLatch, "b"), false, "me", "b")
	s.checkLatch(s.latched(wire.MakeLatch, "a", "b"), false, "me", "b", "a")
	s.checkLatch(s.latched(wire.ReadLatch), false, "me", "b", "a")
	heard.check()
	s.checkLatch(s.latched(wire.KeepLatch, "c"), true, "me")
	heard.check("open")
	s.checkLatch(s.latched(wire.MakeLatch, "c", "d"), true, "me")
	s.checkLatch(s.latched(wire.OpenLatch), true, "me")
	heard.check()
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

func TestALatchOnTheNameOfSomethingElseIsRefused(t *testing.T) {
	for what, tt := range map[string]struct {
		put  func(s *server)
		kind error
		want string
	}{
		"a latch of another n": {func(s *server) { s.do(wire.Latch("x", 5, wire.MakeLatch, time.Hour, "me", "b")) }, quorumlock.ErrMismatch, "3 here, and 5 at the node"},
		"a held mutex":         {func(s *server) { s.grant("x", alice, 1, 100) }, quorumlock.ErrWrongKind, "used as a latch, and is a mutex or a read-write lock:"},
		"a free mutex":         {func(s *server) { s.grant("x", alice, 1, 100); s.release("x", alice, 1) }, quorumlock.ErrWrongKind, "and is a mutex or a read-write lock that was locked within the last few minutes"},
		"Redisson's latch":     {func(s *server) { s.put("x", "3") }, quorumlock.ErrWrongKind, "and is a string, as the countdown latch of Redisson's has"},
		"Redisson's RWLock":    {func(s *server) { s.data.HSet("x", "mode", "read", thread, "1") }, quorumlock.ErrWrongKind, "and is a read-write lock of Redisson's"},
		"a hash":               {func(s *server) { s.data.HSet("x", "visits", "5") }, quorumlock.ErrWrongKind, `and is a hash with the field "visits"`},
		"a list":               {func(s *server) { _, _ = s.data.Push("x", "a") }, quorumlock.ErrWrongKind, "and is another type of value"},
		"a zset":               {func(s *server) { _, _ = s.data.ZAdd("x", 1, "a") }, quorumlock.ErrWrongKind, "and is another type of value"},
		"ids that are none":    {func(s *server) { s.put(wire.LatchKey("x"), "a") }, quorumlock.ErrWrongKind, "whose key quorumlock_latch holds another type"},
	} {
		t.Run(what, func(t *testing.T) {
			s := start(t)
			tt.put(s)
			namesTheNode(s, s.refuses(wire.Latch("x", 3, wire.MakeLatch, time.Hour, "me", "a"), tt.kind, tt.want))
		})
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
