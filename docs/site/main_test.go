package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheSiteOfThisRepository(t *testing.T) {
	out := t.TempDir()
	if err := build("../..", out); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(out, "docs", "*.html"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("only %d pages in docs/, %v", len(pages), err)
	}
	charts, err := filepath.Glob(filepath.Join(out, "docs", "*.svg"))
	if err != nil || len(charts) < 3 {
		t.Errorf("only %d charts, %v", len(charts), err)
	}
	for _, page := range append(pages, filepath.Join(out, "index.html")) {
		html := read(t, page)
		if !strings.Contains(html, "<h1") {
			t.Errorf("%s has no heading", page)
		}
		if fetched := regexp.MustCompile(`(?i)<(script|link|iframe)\b|\bsrc="(https?:)?//|url\(|@import`).FindString(html); fetched != "" {
			t.Errorf("%s fetches something from elsewhere: %q", page, fetched)
		}
		for _, link := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(html, -1) {
			if file, _, _ := strings.Cut(link[1], "#"); file != "" && !strings.Contains(file, "://") {
				if _, err := os.Stat(filepath.Join(filepath.Dir(page), filepath.FromSlash(file))); err != nil {
					t.Errorf("%s links to %s, which is not on the site", page, link[1])
				}
			}
		}
	}
	for _, chart := range charts {
		if strings.Contains(strings.ReplaceAll(read(t, chart), `xmlns="http://www.w3.org/2000/svg"`, ""), "//") {
			t.Errorf("%s may fetch something from elsewhere", chart)
		}
	}
}

// Every function that a page places in a source file is in that file.
func TestNamesInSourceFiles(t *testing.T) {
	sources := make(map[string]string) // the text of all files with that name
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if ext := filepath.Ext(path); err == nil && (ext == ".go" || ext == ".lua") {
			sources[d.Name()] += read(t, path)
		}
		return err
	})
	pages, _ := filepath.Glob("../design/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatal(pages, err)
	}
	names, word := regexp.MustCompile("((?:`[\\w.]+`(?:, | and )?)+) in `[\\w/]*?(\\w+\\.(?:go|lua))`"), regexp.MustCompile("\\w+`")
	for _, page := range append(pages, "../../ARCHITECTURE.md", "../../CONTRIBUTING.md") {
		for _, m := range names.FindAllStringSubmatch(strings.ReplaceAll(read(t, page), "\n", " "), -1) {
			for _, name := range word.FindAllString(m[1], -1) {
				if name = strings.Trim(name, "`"); !regexp.MustCompile(`\b` + name + `\b`).MatchString(sources[m[2]]) {
					t.Errorf("%s: %s has no %s", page, m[2], name)
				}
			}
		}
	}
}

func TestLinks(t *testing.T) {
	for name, test := range map[string]struct{ markdown, html, err string }{
		"a page":              {"[x](docs/a.md)", `href="docs/a.html"`, ""},
		"its heading":         {"[x](docs/a.md#what--why)", `href="docs/a.html#what--why"`, ""},
		"a heading here":      {"[x](#home)", `href="index.html#home"`, ""},
		"a file":              {"[x](go.mod)", `href="` + repository + `go.mod"`, ""},
		"elsewhere":           {"[x](https://example.org/a#b)", `href="https://example.org/a#b"`, ""},
		"a source file":       {"`a/b.go`", "<code>a/b.go</code>", ""},
		"no source file":      {"`c/b.go`", "", "there is no file c/b.go"},
		"no page":             {"[x](docs/b.md)", "", `README.md: the link "docs/b.md" leads to no file`},
		"no heading":          {"[x](docs/a.md#why)", "", `leads to no heading`},
		"no heading here":     {"[x](#why)", "", `leads to no heading`},
		"no image":            {"![x](docs/b.svg)", "", `leads to no file`},
		"no picture":          {"![x](go.mod)", "", `is not on the site`},
		"an image elsewhere":  {"![x](https://example.org/a.svg)", "", `fetches nothing from elsewhere`},
		"raw HTML is escaped": {"<script>alert(1)</script>", "raw HTML omitted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root, out := t.TempDir(), t.TempDir()
			for file, content := range map[string]string{
				"README.md": "# Home\n\n" + test.markdown + "\n", "docs/a.md": "# A\n\n## What, & why?\n\n[home](../README.md)\n", "go.mod": "module x\n", "a/b.go": "package a\n",
			} {
				file = filepath.Join(root, filepath.FromSlash(file))
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := build(root, out)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one that says %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if html := read(t, filepath.Join(out, "index.html")); !strings.Contains(html, test.html) {
				t.Errorf("no %s in\n%s", test.html, html)
			}
			if html := read(t, filepath.Join(out, "docs", "a.html")); !strings.Contains(html, `href="../index.html"`) || !strings.Contains(html, `id="what--why"`) {
				t.Errorf("the other page is\n%s", html)
			}
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
