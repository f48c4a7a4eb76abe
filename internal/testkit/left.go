package testkit

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

// Nothing checks that within a second the servers have only keys that Keys leaves out, and that no
// goroutine of a call is left. In a synctest bubble, it also checks that subscriptions end, and
// that no key comes back.
func Nothing(t testing.TB, servers []*embedded.Server) {
	t.Helper()
	start := time.Now()
	NoLocks(t, servers)
	if !within(time.Second-time.Since(start), func() bool { return len(Goroutines()) == 0 }) {
		t.Errorf("goroutines are left:\n%s", strings.Join(Goroutines(), "\n\n"))
	}
	if inBubble() {
		// A subscription is kept for ten seconds, for the next waiter.
		time.Sleep(11 * time.Second)
		if left := subscriptions(servers); len(left) > 0 {
			t.Errorf("subscriptions are left: %q", left)
		}
		if left := BusyGoroutines(); len(left) > 0 {
			t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
		}
		time.Sleep(time.Minute)
		if left := keys(servers); len(left) > 0 {
			t.Errorf("keys came back: %q", left)
		}
	}
}

// NoLocks checks that within a second no server has any of its Keys.
func NoLocks(t testing.TB, servers []*embedded.Server) {
	t.Helper()
	if !within(time.Second, func() bool { return len(keys(servers)) == 0 }) {
		t.Errorf("keys are left: %q", keys(servers))
	}
}

// Keys returns the keys at s other than token counters and the age that the restart guard keeps.
func Keys(s *embedded.Server) []string {
	var keys []string
	for _, k := range s.Redis.Keys() {
		if !strings.HasPrefix(k, "redisson_lock_token:") && k != "quorumlock_age" {
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

// within reports whether ok becomes true within the limit. In a synctest bubble that takes no time.
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
