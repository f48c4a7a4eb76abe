package quorumlock_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
)

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
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}
