// Site makes a static site of the README and the pages of docs/, with their charts:
//
//	go run . -out /tmp/site
//
// The pages keep their paths, so links between them work as in the repository. Links to other files
// lead to the repository on the web. A dead link is an error. Pages fetch nothing from other sites.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// repository is where links to files lead that are not on the site.
const repository = "https://github.com/quorumlock/quorumlock/blob/main/"

//go:embed page.html
var layout string

var page = template.Must(template.New("page").Parse(layout))

func main() {
	root := flag.String("root", "../..", "the `directory` of the repository")
	out := flag.String("out", "", "the `directory` to write the site to")
	flag.Parse()
	if *out == "" {
		log.Fatal("site: give -out, the directory to write the site to")
	}
	if err := build(*root, *out); err != nil {
		log.Fatal("site: ", err)
	}
}

// site has the pages, and the targets of links. Paths are relative to the root, with slashes.
type site struct {
	root    string
	sources map[string]bool            // the pages, such as docs/proof.md
	assets  map[string]bool            // the pictures, such as docs/latency.svg
	anchors map[string]map[string]bool // of each page
	trees   map[string]ast.Node
	texts   map[string][]byte
	files   []string // all source files, such as /internal/core/phase.go
}

// build writes the site, or returns all that is wrong with its links.
func build(root, out string) error {
	s := &site{root, make(map[string]bool), make(map[string]bool), make(map[string]map[string]bool), make(map[string]ast.Node), make(map[string][]byte), nil}
	if err := s.list(); err != nil {
		return err
	}
	var sources, assets []string
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/design/*.md", "docs/*.svg", "docs/*.png", "[A-QS-Z]*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, file := range found {
			name, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			if name = filepath.ToSlash(name); strings.HasSuffix(name, ".md") {
				sources = append(sources, name)
				s.sources[name] = true
			} else {
				assets = append(assets, name)
				s.assets[name] = true
			}
		}
	}
	if !s.sources["README.md"] {
		return fmt.Errorf("%s has no README.md: give -root, the directory of the repository", root)
	}
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	for _, name := range sources {
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		ids := make(anchors)
		s.texts[name] = b
		s.trees[name] = markdown.Parser().Parse(text.NewReader(b), parser.WithContext(parser.NewContext(parser.WithIDs(ids))))
		s.anchors[name] = ids
	}
	var wrong []error
	for _, name := range sources {
		wrong = append(wrong, s.relink(name)...)
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	for _, name := range sources {
		var body bytes.Buffer
		if err := markdown.Renderer().Render(&body, s.texts[name], s.trees[name]); err != nil {
			return err
		}
		if err := s.write(out, name, sources, body.String()); err != nil {
			return err
		}
	}
	for _, name := range assets {
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, filepath.FromSlash(name)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// list collects the source files of the repository.
func (s *site) list() error {
	return filepath.WalkDir(s.root, func(file string, _ fs.DirEntry, err error) error {
		if err == nil && sourceFile.MatchString(file) {
			file, err = filepath.Rel(s.root, file)
			s.files = append(s.files, "/"+filepath.ToSlash(file))
		}
		return err
	})
}

// sourceFile matches the name of a source file, alone or with its folders.
var sourceFile = regexp.MustCompile(`^[\w./-]+\.(go|lua)$`)

// exists returns an error if text is the name of a source file that does not exist.
func (s *site) exists(text string) error {
	if sourceFile.MatchString(text) && !slices.ContainsFunc(s.files, func(f string) bool { return strings.HasSuffix(f, "/"+text) }) {
		return fmt.Errorf("there is no file %s", text)
	}
	return nil
}

// relink turns the links of a page into those of the site. It returns the dead links, and the names
// of source files that do not exist.
func (s *site) relink(name string) (wrong []error) {
	_ = ast.Walk(s.trees[name], func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		var err error
		switch n := n.(type) {
		case *ast.CodeSpan:
			if text, ok := n.FirstChild().(*ast.Text); ok && entering {
				err = s.exists(string(text.Value(s.texts[name])))
			}
		case *ast.Link:
			if entering {
				n.Destination, err = s.target(name, string(n.Destination))
			}
		case *ast.Image:
			if entering && strings.Contains(string(n.Destination), "://") {
				err = errors.New("a page fetches nothing from elsewhere: put the image into docs/")
			} else if entering {
				if n.Destination, err = s.target(name, string(n.Destination)); err == nil && strings.Contains(string(n.Destination), "://") {
					err = fmt.Errorf("the image %s is not on the site: put it into docs/, as SVG or PNG", n.Destination)
				}
			}
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
		return ast.WalkContinue, nil
	})
	return wrong
}

// target returns where a link of a page leads on the site.
func (s *site) target(name, link string) ([]byte, error) {
	if strings.Contains(link, "://") {
		return []byte(link), nil
	}
	file, anchor, _ := strings.Cut(link, "#")
	to := name
	if file != "" {
		to = path.Join(path.Dir(name), file)
	}
	if _, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(to))); err != nil {
		return nil, fmt.Errorf("the link %q leads to no file", link)
	}
	switch {
	case s.assets[to]:
		return []byte(link), nil
	case !s.sources[to]:
		return []byte(repository + to), nil
	case anchor != "" && !s.anchors[to][anchor]:
		return nil, fmt.Errorf("the link %q leads to no heading", link)
	}
	there := relative(name, to)
	if anchor != "" {
		there += "#" + anchor
	}
	return []byte(there), nil
}

// relative returns the way from one page to another on the site.
func relative(from, to string) string {
	way, err := filepath.Rel(filepath.FromSlash(path.Dir(from)), filepath.FromSlash(address(to)))
	if err != nil {
		panic(err) // both are relative to the root
	}
	return filepath.ToSlash(way)
}

// address is where a page is on the site.
func address(name string) string {
	if name == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

type entry struct {
	Title, Link string
	Here        bool
}

func (s *site) write(out, name string, all []string, body string) error {
	var entries []entry
	for _, n := range all {
		entries = append(entries, entry{s.title(n), relative(name, n), n == name})
	}
	var b bytes.Buffer
	err := page.Execute(&b, map[string]any{"Title": s.title(name), "Pages": entries, "Body": template.HTML(body)})
	if err != nil {
		return err
	}
	file := filepath.Join(out, filepath.FromSlash(address(name)))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// title is the first heading of a page.
func (s *site) title(name string) string {
	first, _, _ := strings.Cut(string(s.texts[name]), "\n")
	return strings.TrimSpace(strings.TrimLeft(first, "#"))
}

// anchors makes the names of headings as GitHub does, so that links work in both places.
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
