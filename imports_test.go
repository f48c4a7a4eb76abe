package quorumlock_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The packages in a program that imports the library: go-redis, its dependencies, and x/sync.
func TestImportersBuildGoRedisAndSyncAlone(t *testing.T) {
	allowed := []string{
		"github.com/quorumlock/quorumlock", "github.com/redis/go-redis/v9", "golang.org/x/sync",
		"github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys", // of go-redis
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}")
	for _, p := range publicPackages(t) {
		dir := filepath.ToSlash(p.dir)
		// for tests, and modules of their own
		if dir == "locktest/nodetest" || strings.HasPrefix(dir, "contrib/") {
			continue
		}
		cmd.Args = append(cmd.Args, "./"+dir)
	}
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	modules = slices.Compact(modules)
	if !slices.Contains(modules, "github.com/redis/go-redis/v9") {
		t.Errorf("%s finds only %q", cmd, modules)
	}
	for _, m := range modules {
		if !slices.Contains(allowed, m) {
			t.Errorf("importers build %s", m)
		}
	}
}

// An untested example is soon wrong, and a long one is not readable at a glance.
func TestEveryExampleIsShortAndHasATest(t *testing.T) {
	examples, err := filepath.Glob("examples/*/main.go")
	if err != nil || len(examples) < 10 {
		t.Fatalf("examples: %q, %v", examples, err)
	}
	for _, e := range examples {
		test := readDoc(t, filepath.Join(filepath.Dir(e), "main_test.go"))
		if !strings.Contains(test, "try.Main(") {
			t.Errorf("%s: main_test.go does not run it with try.Main", e)
		}
		if n := strings.Count(readDoc(t, e), "\n"); n > 40 {
			t.Errorf("%s has %d lines, want at most 40", e, n)
		}
	}
}
