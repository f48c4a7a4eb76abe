package scripts_test

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

func TestKeysAreRedissons(t *testing.T) {
	for _, tt := range []struct{ name, token, channel string }{
		{"x", "redisson_lock_token:{x}", "redisson_lock__channel:{x}"},
		{"invoice:1042", "redisson_lock_token:{invoice:1042}", "redisson_lock__channel:{invoice:1042}"},
		{"{tenant}:x", "redisson_lock_token:{tenant}:x", "redisson_lock__channel:{tenant}:x"},
		{"a{b", "redisson_lock_token:a{b", "redisson_lock__channel:a{b"},
		{"a}b", "redisson_lock_token:{a}b}", "redisson_lock__channel:{a}b}"},
	} {
		if got := scripts.TokenKey(tt.name); got != tt.token {
			t.Errorf("TokenKey(%q) = %q, want %q", tt.name, got, tt.token)
		}
		if got := scripts.UnlockChannel(tt.name); got != tt.channel {
			t.Errorf("UnlockChannel(%q) = %q, want %q", tt.name, got, tt.channel)
		}
	}
}

// calls are one of every kind.
func calls(name string) map[string]scripts.Call {
	return map[string]scripts.Call{
		"acquire":       scripts.Acquire(name, alice, ttl, 1, 100),
		"raise":         scripts.Raise(name, alice, ttl, 100, 200),
		"renew":         scripts.Renew(name, alice, ttl),
		"release":       scripts.Release(name, alice, 1),
		"force release": scripts.ForceRelease(name),
		"inspect":       scripts.Inspect(name, 100),
		"guarded":       scripts.Acquire(name, alice, ttl, 1, 100).Guarded(ttl),
	}
}

func TestEveryScriptIsKnownByItsOwnSHA(t *testing.T) {
	seen := make(map[string]string)
	for name, c := range calls("x") {
		sum := sha1.Sum([]byte(c.Script.Source))
		if got, want := c.Script.SHA, hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s: SHA %s, want %s", name, got, want)
		}
		if other, ok := seen[c.Script.SHA]; ok {
			t.Errorf("%s and %s are one script", name, other)
		}
		seen[c.Script.SHA] = name
		if !strings.HasPrefix(c.Script.Source, "-- ") {
			t.Errorf("%s has no header", name)
		}
	}
}

func TestEveryScriptWorksUnderAnyName(t *testing.T) {
	for what, name := range map[string]string{
		"braces":       "{tenant}:x",
		"one brace":    "a{b",
		"spaces":       " two  words ",
		"unicode":      "Zürich/銀行/🔒",
		"line breaks":  "a\r\nb\n",
		"zero byte":    "a\x00b",
		"no UTF-8":     "\xff\xfe",
		"Lua's quotes": `"]]..'--%s%d`,
		"1 KiB":        strings.Repeat("k", 1<<10),
	} {
		t.Run(what, func(t *testing.T) {
			s := start(t)
			heard := s.listen(name)
			s.grant(name, alice, 1, 100)
			if a := s.acquire(name, bob, 1, 0); a.Granted {
				t.Error("granted twice")
			}
			if !s.done(scripts.Raise(name, alice, ttl, 100, 200)) || !s.done(scripts.Renew(name, alice, ttl)) {
				t.Error("not raised or not renewed")
			}
			in, err := s.send(scripts.Inspect(name, 100)).Inspected()
			if want := (quorumlock.State{Owner: alice, HoldCount: 1, TTL: ttl, Token: 200}); err != nil || !reflect.DeepEqual(in, want) {
				t.Errorf("Inspect: %+v, %v, want %+v", in, err, want)
			}
			if left, held := s.release(name, alice, 1); left != 0 || !held {
				t.Errorf("%d left, held %v", left, held)
			}
			heard.checkTold()
			if keys := s.data.Keys(); len(keys) != 1 || keys[0] != scripts.TokenKey(name) {
				t.Errorf("the keys left are %q, want the token's alone", keys)
			}
			s.grant(name, bob, 1, 0)
			if !s.done(scripts.ForceRelease(name)) {
				t.Error("not released")
			}
			heard.checkTold()
		})
	}
}

func TestEveryScriptReportsAWrongTypeAndLeavesItAlone(t *testing.T) {
	for what, c := range calls("x") {
		if what == "force release" {
			continue // it deletes whatever is there
		}
		t.Run(what, func(t *testing.T) {
			s := start(t)
			s.put("x", "not a lock")
			s.put(scripts.TokenKey("x"), "100")
			before := s.data.Dump()
			if r := s.send(c); r.Err == nil || !strings.Contains(r.Err.Error(), "WRONGTYPE") {
				t.Errorf("reply %v, error %v, want WRONGTYPE", r.Value, r.Err)
			}
			if after := s.data.Dump(); after != before {
				t.Errorf("it wrote all the same:\n%s", after)
			}
		})
	}
}

// parsers are those of all replies; each returns whatever it makes of one, and the error.
var parsers = map[string]func(scripts.Reply) (any, error){
	"Acquired":  func(r scripts.Reply) (any, error) { return r.Acquired() },
	"Done":      func(r scripts.Reply) (any, error) { return r.Done() },
	"Released":  func(r scripts.Reply) (any, error) { left, held, err := r.Released(); return []any{left, held}, err },
	"Yielded":   func(r scripts.Reply) (any, error) { return r.Yielded() },
	"Inspected": func(r scripts.Reply) (any, error) { return r.Inspected() },
}

func TestAnErrorInsteadOfAReplyIsReturnedAsItIs(t *testing.T) {
	for name, parse := range parsers {
		if _, err := parse(scripts.Reply{Value: int64(1), Err: io.EOF}); err != io.EOF {
			t.Errorf("%s: %v, want the error itself", name, err)
		}
	}
	if _, held, _ := (scripts.Reply{Err: errors.New("x")}).Released(); held {
		t.Error("an error counts as a release")
	}
}

func TestAReplyOfAnotherScriptIsAnError(t *testing.T) {
	type list = []any
	n := func(i int64) any { return i }
	for name, values := range map[string][]any{
		"Acquired": {nil, "OK", n(1), list{}, list{n(1)}, list{n(1), n(2)}, list{n(1), "2", n(-1)}, list{"1", n(2), n(-1)},
			list{n(3), n(0), n(-1)}, list{n(4), n(7), n(-1)}, list{n(-1), n(7), n(-1)}, list{n(1), n(0), n(-1)}, list{n(1), n(-7), n(-1)}, list{n(2), n(0), n(-1)}},
		"Done":     {nil, "1", 1.0, list{n(1)}, true},
		"Released": {nil, "0", n(0), list{n(0)}, list{n(0), "0"}},
		"Yielded":  {nil, "0", n(0), list{n(0)}, list{n(0), "0"}},
		"Inspected": {nil, "x", n(1), list{}, list{"", "0", n(-2), "0"}, list{"", "0", n(-2), "0", n(0)},
			list{nil, "0", n(-2), "0", n(0), list{}}, list{"a", n(1), n(5), "1", n(0), list{}},
			list{"a", "one", n(5), "1", n(0), list{}}, list{"a", "1", "5", "1", n(0), list{}},
			list{"a", "1", n(5), n(1), n(0), list{}}, list{"a", "1", n(5), "-1", n(0), list{}},
			list{"a", "1", n(5), "1.79e+15", n(0), list{}}, list{"a", "1", n(5), "1", "0", list{}},
			list{"a", "1", n(5), "1", n(0), "x"}, list{"a", "1", n(5), "1", n(1), list{"w"}},
			list{"a", "1", n(5), "1", n(1), list{"w", "soon"}}, list{"a", "1", n(5), "1", n(1), list{n(1), "2"}}},
	} {
		for _, v := range values {
			got, err := parsers[name](scripts.Reply{Value: v})
			if err == nil || !strings.Contains(err.Error(), "unexpected reply") {
				t.Errorf("%s of %#v = %+v, %v, want an error", name, v, got, err)
			}
		}
	}
}

func TestRepliesAreReadAsTheScriptsMeanThem(t *testing.T) {
	if a, err := (scripts.Reply{Value: []any{int64(0), int64(1500), int64(3)}}).Acquired(); err != nil || a != (scripts.Answer{TTL: 1500 * time.Millisecond, Place: 3}) {
		t.Errorf("refused: %+v, %v", a, err)
	}
	if a, err := (scripts.Reply{Value: []any{int64(3), int64(1500), int64(-1)}}).Acquired(); !errors.Is(err, quorumlock.ErrQuarantined) || !strings.Contains(err.Error(), "1.5s") {
		t.Errorf("quarantined: %+v, %v", a, err)
	}
	if a, err := (scripts.Reply{Value: []any{int64(0), int64(-1), int64(-1)}}).Acquired(); err != nil || a != (scripts.Answer{Place: -1}) {
		t.Errorf("refused without expiry: %+v, %v", a, err)
	}
	if left, held, err := (scripts.Reply{Value: []any{int64(-1), int64(0)}}).Released(); left != 0 || held || err != nil {
		t.Errorf("not held: %d, %v, %v", left, held, err)
	}
	if ok, err := (scripts.Reply{Value: int64(0)}).Done(); ok || err != nil {
		t.Errorf("not done: %v, %v", ok, err)
	}
}
