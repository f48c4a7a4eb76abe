package scripts_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// noLocks are values that a key may have which something else wrote.
var noLocks = map[string]func(s *server, key string){
	"a string":                   func(s *server, key string) { s.put(key, "not a lock") },
	"a string with an expiry":    func(s *server, key string) { s.put(key, "not a lock"); s.data.SetTTL(key, time.Minute) },
	"a list":                     func(s *server, key string) { _, _ = s.data.Push(key, "alice:1", "1") },
	"a set":                      func(s *server, key string) { _, _ = s.data.SAdd(key, "alice:1") },
	"a sorted set":               func(s *server, key string) { _, _ = s.data.ZAdd(key, 1, "alice:1") },
	"a hash with an empty field": hash("", "5"),
	"a hash with a fraction":     hash("sensor:1", "21.5"),
	"a hash with hexadecimals":   hash("sensor:1", "0x1f"),
	"a hash with an exponent":    hash("sensor:1", "1e3"),
	"a hash with a spaced count": hash("sensor:1", " 1"),
	"a hash with an infinity":    hash("sensor:1", "inf"),
	"a hash with a NaN":          hash("sensor:1", "nan"),
	"a hash with a negative":     hash("sensor:1", "-4"),
	"a hash with a counter":      hash("visits", "5"),
	"a hash with a name":         hash("name", "bob"),
	"a hash of names":            hash("user:5", "bob"),
	"a hash with numbers alone":  hash("5", "1"),
	"a hash with a colon":        hash(":5", "1"),
	"a hash with a space":        hash("user name:5", "1"),
	"a hash with a letter":       hash("user:5a", "1"),
	"a hash with no number":      hash("user:", "1"),
	"a hash with a line break":   hash("user\r\n:5", "1"),
	"a hash with no count":       hash("user:5", ""),
	"a hash like a hold":         hash("user:5", "17"),
	"a hash like one of Java's":  hash("5cbe9c86-0c1e-4f0e-8dd4-5a8ad4b4b3e7:42:1", "1"),
	"a hash of some UUID":        hash("5cbe9c86-0c1e-4f0e-8dd4:42", "1"),
	"a hash of a date":           hash("2026-11-24-07-30:5", "1"),
	"a hash with more":           hash("dave:1", "1", "visits", "5"),
	"a hash with more before":    hash("age", "5", "dave:1", "1"),
	"a read lock of Redisson's":  hash("mode", "read", thread, "1"),
	"two read locks of theirs":   hash("mode", "read", thread, "1", "6"+thread, "2"),
	"a write lock of Redisson's": hash("mode", "write", thread+":write", "1"),
	"a hash of a latch":          latchOf("a"),
	"a hash of an open latch":    latchOf("a", "b", "c"),
}

func hash(fields ...string) func(s *server, key string) {
	return func(s *server, key string) { s.data.HSet(key, fields...) }
}

// latchOf is a latch of the name, which three ids open.
func latchOf(ids ...string) func(s *server, key string) {
	return func(s *server, key string) { s.do(wire.Latch(key, 3, wire.MakeLatch, time.Minute, "me", ids...)) }
}

// isHash reports whether a value is a hash that is no lock because of its fields, and not a value
// of a wrong type.
func isHash(what string) bool {
	return strings.Contains(what, "hash") || strings.Contains(what, "Redisson") || strings.Contains(what, "theirs")
}

func TestWhatIsNoLockIsReportedAndLeftAlone(t *testing.T) {
	entry := wire.Entry{Waiter: "alice:9", Ticket: 1, TTL: life, Successor: heir(3, lent)}
	all := calls("x")
	delete(all, "withdraw") // it does not look at the lock
	delete(all, "latch")    // whose own test has other errors
	maps.Copy(all, map[string]wire.Call{
		"acquire as another": wire.Acquire("x", "carol:1", ttl, 1, 100),
		"acquire in turn":    wire.AcquireInTurn("x", alice, ttl, 100, entry),
		"enter again":        wire.Acquire("x", alice, ttl, 2, 100),
		"restore":            wire.Restore("x", alice, ttl, 100),
		"guarded in turn":    wire.AcquireInTurn("x", alice, ttl, 100, entry).Guarded(ttl),
	})
	// The others only look for an owner, who is not there.
	looks := map[string]bool{}
	for _, call := range []string{"acquire", "guarded", "force release", "inspect", "leader"} {
		looks[all[call].Script.SHA()] = true
	}
	for what, put := range noLocks {
		for call, c := range all {
			t.Run(what+"/"+call, func(t *testing.T) {
				s := start(t)
				put(s, "x")
				s.put(wire.TokenKey("x"), "100")
				ttl := s.data.TTL("x")
				if looks[c.Script.SHA()] || !isHash(what) {
					s.refuses(c, quorumlock.ErrNotALock, "")
				} else {
					s.unchanged(func() {
						if got, err := parsers[c.Script.Name](s.send(c)); err != nil {
							t.Errorf("%+v, %v, want no error", got, err)
						}
					})
				}
				s.checkTTL("x", ttl)
			})
		}
	}
}

func TestAnErrorNamesTheNodeAndWhatIsThere(t *testing.T) {
	for _, tt := range []struct {
		put  func(s *server, key string)
		kind error
		want string
	}{
		{hash("visits", "5"), quorumlock.ErrNotALock, `it is a hash with the field "visits"`},
		{hash("name", "bob"), quorumlock.ErrNotALock, `it is a hash with the field "name"`},
		{hash("mode", "read"), quorumlock.ErrNotALock, "is a read-write lock of Redisson's"},
		{hash(strings.Repeat("v", 5000), "5"), quorumlock.ErrNotALock, `it is a hash with the field "` + strings.Repeat("v", 100) + `"`},
		{noLocks["a list"], quorumlock.ErrNotALock, "WRONGTYPE"},
		{noLocks["a hash of a latch"], quorumlock.ErrWrongKind, "is a latch: use "},
		{noLocks["a hash of an open latch"], quorumlock.ErrWrongKind, "is a latch: use "},
	} {
		s := start(t)
		tt.put(s, "x")
		for _, c := range []wire.Call{wire.Inspect("x", 1), wire.Acquire("x", alice, ttl, 1, 100), wire.ForceRelease("x")} {
			err := s.refuses(c, tt.kind, tt.want)
			if c.Script.Name == "inspect" && strings.Contains(err.Error(), "used as") {
				t.Errorf("a look uses no kind: %v", err)
			}
			if len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			if c.Script.Name != "inspect" {
				namesTheNode(s, err)
			}
		}
	}
}

func namesTheNode(s *server, err error) {
	s.Helper()
	if n, ok := errors.AsType[*quorumlock.NodeError](err); !ok || n.Node != "node-1" {
		s.Errorf("%v, want an error that names the node", err)
	}
}

// An application has written to a key beside the lock's own. The error names that key, and not the
// lock's.
func TestAKeyBesideTheLockThatIsOfAnotherTypeIsNamed(t *testing.T) {
	entry := wire.Entry{Waiter: "alice:9", Ticket: 1, TTL: life, Successor: heir(3, lent)}
	queue := []string{"quorumlock_queue", "quorumlock_waiters"}
	for key, names := range map[string][]string{wire.TokenKey("x"): {wire.TokenKey("x")}, wire.QueueKey("x"): queue, wire.EntriesKey("x"): queue} {
		for call, c := range map[string]wire.Call{
			"acquire":         wire.Acquire("x", alice, ttl, 1, 100),
			"acquire in turn": wire.AcquireInTurn("x", alice, ttl, 100, entry),
			"inspect":         wire.Inspect("x", 1),
		} {
			t.Run(key+"/"+call, func(t *testing.T) {
				s := start(t)
				_, _ = s.data.Push(key, "a value")
				if key == wire.EntriesKey("x") { // they are looked at only if somebody is queued
					_, _ = s.data.ZAdd(wire.QueueKey("x"), 1, "bob:1")
				}
				before := s.data.Dump()
				_, err := parsers[c.Script.Name](s.send(c))
				if err == nil || strings.Contains(err.Error(), quorumlock.ErrNotALock.Error()) {
					t.Fatalf("%v, want an error that is not about the lock's own key", err)
				}
				for _, name := range names {
					if !strings.Contains(err.Error(), name) {
						t.Errorf("%v, want %q in it", err, name)
					}
				}
				namesTheNode(s, err)
				if after := s.data.Dump(); after != before && key == wire.TokenKey("x") {
					t.Errorf("it wrote all the same:\n%s\nbefore:\n%s", after, before)
				}
			})
		}
	}
}

func TestLocksOfAllFormsAreLocks(t *testing.T) {
	for _, owner := range []quorumlock.Owner{
		"a:1", "a:1.0", "a:1/2", "a:1/2.3", "a:1/2.31", thread, "web-3~" + thread, "web-3~" + thread + "/12.4", "::1:5", "10.0.0.1:6379:4",
	} {
		s := start(t)
		s.data.HSet("x", string(owner), "2")
		if owner != thread { // Redisson's holds alone have no mode
			s.data.HSet("x", "mode", "mutex")
		}
		s.checkRefused(s.acquire("x", alice, 1, 100), owner)
		if in := s.inspect("x"); in.Owner != wire.Base(owner) || in.HoldCount != 2 {
			t.Errorf("%s: Inspect: %+v", owner, in)
		}
		s.checkDone(wire.ForceRelease("x"), true)
	}
}
