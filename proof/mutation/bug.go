package mutation

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var planted = flag.String("planted", "", "plant bugs: all, or a `regular expression` for their names")

// Bug is a planted bug: a small change of the behaviour of one function, or of one script.
type Bug struct {
	Name string
	In   string // "folder Function", "folder Type.Method", or a file of scripts
	// The text of one expression or statement of the function; white space does not count.
	Old string
	New string // its replacement; empty to leave it out
	By  []Proof
}

// Proof is a simulation, or tests, which must notice a bug.
type Proof struct {
	Package string // from the root of the repository
	Seeds   int    // of a simulation
	Tests   string // of tests: a regular expression, as for go test -run

	Invariants []string // of a simulation: one of them must be the first to fail; nil: any
}

// Seeds is the proof by a simulation within so many seeds.
func Seeds(pkg string, seeds int, invariants ...string) Proof {
	return Proof{Package: pkg, Seeds: seeds, Invariants: invariants}
}

// Tests is the proof by the tests of a package.
func Tests(pkg, run string) Proof { return Proof{Package: pkg, Tests: run} }

// AreCaught fails unless every proof of each bug notices it. Each proof takes a build of the
// library, so a plain run only compares the bugs with the code.
func AreCaught(t *testing.T, bugs []Bug) {
	var rows []string
	for _, b := range bugs {
		file, text, err := b.plant(root(t))
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
			continue
		}
		if *planted == "" || *planted != "all" && !regexp.MustCompile(*planted).MatchString(b.Name) {
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			for _, p := range b.By {
				rows = append(rows, fmt.Sprintf("| %s | %s | %s |", b.Name, b.In, p.catch(t, file, text)))
			}
		})
	}
	if len(rows) == 0 {
		t.Skip("-planted all builds the library with each bug; the bugs were compared with the code")
	}
	t.Logf("| planted bug | in | caught by |\n|---|---|---|\n%s", strings.Join(rows, "\n"))
}

// catch runs the proof on the library with a changed file, and returns the failed invariant or
// test.
func (p Proof) catch(t *testing.T, file, text string) string {
	bin, err := build(t, p.Package, map[string]string{file: text})
	if err != nil {
		t.Fatal(err)
	}
	if p.Seeds > 0 {
		f := run(t, bin, p.Package, 0, p.Seeds, 10*time.Minute)
		t.Logf("%s: seed %d: %s: %s", p.Package, f.seed, f.by, f.text)
		switch {
		case f.by == "":
			t.Errorf("not caught by %d seeds of %s", p.Seeds, p.Package)
		case f.by == "panic":
			t.Errorf("%s panicked: %s", p.Package, f.text)
		case p.Invariants != nil && !slices.Contains(p.Invariants, f.by):
			t.Errorf("caught by %q, not by any of %q", f.by, p.Invariants)
		}
		return fmt.Sprintf("%s, seed %d", cmp.Or(f.by, "nothing"), f.seed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run="+p.Tests, "-test.timeout=3m", "-test.failfast")
	cmd.Dir = filepath.Join(root(t), p.Package)
	out, err := cmd.CombinedOutput()
	failed := failure.FindSubmatch(out)
	if err == nil || failed == nil {
		t.Errorf("no test of %s that matches %s has failed: %v\n%.2000s", p.Package, p.Tests, err, out)
		return "nothing"
	}
	t.Logf("%s: %s", p.Package, failed[1])
	return string(failed[1])
}

var failure = regexp.MustCompile(`--- FAIL: (\w+)|panic: (test timed out)`)

// plant returns the file with the bug, from the root of the repository, and its text.
func (b *Bug) plant(root string) (file, text string, err error) {
	folder, function, isGo := strings.Cut(b.In, " ")
	if !isGo {
		text, err := os.ReadFile(filepath.Join(root, b.In))
		if n := strings.Count(string(text), b.Old); err == nil && n != 1 {
			err = fmt.Errorf("%s has %q %d times, want once", b.In, b.Old, n)
		}
		return b.In, strings.Replace(string(text), b.Old, b.New, 1), err
	}
	names, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		return "", "", err
	}
	for _, path := range names {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return "", "", err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, source, 0)
		if err != nil {
			return "", "", err
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && nameOf(d) == function {
				at := find(set, d, source, b.Old)
				if len(at) != 1 {
					return "", "", fmt.Errorf("%s has %q %d times, want once", b.In, b.Old, len(at))
				}
				from, to := at[0][0], at[0][1]
				return filepath.ToSlash(filepath.Join(folder, filepath.Base(path))), string(source[:from]) + b.New + string(source[to:]), nil
			}
		}
	}
	return "", "", errors.New("there is no function " + b.In)
}

// nameOf returns the name of a function, or Type.Method.
func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	switch g := of.(type) { // of a generic type
	case *ast.IndexExpr:
		of = g.X
	case *ast.IndexListExpr:
		of = g.X
	}
	return fmt.Sprint(of) + "." + d.Name.Name
}

// find returns where the function has an expression or a statement with that text.
func find(set *token.FileSet, d *ast.FuncDecl, source []byte, text string) (at [][2]int) {
	want := strings.Join(strings.Fields(text), " ")
	ast.Inspect(d, func(n ast.Node) bool {
		switch n.(type) {
		case ast.Expr, ast.Stmt:
			from, to := set.Position(n.Pos()).Offset, set.Position(n.End()).Offset
			here := [2]int{from, to}
			if strings.Join(strings.Fields(string(source[from:to])), " ") == want && (len(at) == 0 || at[len(at)-1] != here) {
				at = append(at, here)
			}
		}
		return true
	})
	return at
}
