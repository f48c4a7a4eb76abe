package quorumlock_test

import (
	"os"
	"strings"
	"testing"
)

// maxReadme is the maximum number of words in README.md, with its code and tables, as wc -w counts
// them.
const maxReadme = 900

func TestDocsReadmeIsShort(t *testing.T) {
	if n := len(strings.Fields(readDoc(t, "README.md"))); n > maxReadme {
		t.Errorf("README.md has %d words, want at most %d: move something to docs/", n, maxReadme)
	}
}

func readDoc(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}
