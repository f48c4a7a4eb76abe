package before_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit/before"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The scripts that count tokens are others, and have nothing of today's rules. All others are the
// same.
func TestTheScriptsThatCountTokensAreOthers(t *testing.T) {
	changed := map[string]bool{}
	for _, s := range wire.Scripts() {
		was := before.Source(s.Source)
		if was == "" {
			t.Fatalf("%s has no source", s.Name)
		}
		changed[s.Name] = changed[s.Name] || was != s.Source
		for _, rule := range []string{"60000000 -", "'240000'", "ms + 60000", "120000) + 60000", "oldest"} {
			if strings.Contains(was, rule) {
				t.Errorf("%s has %q, which is new", s.Name, rule)
			}
		}
	}
	for name, is := range changed {
		counts := []string{"acquire", "share", "downgrade", "raise", "renew", "transfer", "release", "force_release", "open", "leave",
			"slot_acquire", "slot_release", "slot_leave", "slot_renew", "slot_raise", "slot_force_release", "slot_inspect"}
		if want := slices.Contains(counts, name); is != want {
			t.Errorf("%s has changed: %v, want %v", name, is, want)
		}
	}
}
