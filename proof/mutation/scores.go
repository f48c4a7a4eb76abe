package mutation

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("scores", false, "write the scores of this run into the committed table")

// table has the committed scores: a line has a file, its mutations and the number of noticed ones.
const table = "proof/mutation/scores.txt"

// Scores has, by file, how many mutations there were, and how many of them were noticed.
type Scores map[string]Score

// Score is the score of a file.
type Score struct{ Mutations, Noticed int }

// Add counts a mutation of a file.
func (s Scores) Add(file string, noticed bool) {
	f := s[file]
	f.Mutations++
	if noticed {
		f.Noticed++
	}
	s[file] = f
}

// Check fails if the share of noticed mutations in a file is smaller than in the committed table.
// The scores of a sample (-mutations with a number) are only logged.
func (s Scores) Check(t *testing.T, asked string) {
	t.Helper()
	committed := readScores(t)
	for _, file := range slices.Sorted(maps.Keys(s)) {
		now, before := s[file], committed[file]
		t.Logf("%s: %d of %d are noticed", file, now.Noticed, now.Mutations)
		if asked == "all" && !*update && before.Mutations == 0 && committed.has(filepath.Dir(file)) {
			t.Errorf("%s is not in %s: run with -scores", file, table)
		}
		if asked == "all" && !*update && now.Noticed*before.Mutations < before.Noticed*now.Mutations {
			t.Errorf("%s: %d of %d are noticed, fewer than the %d of %d in %s", file, now.Noticed, now.Mutations, before.Noticed, before.Mutations, table)
		}
	}
	if !*update {
		return
	}
	maps.Copy(committed, s)
	var b strings.Builder
	for _, file := range slices.Sorted(maps.Keys(committed)) {
		fmt.Fprintf(&b, "%s %d %d\n", file, committed[file].Mutations, committed[file].Noticed)
	}
	if err := os.WriteFile(filepath.Join(root(t), table), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// has reports whether a folder has scores. One that has none yet is only measured.
func (s Scores) has(folder string) bool {
	for file := range s {
		if filepath.Dir(file) == folder {
			return true
		}
	}
	return false
}

func readScores(t *testing.T) Scores {
	t.Helper()
	f, err := os.Open(filepath.Join(root(t), table))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	all := make(Scores)
	for in := bufio.NewScanner(f); in.Scan(); {
		var file string
		var s Score
		if _, err := fmt.Sscan(in.Text(), &file, &s.Mutations, &s.Noticed); err != nil {
			t.Fatalf("%s: %q: %v", table, in.Text(), err)
		}
		all[file] = s
	}
	return all
}
