//go:build !race

package latchsim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var many = flag.String("planted", "2", "`how many` of the planted bugs to try, of the first in the table, or all")

// bug is a known-bad variant of the library: one text of one of its files, replaced by another.
type bug struct {
	name  string
	file  string // from the root of the module
	old   string
	bad   string
	seeds int // within which it must be caught
}

// Every one of the planted bugs is caught: so the simulation would notice the like of it. Each takes a build, so that a
// plain run tries only some of them.
func TestPlantedBugsAreCaught(t *testing.T) {
	n, err := strconv.Atoi(*many)
	if *many == "all" {
		n, err = len(bugs), nil
	}
	if err != nil || n < 0 {
		t.Fatalf("-planted %s: want a number, or all", *many)
	}
	for i, b := range bugs {
		source := b.source(t)
		if i >= n {
			continue
		}
		t.Run(b.name, func(t *testing.T) { b.caught(t, source) })
	}
}

// source is the file in which the bug is planted, without the bug.
func (b bug) source(t *testing.T) string {
	source, err := os.ReadFile(filepath.Join("../..", b.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), b.old); n != 1 {
		t.Errorf("%s: %d times %q in %s, want once: has the code changed?", b.name, n, b.old, b.file)
	}
	return string(source)
}

var firstFailure = regexp.MustCompile(`seed (\d+): ([^:\n]+): (.*)|(panic): (.*)`)

// caught builds the tests with the bug, runs the seeds, and logs what became of it as a row of a table.
func (b bug) caught(t *testing.T, source string) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad := write(filepath.Base(b.file), []byte(strings.Replace(source, b.old, b.bad, 1)))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, b.file): bad}})
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "latchsim.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", write("overlay.json", overlay), "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), bin, "-test.run=^TestSeeds$", "-test.timeout=5m", fmt.Sprintf("-seeds=%d", b.seeds)).CombinedOutput()
	m := firstFailure.FindStringSubmatch(string(out))
	switch {
	case err == nil:
		t.Fatalf("%s is not caught by %d seeds", b.name, b.seeds)
	case m == nil:
		t.Fatalf("no seed failed, but the run did: %v\n%s", err, out)
	case m[4] != "":
		t.Errorf("the run panicked: %s", m[5])
	}
	t.Logf("\n| %s | %s | %s | %s |\n%s", b.name, b.file, m[2], m[1], m[3])
}
