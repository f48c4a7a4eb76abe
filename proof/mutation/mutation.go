package mutation

import (
	"cmp"
	"context"
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
	"strconv"
	"strings"
	"testing"
	"time"
)

var mutations = flag.String("mutations", "", "leave statements out, one at a time: all, or how many, or `files`, separated by commas")

// Mutations leaves out every statement of a package, one at a time, and counts the noticed ones.
type Mutations struct {
	Of     string   // the package, from the root of the repository
	Except []string // files of it that the proofs do not use
	By     []Proof  // tried in this order, until one notices
}

// statement is a statement that can be left out.
type statement struct {
	number      int
	file        string
	line        int
	text        string // its first line
	start, end  int    // in the file
	functionEnd int    // the last line of its function
	skipped     bool   // without it the package does not compile
}

// SkipUnlessAsked skips a plain run.
func SkipUnlessAsked(t *testing.T) {
	t.Helper()
	if *mutations == "" {
		t.Skip("-mutations all leaves out each statement")
	}
}

// Score fails if a file has a lower score than the committed one. There is one build for all
// statements: an environment variable chooses the one to leave out.
func (m *Mutations) Score(t *testing.T) {
	all := m.statements(t)
	trials := make([]trial, len(m.By))
	for i, p := range m.By {
		trials[i] = m.trial(t, p, all)
	}
	all = slices.DeleteFunc(all, func(s *statement) bool { return s.skipped })
	if n, err := strconv.Atoi(*mutations); err == nil {
		all = spread(all, n)
	} else if *mutations != "all" {
		all = slices.DeleteFunc(all, func(s *statement) bool { return !slices.Contains(strings.Split(*mutations, ","), s.file) })
	}
	noticed := make([]bool, len(all))
	t.Run("all", func(t *testing.T) {
		for i, s := range all {
			t.Run(fmt.Sprintf("%s:%d", s.file, s.line), func(t *testing.T) {
				t.Parallel()
				reached := false
				for _, p := range trials {
					if !p.reaches[s.number] {
						continue
					}
					reached = true
					if noticed[i] = p.notices(t, s.number, p.limit, ""); noticed[i] {
						return
					}
				}
				if reached {
					t.Logf("survives: %s", s.text)
				} else {
					t.Logf("is never reached: %s", s.text)
				}
			})
		}
	})
	scores := make(Scores)
	for i, s := range all {
		scores.Add(m.Of+"/"+s.file, noticed[i])
	}
	scores.Check(t, *mutations)
}

// trial is a proof, built with all mutations.
type trial struct {
	Proof
	bin     string
	reaches map[int]bool  // the statements that it runs
	limit   time.Duration // a run that takes longer counts as hung
}

// trial builds a proof and runs it with nothing left out.
func (m *Mutations) trial(t *testing.T, p Proof, all []*statement) trial {
	tr := trial{Proof: p, bin: m.build(t, p.Package, all), reaches: make(map[int]bool)}
	file := filepath.Join(t.TempDir(), "reached")
	start := time.Now()
	if tr.notices(t, 0, 5*time.Minute, file) {
		t.Fatalf("%s fails though nothing is left out", p.Package)
	}
	tr.limit = 20*time.Second + 5*time.Since(start)
	list, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range strings.Fields(string(list)) {
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		tr.reaches[n] = true
	}
	return tr
}

// notices reports whether a proof fails without a statement, or does not end within the limit. It
// appends the numbers of the statements that run to the file reached, unless that is empty.
func (p *trial) notices(t *testing.T, number int, limit time.Duration, reached string) bool {
	env := []string{variable + "=" + strconv.Itoa(number), variable + "_REACHED=" + reached, "GOMAXPROCS=1"}
	if p.Seeds > 0 {
		return run(t, p.bin, p.Package, 0, p.Seeds, limit, env...).by != ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.bin, "-test.failfast", "-test.timeout=0", "-test.run="+p.Tests)
	cmd.Dir, cmd.Env = filepath.Join(root(t), p.Package), append(os.Environ(), env...)
	_, err := cmd.CombinedOutput()
	if t.Context().Err() != nil {
		t.Fatal(err)
	}
	return err != nil
}

// spread returns n elements from all over the list, or all if it has fewer.
func spread[T any](all []T, n int) []T {
	n = min(n, len(all))
	sample := make([]T, n)
	for i := range sample {
		sample[i] = all[i*len(all)/n]
	}
	return sample
}

// statements returns all statements of the package except definitions, which the rest needs.
func (m *Mutations) statements(t *testing.T) (all []*statement) {
	names, err := filepath.Glob(filepath.Join(root(t), m.Of, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range names {
		if strings.HasSuffix(path, "_test.go") || slices.Contains(m.Except, filepath.Base(path)) {
			continue
		}
		set := token.NewFileSet()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(set, path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			for _, s := range lists(f.Body) {
				from, to := set.Position(s.Pos()), set.Position(s.End())
				first, _, more := strings.Cut(string(text[from.Offset:to.Offset]), "\n")
				if more {
					first += " ..."
				}
				all = append(all, &statement{number: len(all) + 1, file: filepath.Base(path), line: from.Line, text: first, start: from.Offset, end: to.Offset, functionEnd: set.Position(s.body.Rbrace).Line})
			}
		}
	}
	return all
}

// listed is a statement in the list of a block or a case.
type listed struct {
	ast.Stmt
	body *ast.BlockStmt // of its function
}

// lists returns the removable statements of a function, nested ones included, in order.
func lists(body *ast.BlockStmt) (all []listed) {
	ast.Inspect(body, func(n ast.Node) bool {
		var list []ast.Stmt
		switch n := n.(type) {
		case *ast.FuncLit:
			all = append(all, lists(n.Body)...)
			return false
		case *ast.BlockStmt:
			list = n.List
		case *ast.CaseClause:
			list = n.Body
		case *ast.CommClause:
			list = n.Body
		}
		for _, s := range list {
			switch s := s.(type) {
			case *ast.DeclStmt, *ast.EmptyStmt:
				continue
			case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
				continue
			case *ast.AssignStmt:
				if s.Tok == token.DEFINE {
					continue
				}
			}
			all = append(all, listed{s, body})
		}
		return true
	})
	slices.SortFunc(all, func(a, b listed) int { return cmp.Compare(a.Pos(), b.Pos()) })
	return all
}

// variable is the environment variable that has the number of the statement to leave out.
const variable = "QUORUMLOCK_MUTATION"

var missing = regexp.MustCompile(`(?m)([\w-]+\.go):(\d+):\d+: missing return`)

// build builds the tests of a package. It marks as skipped the statements without which the package
// does not compile.
func (m *Mutations) build(t *testing.T, pkg string, all []*statement) (bin string) {
	for range 20 {
		bin, err := build(t, pkg, m.sources(t, all))
		if err == nil {
			return bin
		}
		lines := missing.FindAllStringSubmatch(err.Error(), -1)
		if len(lines) == 0 {
			t.Fatal(err)
		}
		for _, l := range lines {
			m.skip(t, all, l[1], l[2])
		}
	}
	t.Fatal("the package does not compile, whatever is left in")
	return ""
}

// skip marks as skipped the last statement of the function that ends at this line of a file.
func (m *Mutations) skip(t *testing.T, all []*statement, file, line string) {
	end, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	file = file[strings.LastIndexByte(file, '_')+1:]
	var last *statement
	for _, s := range all {
		if s.file == file && s.functionEnd == end && !s.skipped {
			if last == nil || s.end > last.end || s.end == last.end && s.start < last.start {
				last = s
			}
		}
	}
	if last == nil {
		t.Fatalf("no statement before %s:%s", file, line)
	}
	last.skipped = true
}

// sources returns the files of the package, changed so that each statement runs unless it is the
// one to leave out. Lines keep their numbers.
func (m *Mutations) sources(t *testing.T, all []*statement) map[string]string {
	files := make(map[string]string)
	byFile := make(map[string][]*statement)
	for _, s := range all {
		if !s.skipped {
			byFile[s.file] = append(byFile[s.file], s)
		}
	}
	for name, list := range byFile {
		text, err := os.ReadFile(filepath.Join(root(t), m.Of, name))
		if err != nil {
			t.Fatal(err)
		}
		type insertion struct {
			at    int
			ends  bool
			depth int // of two at one place: ends first, inner ends first, outer starts first
			text  string
		}
		var ins []insertion
		for _, s := range list {
			ins = append(ins, insertion{s.start, false, -s.end, fmt.Sprintf("if mutationRuns(%d) { ", s.number)}, insertion{s.end, true, -s.start, " }"})
		}
		slices.SortStableFunc(ins, func(a, b insertion) int {
			if c := cmp.Compare(a.at, b.at); c != 0 {
				return c
			}
			if a.ends != b.ends {
				if a.ends {
					return -1
				}
				return 1
			}
			return cmp.Compare(a.depth, b.depth)
		})
		var b strings.Builder
		from := 0
		for _, i := range ins {
			b.Write(text[from:i.at])
			b.WriteString(i.text)
			from = i.at
		}
		b.Write(text[from:])
		files[m.Of+"/"+name] = b.String()
	}
	files[m.Of+"/mutation.go"] = fmt.Sprintf(switches, filepath.Base(m.Of), variable, all[len(all)-1].number+1)
	return files
}

// switches is the source of the file added to the package.
const switches = `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutationNumber, _ = strconv.Atoi(os.Getenv(%[2]q))
	mutationList, _   = os.OpenFile(os.Getenv(%[2]q+"_REACHED"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	mutationKnown     [%[3]d]atomic.Bool
)

func mutationRuns(statement int) bool {
	if mutationList != nil {
		mutationReached(statement)
	}
	return statement != mutationNumber
}

func mutationReached(statement int) {
	if !mutationKnown[statement].Swap(true) {
		fmt.Fprintln(mutationList, statement)
	}
}
`
