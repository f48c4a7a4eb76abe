package locktest

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/embedded"
)

// Nothing checks that within a second no key is left on any server but token counters, no goroutine of
// a call's, and soon no subscription; and that no key comes back.
func Nothing(t testing.TB, servers []*embedded.Server) {
	t.Helper()
	start := time.Now()
	NoLocks(t, servers)
	if !within(time.Second-time.Since(start), func() bool { return len(Goroutines()) == 0 }) {
		t.Errorf("goroutines are left:\n%s", strings.Join(Goroutines(), "\n\n"))
	}
	if inBubble() {
		// A subscription is kept for ten seconds, for the next who waits.
		time.Sleep(11 * time.Second)
		if left := subscriptions(servers); len(left) > 0 {
			t.Errorf("subscriptions are left: %q", left)
		}
		if left := stacks("node.(*hub).run("); len(left) > 0 {
			t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
		}
		time.Sleep(time.Minute)
		if left := keys(servers); len(left) > 0 {
			t.Errorf("keys came back: %q", left)
		}
	}
}

// NoLocks checks that within a second no server has any key but token counters.
func NoLocks(t testing.TB, servers []*embedded.Server) {
	t.Helper()
	if !within(time.Second, func() bool { return len(keys(servers)) == 0 }) {
		t.Errorf("keys are left: %q", keys(servers))
	}
}

// Keys returns the keys at s that are no token counters.
func Keys(s *embedded.Server) []string {
	var keys []string
	for _, k := range s.Redis.Keys() {
		if !strings.HasPrefix(k, "redisson_lock_token:") {
			keys = append(keys, k)
		}
	}
	return keys
}

func keys(servers []*embedded.Server) []string {
	var all []string
	for _, s := range servers {
		for _, k := range Keys(s) {
			all = append(all, s.Name+": "+k)
		}
	}
	return all
}

func subscriptions(servers []*embedded.Server) []string {
	var all []string
	for _, s := range servers {
		for _, c := range s.Redis.PubSubChannels("*") {
			all = append(all, s.Name+": "+c)
		}
	}
	return all
}

// NoGoroutines checks that within a second no goroutine is left that a lock has started.
func NoGoroutines(t testing.TB) {
	t.Helper()
	if !within(time.Second, func() bool { return len(Goroutines()) == 0 }) {
		t.Errorf("goroutines are left:\n%s", strings.Join(Goroutines(), "\n\n"))
	}
}

// Goroutines returns the stacks of the goroutines that calls and renewals have started and that run now.
func Goroutines() []string {
	return stacks("internal/quorum.(*Client).start.", "internal/quorum.(*Client).tick(")
}

// stacks returns the stacks of the goroutines that have one of the functions in them. In a synctest bubble, it returns only
// those of the bubble: tests that run at the same time have bubbles of their own.
func stacks(functions ...string) []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := strings.Split(string(buf), "\n\n")
	_, bubble, _ := strings.Cut(all[0], "synctest bubble ") // the first is the caller's
	bubble, _, _ = strings.Cut(bubble, "]:")
	var ours []string
	for _, stack := range all {
		header, _, _ := strings.Cut(stack, "\n")
		if (bubble == "" || strings.Contains(header, "synctest bubble "+bubble+"]")) && slices.ContainsFunc(functions, func(f string) bool { return strings.Contains(stack, f) }) {
			ours = append(ours, stack)
		}
	}
	return ours
}

// within reports whether ok becomes true in the time given. In a synctest bubble it takes none.
func within(limit time.Duration, ok func() bool) bool {
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}
