package quorumlock_test

import (
	"go/build"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/quorumlock/quorumlock/internal/testkit"
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
	testkit.Must(t, err, "%s", cmd)
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

// layers lists packages, each above all that follow: see ARCHITECTURE.md.
var layers = []string{
	"election", "multilock", "redlock", "node", "internal/transport", "internal/client", "internal/engine", "internal/wire", "internal/core",
	"internal/options", ".", "internal/settings", "internal/errs", "scripts",
}

func TestNoPackageImportsOneAboveIt(t *testing.T) {
	const module = "github.com/quorumlock/quorumlock"
	for i, dir := range layers {
		p, err := build.ImportDir(dir, 0)
		testkit.Must(t, err, "ImportDir of %s", dir)
		for _, above := range layers[:i] {
			if slices.Contains(p.Imports, path.Join(module, above)) {
				t.Errorf("%s imports %s", dir, above)
			}
		}
	}
}

// maxInternal is the maximum number of folders in internal/.
const maxInternal = 9

func TestInternalHasFewFolders(t *testing.T) {
	folders, err := os.ReadDir("internal")
	testkit.Must(t, err, "ReadDir")
	if n := len(folders); n == 0 || n > maxInternal {
		t.Errorf("internal/ has %d folders, want 1 to %d: %q", n, maxInternal, folders)
	}
}

// An untested example is soon wrong, and a long one is not readable at a glance.
func TestEveryExampleIsShortAndHasATest(t *testing.T) {
	examples, err := filepath.Glob("examples/*/main.go")
	if err != nil || len(examples) != 7 {
		t.Fatalf("examples: %q, %v", examples, err)
	}
	for _, e := range examples {
		test := readDoc(t, filepath.Join(filepath.Dir(e), "main_test.go"))
		if !strings.Contains(test, "try.Main(") {
			t.Errorf("%s: main_test.go does not run it in processes, by try.Main", e)
		}
		if n := strings.Count(readDoc(t, e), "\n"); n > 80 {
			t.Errorf("%s has %d lines, want at most 80", e, n)
		}
	}
}

// maxReadme is the maximum number of words in README.md, with its code and tables. A word has a
// letter or a digit.
const maxReadme = 900

func TestDocsReadmeIsShort(t *testing.T) {
	words := slices.DeleteFunc(strings.Fields(readDoc(t, "README.md")), func(w string) bool {
		return !strings.ContainsFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	})
	if n := len(words); n > maxReadme {
		t.Errorf("README.md has %d words, want at most %d: move something to docs/", n, maxReadme)
	}
}

func readDoc(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	testkit.Must(t, err, "ReadFile")
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}
