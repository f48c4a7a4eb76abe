package sabotage

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Variant is a known-bad variant of the library, as a Bug is, for tests that are no simulation.
type Variant struct {
	Name  string
	File  string // from the root of the module
	Old   string
	Bad   string
	Tests string // which tests of the package must notice it, as `go test -run` has them
}

// NewVariant returns a variant that these tests must notice.
func NewVariant(name, file, old, bad, tests string) Variant {
	return Variant{Name: name, File: file, Old: old, Bad: bad, Tests: tests}
}

// AreNoticed fails unless the tests of a package, from the root of the module, fail with each of the variants. Each takes a
// build, so that a plain run tries none; -planted sets the number. The tests get args.
func AreNoticed(t *testing.T, pkg string, all []Variant, args ...string) {
	n, err := number(*many)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all { // even those that are not tried now
		source(t, v.bug())
	}
	skipUnasked(t, n)
	for _, v := range spread(all, n) {
		t.Run(v.Name, func(t *testing.T) { v.isNoticed(t, pkg, args) })
	}
}

func (v *Variant) bug() Bug { return Bug{Name: v.Name, File: v.File, Old: v.Old, Bad: v.Bad} }

func (v *Variant) isNoticed(t *testing.T, pkg string, args []string) {
	bin, err := build(t, pkg, map[string]string{v.File: strings.Replace(source(t, v.bug()), v.Old, v.Bad, 1)})
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), bin, append([]string{"-test.run=" + v.Tests, "-test.timeout=3m", "-test.failfast"}, args...)...)
	run.Dir = filepath.Join(root(t), pkg)
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatal("no test has failed")
	}
	t.Logf("%s: %s", v.File, noticedBy.FindAllString(string(out), 3))
	if !noticedBy.Match(out) {
		t.Errorf("no test has failed, but the run has: %.2000s", out)
	}
}

var noticedBy = regexp.MustCompile(`--- FAIL: \w+|panic: test timed out`)
