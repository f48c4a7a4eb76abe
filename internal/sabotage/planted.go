package sabotage

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	plant = flag.String("plant", "", "break the library and see what notices: `file: old => new`, instead of the planted bugs of the table")
	many  = flag.String("planted", "0", "`how many` of the planted bugs to try, of those that are found soon; or all")
)

// Bug is a known-bad variant of the library: one text of one of its files, replaced by another.
type Bug struct {
	Name  string
	File  string // from the root of the module
	Old   string
	Bad   string
	Seeds int // within which it must be caught
}

// NewBug returns a bug that must be caught within so many seeds.
func NewBug(name, file, old, bad string, seeds int) Bug {
	return Bug{Name: name, File: file, Old: old, Bad: bad, Seeds: seeds}
}

// Planted are the bugs that a simulation must catch.
type Planted struct {
	Package string // of the simulation, from the root of the module
	Bugs    []Bug
	Soon    int // a plain run tries bugs that are caught within so many seeds
}

// AreCaught fails unless every bug is caught within its number of seeds. Each takes a build of the library, so a plain run
// only compares the table with the code, and skips the rest. The bug of -plant, if there is one, must be caught within seeds.
func (p *Planted) AreCaught(t *testing.T, seeds int) {
	bugs, err := p.some(*many)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range p.Bugs { // even those that are not tried now
		source(t, b)
	}
	if len(bugs) < len(p.Bugs) {
		t.Logf("%d of the %d planted bugs; -planted all tries every one", len(bugs), len(p.Bugs))
	}
	if *plant != "" {
		file, change, ok := strings.Cut(*plant, ": ")
		old, bad, ok2 := strings.Cut(change, " => ")
		if !ok || !ok2 {
			t.Fatalf("-plant %q: want `file: old => new`", *plant)
		}
		bugs = []Bug{{Name: "the one planted", File: file, Old: unquoted(old), Bad: unquoted(bad), Seeds: seeds}}
	}
	skipUnasked(t, len(bugs))
	rows := make([]string, len(bugs))
	t.Run("all", func(t *testing.T) {
		for i, b := range bugs {
			t.Run(b.Name, func(t *testing.T) {
				t.Parallel()
				rows[i] = p.caught(t, b)
			})
		}
	})
	t.Logf("what is caught, and within how many seeds:\n\n| planted bug | in | caught by | seed |\n|---|---|---|---|\n%s", strings.Join(rows, "\n"))
}

// skipUnasked skips a test without requested builds.
func skipUnasked(t *testing.T, builds int) {
	t.Helper()
	if builds == 0 {
		t.Skip("-planted N or all builds the library with bugs; the table was compared with the code")
	}
}

// some returns all bugs, or that many of those that are caught soon, spread over the table.
func (p *Planted) some(howMany string) ([]Bug, error) {
	if howMany == "all" {
		return p.Bugs, nil
	}
	n, err := number(howMany)
	return spread(slices.DeleteFunc(slices.Clone(p.Bugs), func(b Bug) bool { return b.Seeds > p.Soon }), n), err
}

// number reads the value of -planted.
func number(howMany string) (int, error) {
	if howMany == "all" {
		return math.MaxInt, nil
	}
	n, err := strconv.Atoi(howMany)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("-planted %s: want a number, or all", howMany)
	}
	return n, nil
}

// spread returns n elements from all over the list, or all if it has fewer.
func spread[T any](all []T, n int) []T {
	n = min(n, len(all))
	sample := make([]T, n)
	for i := range sample {
		sample[i] = all[i*len(all)/n]
	}
	return sample
}

func unquoted(s string) string { return strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(s) }

// caught runs the simulation with a bug, and returns the outcome as a row of a table.
func (p *Planted) caught(t *testing.T, b Bug) string {
	bin, err := build(t, p.Package, map[string]string{b.File: strings.Replace(source(t, b), b.Old, b.Bad, 1)})
	if err != nil {
		t.Fatalf("%s: %v", b.Name, err)
	}
	f := run(t, bin, p.Package, 0, b.Seeds, 10*time.Minute)
	switch f.by {
	case "":
		t.Errorf("%s is not caught by %d seeds", b.Name, b.Seeds)
		return fmt.Sprintf("| %s | %s | nothing | - |", b.Name, b.File)
	case "panic":
		t.Errorf("%s: the run panicked: %s", b.Name, f.text)
	}
	t.Logf("%s: seed %d: %s: %s", b.Name, f.seed, f.by, f.text)
	return fmt.Sprintf("| %s | %s | %s | %d |", b.Name, b.File, f.by, f.seed)
}

// source is the file that a bug is planted in.
func source(t *testing.T, b Bug) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), b.File))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), b.Old); n != 1 {
		t.Errorf("%s: %d times %q in %s, want once: has the code changed?", b.Name, n, b.Old, b.File)
	}
	return string(text)
}
