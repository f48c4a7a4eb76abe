package quorumlock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// maxReadme is how many words README.md may have, with its code and tables, as wc -w counts them.
const maxReadme = 900

func TestDocsReadmeIsShort(t *testing.T) {
	if n := len(strings.Fields(readDoc(t, "README.md"))); n > maxReadme {
		t.Errorf("README.md has %d words, want at most %d: move something to docs/", n, maxReadme)
	}
}

func TestDocsLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]*)\)`)
	for _, page := range pages(t) {
		links := link.FindAllStringSubmatch(prose(readDoc(t, page)), -1)
		if page == "README.md" && len(links) == 0 {
			t.Error("README.md has no links, so none is checked")
		}
		for _, l := range links {
			if why := deadLink(t, page, l[1]); why != "" {
				t.Errorf("%s links to %q: %s", page, l[1], why)
			}
		}
	}
}

// deadLink returns what is wrong with a link of a page. Links to other hosts are not followed.
func deadLink(t *testing.T, page, target string) string {
	if strings.Contains(target, "://") {
		return ""
	}
	path, anchor, hasAnchor := strings.Cut(target, "#")
	file := page
	if path != "" {
		file = filepath.Join(filepath.Dir(page), path)
	}
	if _, err := os.Stat(file); err != nil {
		return "there is no such file"
	}
	if hasAnchor && !slices.Contains(anchors(readDoc(t, file)), anchor) {
		return "the file has no such heading"
	}
	return ""
}

func TestDocsDeadLinksAreFound(t *testing.T) {
	for _, tt := range []struct {
		page, target string
		dead         bool
	}{
		{"README.md", "docs/proof.md", false},
		{"docs/proof.md", "../README.md", false},
		{"docs/proof.md", "#planted-bugs", false},
		{"README.md", "docs/proof.md#planted-bugs", false},
		{"README.md", "https://example.com/nowhere", false}, // another host: no request
		{"README.md", "proof.md", true},
		{"docs/proof.md", "docs/proof.md", true},
		{"docs/proof.md", "#no-such-heading", true},
		{"README.md", "docs/proof.md#no-such-heading", true},
	} {
		if why := deadLink(t, tt.page, tt.target); (why != "") != tt.dead {
			t.Errorf("%s links to %q: found %q, dead: %v", tt.page, tt.target, why, tt.dead)
		}
	}
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	for line := range strings.Lines(prose(text)) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title)))
	}
	return all
}

// riddles are words that the style guide replaces with plain ones.
var riddles = []string{"mended", "anew", "is told of", "shall not"}

var riddle = regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(strings.Join(riddles, "|"), " ", `\s+`) + `)\b`)

func TestDocsAreInPlainEnglish(t *testing.T) {
	for _, page := range append(pages(t), "doc.go") {
		for _, found := range riddlesIn(readDoc(t, page)) {
			t.Errorf("%s, %s: say it plainly", page, found)
		}
	}
}

func TestDocsRiddlesAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"Locks of one node.":                     "",
		"It has commended the amended text.":     "", // no words of their own
		"Once\nmore it is\nMended.":              `line 3: "Mended"`,
		"// Its holder is told\n// of the loss.": `line 1: "is told\n of"`,
		"You shall not.\nIt is done anew.":       `line 1: "shall not", line 2: "anew"`,
	} {
		if got := strings.Join(riddlesIn(text), ", "); got != want {
			t.Errorf("in %q: %s, want %s", text, got, want)
		}
	}
}

// riddlesIn returns the riddles in a text, each with its line. A phrase may go on in the next line, also of a comment.
func riddlesIn(text string) (found []string) {
	text = strings.ReplaceAll(text, "\n//", "\n")
	for _, at := range riddle.FindAllStringIndex(text, -1) {
		found = append(found, fmt.Sprintf("line %d: %q", 1+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]]))
	}
	return found
}

// pages are README.md, the other pages beside it, and those of docs/.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for pattern, least := range map[string]int{"*.md": 5, "docs/*.md": 10} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < least {
			t.Fatalf("%s: only %q, %v", pattern, found, err)
		}
		for _, page := range found {
			all = append(all, filepath.ToSlash(page))
		}
	}
	return all
}

func readDoc(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// prose returns a page without its code, which has brackets and # of its own.
func prose(page string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			code = !code
			continue
		}
		if !code {
			b.WriteString(line)
		}
	}
	return b.String()
}
