package quorumlock_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

var update = flag.Bool("update", false, "write what the packages export to testdata/api/")

// The files of testdata/api list the exports of the packages, without comments. A change of them is a
// change for users, which a review must see: a removed or changed line breaks their code.
func TestAPIIsAsCommitted(t *testing.T) {
	files := make(map[string]bool)
	for _, p := range publicPackages(t) {
		file := filepath.Join("testdata", "api", strings.ReplaceAll(filepath.ToSlash(p.dir), "/", "-")+".txt")
		if p.dir == "." {
			file = filepath.Join("testdata", "api", "quorumlock.txt")
		}
		files[file] = true
		got := exported(t, p)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if want, err := os.ReadFile(file); err != nil {
			t.Error(err)
		} else if want := strings.ReplaceAll(string(want), "\r\n", "\n"); got != want {
			gone, come := differences(want, got), differences(got, want)
			t.Errorf("package %s exports something else than %s: if that is meant, run go test . -run API -update, and name it in CHANGELOG.md\ngone:\n%s\nnew:\n%s",
				p.doc.Name, file, gone, come)
		}
	}
	committed, err := filepath.Glob("testdata/api/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range committed {
		if !files[file] {
			t.Errorf("%s is of no package that there is", file)
		}
	}
}

// differences returns the lines of a that b lacks.
func differences(a, b string) string {
	has := strings.Split(b, "\n")
	var lines []string
	for line := range strings.SplitSeq(a, "\n") {
		if !slices.Contains(has, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestEveryExportedNameHasADocComment(t *testing.T) {
	names := 0
	for _, p := range publicPackages(t) {
		check := func(name, comment string) {
			if names++; strings.TrimSpace(comment) == "" {
				t.Errorf("%s.%s has no doc comment: say what it is, with units, errors and what ctx does", p.doc.Name, name)
			}
		}
		check("", p.doc.Doc)
		values := func(all []*doc.Value) {
			for _, v := range all {
				for _, spec := range v.Decl.Specs { // a comment of the group is enough
					if s := spec.(*ast.ValueSpec); ast.IsExported(s.Names[0].Name) {
						check(s.Names[0].Name, v.Doc+s.Doc.Text()+s.Comment.Text())
					}
				}
			}
		}
		values(p.doc.Consts)
		values(p.doc.Vars)
		for _, f := range p.doc.Funcs {
			check(f.Name, f.Doc)
		}
		for _, typ := range p.doc.Types {
			check(typ.Name, typ.Doc)
			values(typ.Consts)
			values(typ.Vars)
			for _, f := range append(slices.Clone(typ.Funcs), typ.Methods...) {
				if !isOfAnInterface(f.Name) {
					check(typ.Name+"."+f.Name, f.Doc)
				}
			}
		}
	}
	if names < 200 {
		t.Errorf("only %d exported names were looked at", names)
	}
}

// isOfAnInterface reports whether a method of that name implements a well-known interface.
func isOfAnInterface(name string) bool {
	return slices.Contains([]string{"Error", "Is", "Unwrap", "String", "LogValue", "MarshalJSON", "MarshalText"}, name)
}

// A function without an example is hard to find, or unnecessary. A call is `package.Function(` or
// `.Method(`; for a method, an example of one package that has the method is enough. An example is
// of the package in its folder, and of those that it imports.
func TestEveryExportedFunctionIsInAnExample(t *testing.T) {
	examples := make(map[string]string) // by path
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		inExamples := strings.HasPrefix(filepath.ToSlash(path), "examples/") && strings.HasSuffix(name, ".go")
		if err != nil || d.IsDir() || !inExamples && !(strings.HasPrefix(name, "example") && strings.HasSuffix(name, "_test.go")) {
			return err
		}
		examples[path] = readDoc(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool) // by the call
	functions := 0
	for _, p := range publicPackages(t) {
		imported := strconv.Quote(path.Join("github.com/quorumlock/quorumlock", filepath.ToSlash(p.dir)))
		check := func(before string, funcs []*doc.Func) {
			for _, f := range funcs {
				functions++
				name := before + "." + f.Name
				used[name] = used[name] || isOfAnInterface(f.Name) || name == ".Begin" // the library calls it
				for file, text := range examples {
					used[name] = used[name] || (filepath.Dir(file) == p.dir || strings.Contains(text, imported)) && strings.Contains(text, name+"(")
				}
			}
		}
		check(p.doc.Name, p.doc.Funcs)
		for _, typ := range p.doc.Types {
			check(p.doc.Name, typ.Funcs)
			check("", typ.Methods)
		}
	}
	for call, is := range used {
		if !is {
			t.Errorf("no example calls %s: show what it is for, or take it out", call)
		}
	}
	if functions < 150 {
		t.Errorf("%d functions were found", functions)
	}
}

// TestPublicPackagesHaveExamples: users start from examples.
func TestPublicPackagesHaveExamples(t *testing.T) {
	for _, p := range publicPackages(t) {
		if p.dir == "scripts" { // programs need not use it
			continue
		}
		tests, err := filepath.Glob(filepath.Join(p.dir, "example*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if len(tests) == 0 {
			t.Errorf("package %s has no example: add an example_test.go", p.doc.Name)
		}
	}
}

type publicPackage struct {
	dir   string // relative to the root of the repository
	fset  *token.FileSet
	files []*ast.File
	doc   *doc.Package
}

// publicPackages returns the packages of all modules that a program can import, except those made
// for this repository.
func publicPackages(t *testing.T) []publicPackage {
	t.Helper()
	var all []publicPackage
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		switch name := d.Name(); {
		case strings.HasPrefix(name, ".") && dir != ".", name == "internal", name == "testdata":
			return filepath.SkipDir
		case slices.Contains([]string{"benchmarks", "cmd", "docs", "examples", "integration", "proof"}, dir):
			return filepath.SkipDir
		}
		found, err := build.ImportDir(dir, 0)
		if _, none := err.(*build.NoGoError); none {
			return nil
		} else if err != nil {
			return err
		}
		p := publicPackage{dir: dir, fset: token.NewFileSet()}
		for _, file := range found.GoFiles {
			f, err := parser.ParseFile(p.fset, filepath.Join(dir, file), nil, parser.ParseComments)
			if err != nil {
				return err
			}
			p.files = append(p.files, f)
		}
		if p.doc, err = doc.NewFromFiles(p.fset, p.files, found.ImportPath); err != nil {
			return err
		}
		if len(p.doc.Funcs)+len(p.doc.Types)+len(p.doc.Vars)+len(p.doc.Consts) > 0 {
			all = append(all, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 12 {
		t.Fatalf("only %d public packages were found", len(all))
	}
	return all
}

// exported returns the declarations that users see, one per line where they are short.
func exported(t *testing.T, p publicPackage) string {
	t.Helper()
	var out strings.Builder
	write := func(node any) {
		var b bytes.Buffer
		if err := (&printer.Config{Mode: printer.TabIndent | printer.UseSpaces, Tabwidth: 8}).Fprint(&b, p.fset, node); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, b.String())
	}
	fmt.Fprintf(&out, "package %s\n\n", p.doc.Name)
	for _, v := range slices.Concat(p.doc.Consts, p.doc.Vars) {
		write(bare(v.Decl))
	}
	for _, f := range p.doc.Funcs {
		write(bare(f.Decl))
	}
	for _, typ := range p.doc.Types {
		fmt.Fprintln(&out)
		write(bare(typ.Decl))
		for _, v := range slices.Concat(typ.Consts, typ.Vars) {
			write(bare(v.Decl))
		}
		for _, f := range slices.Concat(typ.Funcs, typ.Methods) {
			write(bare(f.Decl))
		}
	}
	return out.String()
}

// bare removes the parts of a declaration that are not promised: comments, the values of variables
// and the bodies of functions.
func bare(d ast.Decl) ast.Decl {
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			n.Doc = nil
			for _, spec := range n.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && n.Tok == token.VAR {
					v.Values = nil // the text of an error is no promise
				}
			}
		case *ast.FuncDecl:
			n.Doc, n.Body = nil, nil
		case *ast.TypeSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.ValueSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.Field:
			n.Doc, n.Comment = nil, nil
		}
		return true
	})
	return d
}

func TestMain(m *testing.M) { testkit.Main(m) }
