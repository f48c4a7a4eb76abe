package quorumlock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxReadme is how many words README.md may have, with its code and tables, as wc -w counts them.
const maxReadme = 900

func TestDocsReadmeIsShort(t *testing.T) {
	if n := len(strings.Fields(readDoc(t, "README.md"))); n > maxReadme {
		t.Errorf("README.md has %d words, want at most %d: move something to docs/", n, maxReadme)
	}
}

// riddles are words that the style guide replaces with plain ones.
var riddles = []string{"mended", "anew", "is told of", "shall not"}

func TestDocsAreInPlainEnglish(t *testing.T) {
	found := make(map[string]*regexp.Regexp)
	for _, r := range riddles {
		found[r] = regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(r, " ", `\s+`) + `\b`)
	}
	for _, page := range append(pages(t), "doc.go") {
		text := strings.ReplaceAll(readDoc(t, page), "\n//", "\n") // a phrase may go on in the next line
		for _, r := range riddles {
			if at := found[r].FindStringIndex(text); at != nil {
				t.Errorf("%s, line %d: %q: say it plainly", page, 1+strings.Count(text[:at[0]], "\n"), r)
			}
		}
	}
}

// pages are README.md and the pages of docs/.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 2 {
		t.Fatalf("docs/ has only %q", found)
	}
	for i := range found {
		found[i] = filepath.ToSlash(found[i])
	}
	return append([]string{"README.md"}, found...)
}

func readDoc(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}
