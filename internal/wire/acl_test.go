package wire_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// The rules allow every key and channel of the names with the prefix, and none of other names.
func TestACLAllowsTheNamesWithItsPrefixAlone(t *testing.T) {
	beside := []func(name string) string{
		func(name string) string { return "~" + name },
		func(name string) string { return "~" + wire.TokenKey(name) },
		func(name string) string { return "~" + wire.FairQueueKey(name) },
		func(name string) string { return "~" + wire.QueueKey(name) },
		func(name string) string { return "~" + wire.EntriesKey(name) },
		func(name string) string { return "~" + wire.SlotsKey(name) },
		func(name string) string { return "~" + wire.LatchKey(name) },
		func(name string) string { return "~" + wire.LeaderKey(name) },
		func(name string) string { return "&" + wire.UnlockChannel(name) },
		func(name string) string { return "&" + wire.LatchKey(name) },
		func(name string) string { return "&" + wire.LeaderKey(name) },
	}
	for _, prefix := range []string{"", "a:", "{a}:", "a*", "a?b[c]", `a\`} {
		rules := wire.ACL(prefix, "a.")
		allowed := func(keyOrChannel string) bool {
			return slices.ContainsFunc(rules, func(rule string) bool {
				ok, err := path.Match(rule, keyOrChannel)
				if err != nil {
					t.Fatalf("%q: %v", rule, err)
				}
				return ok
			})
		}
		for _, of := range beside {
			for _, name := range []string{"x", "{x}", "x{y}", "x:quorumlock_lockn", ""} {
				if key := of(prefix + name); !allowed(key) {
					t.Errorf("with the prefix %q, %q is not allowed", prefix, key)
				}
			}
			for _, other := range []string{"b:x", "{b:x}", "b{a:x}", "b:{a}:x", "ab", "abbc", "*a:x"} {
				if key := of(other); prefix != "" && allowed(key) {
					t.Errorf("with the prefix %q, %q is allowed", prefix, key)
				}
			}
		}
		if !allowed("&"+wire.WakeChannel("a.host~1")) || allowed("&"+wire.WakeChannel("b.host~1")) {
			t.Errorf("with the prefix %q, the channels of calls are %q", prefix, rules)
		}
		if rules[0] != "resetchannels" || !slices.Contains(rules, "+evalsha") || strings.Contains(strings.Join(rules, " "), "+@") {
			t.Errorf("with the prefix %q, the rules are %q", prefix, rules)
		}
	}
}
