// Package links checks the README and the pages of docs/: every link has a target, every source file
// and function that a page names exists, and no picture loads anything from elsewhere.
package links

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

func TestLinks(t *testing.T) {
	if wrong := check(t, os.DirFS("../.."), 20); wrong != nil {
		t.Error(wrong)
	}
}

func TestDeadLinksAreFound(t *testing.T) {
	for name, tt := range map[string]struct{ markdown, err string }{
		"a page":               {"[x](docs/a.md)", ""},
		"its heading":          {"[x](docs/a.md#what--why)", ""},
		"a heading here":       {"[x](#home)", ""},
		"a file":               {"[x](go.mod)", ""},
		"elsewhere":            {"[x](https://example.org/a#b)", ""},
		"a source file":        {"`a/b.go`", ""},
		"no source file":       {"`c/b.go`", "there is no file c/b.go"},
		"no page":              {"[x](docs/b.md)", `README.md: the link "docs/b.md" leads to no file`},
		"no heading":           {"[x](docs/a.md#why)", `leads to no heading`},
		"no heading here":      {"[x](#why)", `leads to no heading`},
		"no image":             {"![x](docs/b.svg)", `leads to no file`},
		"a chart that fetches": {"![x](docs/c.svg)", `docs/c.svg may fetch something`},
		"an image elsewhere":   {"![x](https://example.org/a.svg)", `is not in the repository`},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			files := map[string]string{
				"README.md": "# Home\n\n" + tt.markdown + "\n", "docs/a.md": "# A\n\n## What, & why?\n\n[home](../README.md)\n",
				"go.mod": "module x\n", "a/b.go": "package a\n",
			}
			if strings.Contains(tt.markdown, "c.svg") {
				files["docs/c.svg"] = `<image href="https://example.org/a.png"/>`
			}
			for file, content := range files {
				file = filepath.Join(root, filepath.FromSlash(file))
				must(t, os.MkdirAll(filepath.Dir(file), 0o755))
				must(t, os.WriteFile(file, []byte(content), 0o644))
			}
			switch err := check(t, os.DirFS(root), 2); {
			case tt.err == "" && err != nil:
				t.Errorf("%v, want no error", err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("%v, want an error that says %q", err, tt.err)
			}
		})
	}
}

// If a page says that a name is in a source file, it is there.
func TestNamesInSourceFiles(t *testing.T) {
	root := os.DirFS("../..")
	sources := make(map[string]string) // the text of all files with that name
	for _, file := range sourceFiles(t, root) {
		sources[path.Base(file)] += read(t, root, file)
	}
	names, word := regexp.MustCompile("((?:`[\\w.]+`(?:, | and )?)+) in `[\\w/]*?(\\w+\\.(?:go|lua))`"), regexp.MustCompile("\\w+`")
	for _, page := range append(glob(t, root, "docs/design/*.md", 5), "ARCHITECTURE.md", "CONTRIBUTING.md") {
		for _, m := range names.FindAllStringSubmatch(strings.ReplaceAll(read(t, root, page), "\n", " "), -1) {
			for _, name := range word.FindAllString(m[1], -1) {
				if name = strings.Trim(name, "`"); !regexp.MustCompile(`\b` + name + `\b`).MatchString(sources[m[2]]) {
					t.Errorf("%s: %s has no %s", page, m[2], name)
				}
			}
		}
	}
}

// check returns the errors of all pages. The test fails if there are fewer than least pages.
func check(t *testing.T, root fs.FS, least int) error {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	headings, trees, texts := make(map[string]anchors), make(map[string]ast.Node), make(map[string][]byte)
	for _, page := range slices.Concat(glob(t, root, "*.md", 1), glob(t, root, "docs/*.md", 1), glob(t, root, "docs/design/*.md", 0)) {
		headings[page], texts[page] = make(anchors), []byte(read(t, root, page))
		trees[page] = markdown.Parser().Parse(text.NewReader(texts[page]), parser.WithContext(parser.NewContext(parser.WithIDs(headings[page]))))
	}
	if len(trees) < least {
		t.Fatalf("only %d pages", len(trees))
	}
	files := sourceFiles(t, root)
	var wrong []error
	for page, tree := range trees {
		report := func(err error) {
			if err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", page, err))
			}
		}
		must(t, ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			if !entering {
				return ast.WalkContinue, nil
			}
			switch n := n.(type) {
			case *ast.CodeSpan:
				if text, ok := n.FirstChild().(*ast.Text); ok {
					report(exists(files, string(text.Value(texts[page]))))
				}
			case *ast.Link:
				report(leads(root, headings, page, string(n.Destination)))
			case *ast.Image:
				if report(leads(root, headings, page, string(n.Destination))); strings.Contains(string(n.Destination), "://") {
					report(fmt.Errorf("the image %s is not in the repository", n.Destination))
				}
			}
			return ast.WalkContinue, nil
		}))
	}
	for _, chart := range glob(t, root, "docs/*.svg", 0) {
		if strings.Contains(strings.ReplaceAll(read(t, root, chart), `xmlns="http://www.w3.org/2000/svg"`, ""), "//") {
			wrong = append(wrong, fmt.Errorf("%s may fetch something from elsewhere", chart))
		}
	}
	return errors.Join(wrong...)
}

// leads returns an error if a link of a page has no target. Links to other sites are not followed.
func leads(root fs.FS, headings map[string]anchors, page, link string) error {
	if strings.Contains(link, "://") {
		return nil
	}
	file, anchor, _ := strings.Cut(link, "#")
	to := page
	if file != "" {
		to = path.Join(path.Dir(page), file)
	}
	if _, err := fs.Stat(root, to); err != nil {
		return fmt.Errorf("the link %q leads to no file", link)
	}
	if there, ok := headings[to]; ok && anchor != "" && !there[anchor] {
		return fmt.Errorf("the link %q leads to no heading", link)
	}
	return nil
}

// sourceFile matches the name of a source file, alone or with its folders.
var sourceFile = regexp.MustCompile(`^[\w./-]+\.(go|lua)$`)

func sourceFiles(t *testing.T, root fs.FS) (files []string) {
	must(t, fs.WalkDir(root, ".", func(file string, _ fs.DirEntry, err error) error {
		if sourceFile.MatchString(file) {
			files = append(files, file)
		}
		return err
	}))
	return files
}

// exists returns an error if text is the name of a source file that does not exist.
func exists(files []string, text string) error {
	if sourceFile.MatchString(text) && !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix("/"+f, "/"+text) }) {
		return fmt.Errorf("there is no file %s", text)
	}
	return nil
}

func glob(t *testing.T, root fs.FS, pattern string, least int) []string {
	found, err := fs.Glob(root, pattern)
	if must(t, err); len(found) < least {
		t.Fatalf("%s: only %d files", pattern, len(found))
	}
	return found
}

// anchors makes the names of headings as GitHub does.
type anchors map[string]bool

func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	base := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(heading)))
	id := base
	for n := 1; a[id]; n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	a[id] = true
	return []byte(id)
}

func (a anchors) Put(id []byte) { a[string(id)] = true }

func read(t *testing.T, root fs.FS, file string) string {
	t.Helper()
	b, err := fs.ReadFile(root, file)
	must(t, err)
	return string(b)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
