package scripts_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// required matches a required command of a script, as a call or in the list of ready.lua.
var required = regexp.MustCompile(`(?m)(?:redis\.call\(|^ *{)'(\w+)'`)

// Redis checks each command that a script calls. The rules of a client have them all, and no
// others.
func TestTheLeastPermissionsAreTheCommandsOfTheScripts(t *testing.T) {
	var allowed []string
	for _, word := range wire.ACL("", "") {
		if command, ok := strings.CutPrefix(word, "+"); ok && !slices.Contains([]string{"eval", "evalsha", "subscribe", "unsubscribe", "ping", "client|setname", "client|id", "client|setinfo"}, command) {
			allowed = append(allowed, command)
		}
	}
	called := map[string]bool{}
	files, err := filepath.Glob("*.lua")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`redis\.p?call\('(\w+)'`).FindAllStringSubmatch(string(source), -1) {
			called[m[1]] = true
			if m[1] != "info" && !slices.Contains(allowed, m[1]) { // with the restart guard only
				t.Errorf("%s calls %s, which the rules do not allow", f, m[1])
			}
		}
	}
	for _, command := range allowed {
		if !called[command] {
			t.Errorf("no script calls %s, which the rules allow", command)
		}
	}
}

// The script for readiness tries every command that a Mutex requires, and no others. The INCRBY of
// a handoff is not required: it follows a call that may fail.
func TestReadinessTriesTheCommandsOfAMutex(t *testing.T) {
	needed, tried := map[string]bool{}, map[string]bool{}
	for _, s := range wire.Scripts() {
		commands := needed
		switch s.Name {
		case "acquire", "release", "renew", "leave", "raise":
		case "ready":
			commands = tried
		default:
			continue
		}
		_, own, guarded := strings.Cut(s.Source, "-- Acquires a lock")
		if !guarded {
			own = s.Source
		}
		for _, m := range required.FindAllStringSubmatch(own, -1) {
			commands[m[1]] = true
		}
	}
	delete(needed, "incrby")
	if !maps.Equal(needed, tried) {
		t.Errorf("a Mutex needs %q, and ready.lua tries %q", slices.Sorted(maps.Keys(needed)), slices.Sorted(maps.Keys(tried)))
	}
}
