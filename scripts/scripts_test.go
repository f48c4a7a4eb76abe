package scripts_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
)

func TestKeysAreRedissons(t *testing.T) {
	for _, tt := range []struct{ name, token, channel string }{
		{"x", "redisson_lock_token:{x}", "redisson_lock__channel:{x}"},
		{"invoice:1042", "redisson_lock_token:{invoice:1042}", "redisson_lock__channel:{invoice:1042}"},
		{"{tenant}:x", "redisson_lock_token:{tenant}:x", "redisson_lock__channel:{tenant}:x"},
		{"a{b", "redisson_lock_token:a{b", "redisson_lock__channel:a{b"},
		{"a}b", "redisson_lock_token:{a}b}", "redisson_lock__channel:{a}b}"},
	} {
		if got := wire.TokenKey(tt.name); got != tt.token {
			t.Errorf("TokenKey(%q) = %q, want %q", tt.name, got, tt.token)
		}
		if got := wire.UnlockChannel(tt.name); got != tt.channel {
			t.Errorf("UnlockChannel(%q) = %q, want %q", tt.name, got, tt.channel)
		}
	}
}

// calls are one of every kind.
func calls(name string) map[string]wire.Call {
	return map[string]wire.Call{
		"acquire":       wire.Acquire(name, alice, ttl, 1, 100),
		"raise":         wire.Raise(name, alice, ttl, 100, 200),
		"renew":         wire.Renew(name, alice, ttl),
		"release":       wire.Release(name, alice, 1),
		"leave":         wire.Leave(name, "alice:9", true),
		"force release": wire.ForceRelease(name),
		"inspect":       wire.Inspect(name, 100),
		"guarded":       wire.Acquire(name, alice, ttl, 1, 100).Guarded(ttl),
		"proclaim":      wire.Proclaim(name, alice, ttl, 100, 1, "value"),
		"withdraw":      wire.Withdraw(name, alice),
		"leader":        wire.Leader(name),
		"latch":         wire.Latch(name, 1, wire.ReadLatch, 0, ""),
	}
}

func TestEveryScriptIsKnownByItsOwnSHA(t *testing.T) {
	const abc = "a9993e364706816aba3e25717850c26c9cd0d89d" // RFC 3174
	testkit.Equal(t, (&wire.Script{Source: "abc"}).SHA(), abc, "the SHA of abc")
	seen := make(map[string]string)
	for name, c := range calls("x") {
		if other, ok := seen[c.Script.SHA()]; ok {
			t.Errorf("%s and %s are one script", name, other)
		}
		seen[c.Script.SHA()] = name
		if !strings.HasPrefix(c.Script.Source, "-- ") {
			t.Errorf("%s has no header", name)
		}
	}
}

// names are lock names that a script might take for something else.
var names = []string{"x", "{tenant}:x", "a{b", " two  words ", "Zürich/銀行/🔒", "a\r\nb\n", "a\x00b", "\xff\xfe", `"]]..'--%s%d`}

func TestEveryScriptWorksUnderAnyName(t *testing.T) {
	for _, name := range append(names, strings.Repeat("k", 1<<10)) {
		s := start(t)
		heard := s.listen(name)
		s.grant(name, alice, 1, 100)
		if a := s.acquire(name, bob, 1, 0); a.Granted {
			t.Errorf("%q: granted twice", name)
		}
		s.checkDone(wire.Raise(name, alice, ttl, 100, 200), true)
		s.checkDone(wire.Renew(name, alice, ttl), true)
		s.checkState(name, quorumlock.State{Owner: alice, HoldCount: 1, TTL: ttl, Token: 200})
		s.checkRelease(wire.Release(name, alice, 1), 0, true)
		heard.check(unlocked)
		if keys := s.data.Keys(); len(keys) != 1 || keys[0] != wire.TokenKey(name) {
			t.Errorf("the keys left are %q, want the token's alone", keys)
		}
		s.checkDone(wire.ForceRelease(name), false)
		heard.check()
		s.grant(name, bob, 1, 0)
		s.grant(name, bob, 2, 0)
		s.checkDone(wire.ForceRelease(name), true)
		heard.check(unlocked)
		s.checkState(name, quorumlock.State{Token: 201})
	}
}

// parser returns what it makes of a reply, and the error.
type parser func(wire.Reply) (any, error)

func as[T any](read func(wire.Reply) (T, error)) parser {
	return func(r wire.Reply) (any, error) { return read(r) }
}

var asDone = as(wire.Reply.Done)

// parsers are those of all replies, by the script, and that of a yield.
var parsers = map[string]parser{
	"acquire":       as(wire.Reply.Acquired),
	"raise":         asDone,
	"renew":         asDone,
	"leave":         asDone,
	"force_release": asDone,
	"withdraw":      asDone,
	"release":       func(r wire.Reply) (any, error) { left, held, err := r.Released(); return []any{left, held}, err },
	"yield":         func(r wire.Reply) (any, error) { open, slot, err := r.Yielded(); return []any{open, slot}, err },
	"inspect":       as(wire.Reply.Inspected),
	"latch":         func(r wire.Reply) (any, error) { return r.Latched(3) },
	"proclaim":      as(wire.Reply.Proclaimed),
	"leader":        as(wire.Reply.Led),
}

func TestAnErrorInsteadOfAReplyIsReturnedAsItIs(t *testing.T) {
	for name, parse := range parsers {
		if _, err := parse(wire.Reply{Value: int64(1), Err: io.EOF}); err != io.EOF {
			t.Errorf("%s: %v, want the error itself", name, err)
		}
	}
	if _, held, _ := (wire.Reply{Err: errors.New("x")}).Released(); held {
		t.Error("an error counts as a release")
	}
}

func TestAReplyOfAnotherScriptIsAnError(t *testing.T) {
	type list = []any
	n := func(i int64) any { return i }
	with := func(i int, v any) list {
		fields := list{list{"a:1", "2", "mode", "mutex"}, n(7), "5", n(1), list{"w:1", "9"}, list{"1000 1"}, n(1000)}
		fields[i] = v
		return fields
	}
	led := func(i int, v any) list {
		fields := list{list{"a:1", "1", "mode", "mutex"}, n(7), list{"9", "1", "v"}}
		fields[i] = v
		return fields
	}
	for name, values := range map[string][]any{"leader": {led(0, list{}), led(2, list{}), led(1, n(-2))}, "inspect": {with(0, list{})}} {
		for _, v := range values {
			if _, err := parsers[name](wire.Reply{Value: v}); err != nil {
				t.Fatalf("%v, want no error before anything is wrong", err)
			}
		}
	}
	for name, values := range map[string][]any{
		"acquire": {nil, "OK", n(0), n(-1), "1", list{}, list{n(1)}, list{n(1), n(7)}, list{n(1), "2"}, list{"1", n(2)}, list{n(1), n(0)}, list{n(1), n(-7)}, list{n(2), n(0)},
			list{n(1), n(2), n(-1)}, list{n(1), n(2), n(-1), "w:1"}, list{n(0), n(7)}, list{n(0), n(7), n(-1)}, list{n(0), n(7), n(-1), n(1)},
			list{n(0), n(7), "0", "w:1"}, list{n(0), "7", n(0), "w:1"}, list{n(3), n(0), n(-1)}, list{n(3), n(7)}, list{n(4), n(7), n(-1)},
			list{n(4), n(7), n(-1), nil}, list{n(5), n(7), n(-1), "w:1"}, list{n(-1), n(7), n(-1), "w:1"}, list{n(0), n(7), n(-1), "w:1", n(1), n(1)}, list{n(0), n(7), n(-1), "w:1", "1"},
			list{n(0), n(7), n(-2), "w:1"}, list{n(4), n(7), n(1 << 32), "w:1"}},
		"renew":   {nil, "1", 1.0, list{n(1)}, true},
		"release": {nil, "0", list{n(0)}, list{n(0), n(0)}},
		"yield":   {nil, "0", n(0), list{n(0)}, list{n(0), "0"}},
		"latch": {nil, "0", n(1), list{}, list{n(1)}, list{n(1), "s"}, list{n(1), "s", list{}, n(1)}, list{"1", "s", list{}}, list{n(1), n(2), list{}},
			list{n(1), "s", "a"}, list{n(1), "s", list{n(1)}}, list{n(1), "", list{}}, list{n(0), "s", list{}}, list{n(-1), "", list{}}, list{n(3), "s", list{}}},
		"proclaim": {nil, "1", n(-1), n(4), list{n(1)}},
		"leader": {nil, "x", n(1), list{}, led(0, nil)[:2], append(led(0, list{}), n(1)), led(0, nil), led(0, "a:1"), led(0, list{n(1), "1"}), led(0, list{"a:1", n(1)}),
			led(1, "7"), led(2, nil), led(2, "9"), led(2, list{"9", "1"}), led(2, list{n(9), "1", "v"}), led(2, list{"9", n(1), "v"}), led(2, list{"9", "1", n(1)}),
			led(2, list{"-9", "1", "v"}), led(2, list{"9", "one", "v"}), led(2, list{nil, nil, nil})},
		"inspect": {nil, "x", n(1), list{}, with(0, nil)[:5], append(with(0, list{}), n(1)),
			with(0, nil), with(0, "a:1"), with(0, list{n(1), "2"}), with(0, list{"a:1", n(2)}), with(1, "7"), with(2, n(5)), with(2, "-1"),
			with(2, "1.79e+15"), with(2, "five"), with(3, "1"), with(4, "w:1"), with(4, list{"w:1"}), with(4, list{}),
			with(4, list{"w:1", "soon"}), with(4, list{n(1), "9"}), with(4, list{"w:1", n(9)}), with(5, "1000 1"), with(5, list{}), with(5, list{n(1)})},
	} {
		for _, v := range values {
			got, err := parsers[name](wire.Reply{Value: v})
			if err == nil || !strings.Contains(err.Error(), "unexpected reply") {
				t.Errorf("%s of %#v = %+v, %v, want an error", name, v, got, err)
			}
		}
	}
}

// hashTag is the part of a key that decides its slot (redis.io, "Redis cluster specification").
func hashTag(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

func TestSameSlotIsTrueForTheNamesWhoseKeysStayTogether(t *testing.T) {
	names := []string{""}
	for i := 0; i < len(names) && len(names[i]) < 6; i++ {
		for _, c := range []string{"a", "{", "}"} {
			names = append(names, names[i]+c)
		}
	}
	for _, name := range names[1:] {
		together := true
		for _, c := range calls(name) {
			for _, key := range c.Keys() {
				together = together && hashTag(key) == hashTag(name)
			}
		}
		if got := wire.SameSlot(name); got != together {
			t.Errorf("SameSlot(%q) = %v, want %v", name, got, together)
		}
	}
}

func TestAnErrorRepeatsNoMoreThanTheBeginningOfAReply(t *testing.T) {
	for name, parse := range parsers {
		for what, v := range map[string]any{
			"a string":   strings.Repeat("v", 1<<20),
			"a list":     slices.Repeat([]any{"value"}, 1<<16),
			"a long one": []any{strings.Repeat("v", 1<<20)},
			"controls":   strings.Repeat("\x1b[2J\n", 1<<10),
		} {
			if _, err := parse(wire.Reply{Value: v}); err == nil || len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("%s of %s: an error of %d bytes: %.200q", name, what, len(err.Error()), err)
			}
		}
	}
}

func TestRepliesAreReadAsTheScriptsMeanThem(t *testing.T) {
	type list = []any
	n := func(i int64) any { return i }
	for _, tt := range []struct {
		name  string
		reply any
		want  wire.Answer
	}{
		{"granted", n(7), wire.Answer{Granted: true, Token: 7, Position: -1}},
		{"granted again", list{n(2), n(7)}, wire.Answer{Granted: true, Again: true, Token: 7, Position: -1}},
		{"refused", list{n(0), n(1500), n(3), "w:7/3.2"}, wire.Answer{Holder: "w:7/3.2", TTL: 1500 * time.Millisecond, Position: 3}},
		{"refused in the last millisecond", list{n(0), n(0), n(-1), "w:7"}, wire.Answer{Holder: "w:7", TTL: time.Millisecond, Position: -1}},
		{"refused without expiry", list{n(0), n(-1), n(-1), "w:7"}, wire.Answer{Holder: "w:7", Position: -1}},
		{"refused, and nobody holds", list{n(0), n(-2), n(-1), ""}, wire.Answer{Position: -1}},
		{"free, and others are before", list{n(4), n(650), n(3), "w:7"}, wire.Answer{Free: true, Holder: "w:7", TTL: 650 * time.Millisecond, Position: 3}},
		{"free, and worth coming now", list{n(4), n(0), n(3), "w:7"}, wire.Answer{Free: true, Holder: "w:7", TTL: time.Millisecond, Position: 3}},
		{"free, and no telling", list{n(4), n(-1), n(-1), ""}, wire.Answer{Free: true, Position: -1}},
	} {
		if a, err := (wire.Reply{Value: tt.reply}).Acquired(); err != nil || a != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, a, err, tt.want)
		}
	}
	if a, err := (wire.Reply{Value: list{n(3), n(1500), n(0), "run:id"}}).Acquired(); !errors.Is(err, quorumlock.ErrQuarantined) || !strings.Contains(err.Error(), "1.5s") {
		t.Errorf("quarantined: %+v, %v", a, err)
	}
	if left, held, err := (wire.Reply{Value: n(-1)}).Released(); left != 0 || held || err != nil {
		t.Errorf("not held: %d, %v, %v", left, held, err)
	}
	if ok, err := (wire.Reply{Value: n(0)}).Done(); ok || err != nil {
		t.Errorf("not done: %v, %v", ok, err)
	}
}

func TestAnUnexpectedReplyIsShown(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, tt := range []struct {
		value any
		want  string
	}{
		{int64(-1), `"-1"`},
		{[]any{int64(7), int64(8), "nine"}, `"[7 8 nine]"`},
		{"OK", `"OK"`},
		{long, `"` + long[:100] + `..."`},
		{[]any{long, long}, `"[` + long[:99] + `..."`},
		{nil, `"<nil>"`},
	} {
		if _, err := (wire.Reply{Value: tt.value}).Acquired(); err == nil || !strings.Contains(err.Error(), "unexpected reply "+tt.want+":") {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}
