package quorumlock_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// The pages about other software name a run for each claim, in comments that readers do not see. The
// comment above a table names scripts; a comment in a row has labels of the lines that they print,
// or tests. A section or a row without a run names its source and version.
func TestDocsEachClaimNamesItsRun(t *testing.T) {
	tests := testFuncs(t)
	for _, page := range []string{"coming-from.md", "compared.md", "election.md", "matrix.md", "adapters.md"} {
		var above string // the comment above the table
		var unrun, table bool
		for line := range strings.SplitSeq(readDoc(t, "docs/"+page), "\n") {
			switch {
			case strings.HasPrefix(line, "#"):
				above, unrun = "", false
			case strings.HasPrefix(line, "<!--"):
				above = line
			case unrunnable.MatchString(line) && !strings.HasPrefix(line, "|"):
				unrun = true
			}
			if !strings.HasPrefix(line, "|") {
				table = false
				continue
			}
			if !table || strings.HasPrefix(line, "|--") { // the head
				table = true
				continue
			}
			_, labels, ok := strings.Cut(line, "<!-- ")
			switch {
			case unrun || unrunnable.MatchString(line):
			case above != "" && !ok && strings.Contains(above, ".ci/"): // it writes the rows
			case !ok:
				t.Errorf("docs/%s: no comment names the run of the row\n%s", page, line)
			case !strings.HasPrefix(labels, "no run: "):
				labels, _, _ = strings.Cut(labels, " -->")
				for label := range strings.SplitSeq(labels, "; ") {
					if !tests[label] && !printed(t, above, label) {
						t.Errorf("docs/%s: neither a test nor a line of the scripts in %q is named %q, in the row\n%s", page, above, label, line)
					}
				}
			}
		}
	}
}

var (
	unrunnable = regexp.MustCompile(`(?i)from (its|their) (documentation|source)`)
	script     = regexp.MustCompile(`proof/claims/[a-z-]+\.sh`)
	testFunc   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// printed reports whether a script of the comment prints a line with the label. If the comment has
// several scripts, the label begins with the name of one.
func printed(t *testing.T, comment, label string) bool {
	t.Helper()
	scripts := script.FindAllString(comment, -1)
	if name, rest, ok := strings.Cut(label, ": "); ok {
		scripts, label = []string{"proof/claims/" + name + ".sh"}, rest
	}
	for _, s := range scripts {
		_, recorded, _ := strings.Cut(readDoc(t, s), "\nrecorded ")
		if strings.Contains(recorded, "\n"+label+": ") {
			return true
		}
	}
	return false
}

// testFuncs returns the names of all tests.
func testFuncs(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	testkit.Must(t, err, "WalkDir")
	return names
}
