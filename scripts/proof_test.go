package scripts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// handed returns what follows `handoff ` in the message of a real handoff of the lock to a waiter.
func handed(t *testing.T, lock string, waiter quorumlock.Owner) string {
	t.Helper()
	s := gather(t)
	s.grant(lock, "holder:1", 1, 100)
	s.acquired(wire.AcquireInTurn(lock, "hold:1", ttl, 1, wire.Entry{Waiter: waiter, Ticket: 50, TTL: life, Successor: heir(2, lent)}))
	s.release(lock, "holder:1", 1)
	told := s.since()
	if len(told) != 1 || !strings.HasPrefix(told[0], "handoff ") {
		t.Fatalf("told %q, want a handoff", told)
	}
	return strings.TrimPrefix(told[0], "handoff ")
}

// The proof is over the whole of the waiter, not over its label alone.
func TestAHandoffOfANodeIsProvenUnderAnyNameForAnyWaiter(t *testing.T) {
	check := func(lock string, waiter quorumlock.Owner) {
		h, ok := wire.ParseHandoff(handed(t, lock, waiter))
		if !ok || h.Waiter != waiter || h.Attempt != 2 || h.Cell != 7 || h.Token != 101 || h.Lock != lock || !h.ProvenBy(secret) {
			t.Errorf("%+v, %v, proven %v, want the handoff of %q to %q", h, ok, h.ProvenBy(secret), lock, string(waiter))
		}
		if h.Waiter = "web-3~6" + thread; h.ProvenBy(secret) {
			t.Errorf("%q: proven for another waiter", string(waiter))
		}
	}
	for _, lock := range append(names, "1 2 3") {
		check(lock, bob)
	}
	for _, waiter := range []quorumlock.Owner{"web-3~" + thread, "::1:5", "10.0.0.1:6379:4", quorumlock.NewOwner()} {
		check("x", waiter)
	}
}

// A publisher that may not read the lock's keys has messages of earlier handoffs at most.
func TestAForgedHandoffIsNotProven(t *testing.T) {
	real := handed(t, "x", "bob:1")
	f := strings.SplitN(real, " ", 6)
	with := func(i int, v string) string {
		g := slices.Clone(f)
		g[i] = v
		return strings.Join(g, " ")
	}
	for _, tt := range []struct{ name, message, secret string }{
		{"another waiter", with(0, "bob:2"), secret},
		{"another attempt", with(1, "3"), secret},
		{"another cell", with(2, "8"), secret},
		{"another token", with(3, "102"), secret},
		{"no proof", with(4, ""), secret},
		{"another proof", with(4, strings.Repeat("0", 40)), secret},
		{"half of the proof", with(4, f[4][:20]), secret},
		{"more than the proof", with(4, f[4]+"0"), secret},
		{"the proof in capitals", with(4, strings.ToUpper(f[4])), secret},
		{"another lock", with(5, "y"), secret},
		{"a longer lock", with(5, "x "+secret), secret},
		{"no lock", with(5, ""), secret},
		{"another secret", real, "SECRETS"},
		{"no secret", real, ""},
		{"the secret in small letters", real, "secret"},
		{"fields that change places", strings.Join([]string{f[0], f[2], f[1], f[3], f[4], f[5]}, " "), secret},
	} {
		if h, ok := wire.ParseHandoff(tt.message); !ok || h.ProvenBy(tt.secret) {
			t.Errorf("%s: %q is read %v, and proven", tt.name, tt.message, ok)
		}
	}
	if h, _ := wire.ParseHandoff(real); !h.ProvenBy(secret) {
		t.Error("the message as it came is not proven")
	}
	if (wire.Handoff{}).ProvenBy("") {
		t.Error("nothing is proven by no secret")
	}
	forged := wire.SHA1(" " + strings.Join(append(f[:4:4], f[5]), " ") + " ") // anybody can make this one
	if h, _ := wire.ParseHandoff(with(4, forged)); h.ProvenBy("") {
		t.Error("a call that has no secret takes a handoff")
	}
}

func TestWhatIsNoHandoffIsNotRead(t *testing.T) {
	for _, message := range []string{
		"", " ", "bob:1", "bob:1 2 7 101 proof", "bob:1 2 7 101", "bob:1 two 7 101 proof x", "bob:1 2 - 101 proof x",
		"bob:1 2 7 -1 proof x", "bob:1 2 7 1e3 proof x", "bob:1 2 7 18446744073709551616 proof x", "bob:1  2 7 101 proof x",
		"bob:1 2.0 7 101 proof x", "bob:1 9223372036854775808 7 101 proof x",
		"bob:1 2 7 101@ proof x", "bob:1 2 7 101@-1 proof x", "bob:1 2 7 101@1000 proof x", "bob:1 2 7 101@x proof x",
	} {
		if h, ok := wire.ParseHandoff(message); ok {
			t.Errorf("%q is read as %+v", message, h)
		}
	}
}

// The proof of a handoff is also one of its slot.
func TestAHandoffsSlotIsProven(t *testing.T) {
	message := strings.TrimPrefix(handoff("a:1", 3, "101@2"), "handoff ")
	for slot, want := range map[string]bool{"2": true, "1": false, "02": false} {
		if h, ok := wire.ParseHandoff(strings.Replace(message, "@2", "@"+slot, 1)); !ok || h.ProvenBy(secret) != want {
			t.Errorf("slot %s: %+v, %v, proven %v", slot, h, ok, !want)
		}
	}
}

func FuzzAHandoffIsReadOrRefused(f *testing.F) {
	f.Add("bob:1 2 7 101 proof x", secret)
	f.Add("", "")
	f.Add("a b c d e f g", "é")
	f.Add("a 1 1 1  ", " ")
	f.Fuzz(func(t *testing.T, message, secret string) {
		h, ok := wire.ParseHandoff(message)
		if ok && !strings.HasSuffix(message, h.Lock) || h.ProvenBy(secret) {
			t.Errorf("%q, with the secret %q, is of the lock %q, and proven %v", message, secret, h.Lock, h.ProvenBy(secret))
		}
	})
}
