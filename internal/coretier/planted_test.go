package coretier

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	plant = flag.String("plant", "", "break the library and see what notices: `file: old => new`, and no planted bug of the table")
	many  = flag.String("planted", "2", "`how many` of the planted bugs to try, of those that are soon found, or all")
)

// bug is a known-bad variant of the library: one text of one of its files, replaced by another.
type bug struct {
	name  string
	file  string // from the root of the module
	old   string
	bad   string
	seeds int // within which it must be caught
}

// Every one of the planted bugs is caught: so the simulation would notice the like of it. Each takes a build of the
// library, so that a plain run has a sample of them.
func TestPlantedBugsAreCaught(t *testing.T) {
	planted, err := some(*many)
	if err != nil {
		t.Fatal(err)
	}
	if len(planted) < len(bugs) {
		t.Logf("%d of the %d planted bugs; -planted all tries every one", len(planted), len(bugs))
	}
	if *plant != "" {
		file, change, ok := strings.Cut(*plant, ": ")
		old, bad, ok2 := strings.Cut(change, " => ")
		if !ok || !ok2 {
			t.Fatalf("-plant %q: want `file: old => new`", *plant)
		}
		planted = []bug{{name: "the one planted", file: file, old: unquoted(old), bad: unquoted(bad), seeds: *seeds}}
	}
	rows := make([]string, len(planted))
	t.Run("all", func(t *testing.T) {
		for i, b := range planted {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				rows[i] = b.caught(t)
			})
		}
	})
	t.Logf("what is caught, and within how many seeds:\n\n| planted bug | in | caught by | seed |\n|---|---|---|---|\n%s", strings.Join(rows, "\n"))
}

// soon is the number of seeds within which a bug of the sample is caught.
const soon = 4000

// some returns all bugs, or as many, spread over the table, of those that are caught soon.
func some(howMany string) ([]bug, error) {
	if howMany == "all" {
		return bugs, nil
	}
	n, err := strconv.Atoi(howMany)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("-planted %s: want a number, or all", howMany)
	}
	quick := slices.DeleteFunc(slices.Clone(bugs), func(b bug) bool { return b.seeds > soon })
	n = min(n, len(quick))
	sample := make([]bug, n)
	for i := range sample {
		sample[i] = quick[i*len(quick)/n]
	}
	return sample, nil
}

// A plain run that tried none would pass just as well.
func TestAPlainRunTriesSomeOfThePlantedBugs(t *testing.T) {
	for howMany, want := range map[string]int{flag.Lookup("planted").DefValue: 2, "all": len(bugs), "1000": -1, "0": 0} {
		got, err := some(howMany)
		if err != nil {
			t.Fatal(err)
		}
		names := make(map[string]bool)
		for _, b := range got {
			names[b.name] = true
			if howMany != "all" && b.seeds > soon {
				t.Errorf("-planted %s tries %q, which takes up to %d seeds", howMany, b.name, b.seeds)
			}
		}
		if len(names) != len(got) || want >= 0 && len(got) != want {
			t.Errorf("-planted %s tries %d bugs, %d of them different; want %d", howMany, len(got), len(names), want)
		}
	}
}

func unquoted(s string) string { return strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(s) }

var firstFailure = regexp.MustCompile(`seed (\d+): ([^:\n]+): (.*)|seed (\d+) (hangs)|(panic): (.*)`)

// caught builds the library with the bug, runs the simulation, and returns what became of it as a row of a table.
func (b bug) caught(t *testing.T) string {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := b.build(t, root)
	cmd := exec.CommandContext(t.Context(), bin, "-test.run=^TestSeeds$", "-test.timeout=3m", "-shrink=false", fmt.Sprintf("-seeds=%d", b.seeds))
	cmd.Dir = filepath.Join(root, "internal", "coretier")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%s is not caught by %d seeds", b.name, b.seeds)
		return fmt.Sprintf("| %s | %s | nothing | - |", b.name, b.file)
	}
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Fatal(err)
	}
	m := firstFailure.FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("%s: no seed failed, but the run did:\n%s", b.name, out)
	}
	by, seed := m[2]+m[5]+m[6], m[1]+m[4]
	if m[6] != "" {
		t.Errorf("%s: the run panicked: %s", b.name, m[7])
	}
	t.Logf("%s: seed %s: %s: %s", b.name, seed, by, m[3])
	return fmt.Sprintf("| %s | %s | %s | %s |", b.name, b.file, by, seed)
}

func (b bug) build(t *testing.T, root string) (bin string) {
	dir := t.TempDir()
	path := filepath.Join(root, b.file)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), b.old); n != 1 {
		t.Fatalf("%s: %d times %q in %s, want once: has the code changed?", b.name, n, b.old, b.file)
	}
	bad := filepath.Join(dir, filepath.Base(b.file))
	if err := os.WriteFile(bad, []byte(strings.Replace(string(source), b.old, b.bad, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: bad}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	bin = filepath.Join(dir, "coretier.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", file, "-o", bin, "./internal/coretier")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", b.name, err, out)
	}
	return bin
}
