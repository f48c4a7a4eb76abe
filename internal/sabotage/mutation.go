package sabotage

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
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

var mutations = flag.String("mutations", "0", "`how many` statements to leave out, one at a time; or all; or a list of file.go and file.go:line, separated by commas")

// Mutations leaves out every statement of a package, one at a time. A simulation must notice each time.
type Mutations struct {
	Package    string            // of the simulation, from the root of the module
	Of         string            // the package whose statements are left out
	Except     string            // a file of it that the simulation does not use
	Seeds      int               // within which the simulation notices most of them
	Rare       int               // within which it must notice the rest
	Unfinished time.Duration     // for each thousand seeds: a run that takes longer hangs
	Unnoticed  map[string]string // those that it need not notice, and why
	Tested     []string          // those that the tests of the package itself notice, and the first Seeds do not
	Table      string            // the file, from the root of the module, that has the table of how many these are
}

// statement is a statement that can be left out.
type statement struct {
	number     int
	file       string
	line       int
	name       string // the file, the function and the text, by which Unnoticed knows it
	start, end int    // in the file
	skipped    bool   // without it the package does not compile
}

// AreNoticed fails if the simulation does not notice that a statement is left out, unless Unnoticed says why it need not. Those
// that Tested lists must be noticed by the tests of the package. There is one build for all: an environment variable says which
// statement it leaves out.
func (m *Mutations) AreNoticed(t *testing.T) {
	all := m.statements(t)
	m.checkNames(t, all)
	if *mutations == "0" {
		t.Skip("-mutations N or all leaves statements out; the lists were compared with the code")
	}
	bin := m.build(t, all)
	compiles := slices.DeleteFunc(slices.Clone(all), func(s *statement) bool { return s.skipped })
	some, err := m.some(compiles, *mutations)
	if err != nil {
		t.Fatal(err)
	}
	m.checkTable(t, compiles)
	own := ""
	if slices.ContainsFunc(some, func(s *statement) bool { return slices.Contains(m.Tested, s.name) }) {
		if own, err = build(t, m.Of, m.sources(t, all)); err != nil {
			t.Fatal(err)
		}
		if m.fails(t, own, new(statement)) {
			t.Fatalf("the tests of %s fail though nothing is left out", m.Of)
		}
	}
	type result struct{ noticed, excused, tested, missed int }
	rows, by, found := make([]result, len(some)), make([]string, len(some)), make([]int, len(some))
	t.Run("all", func(t *testing.T) {
		for i, s := range some {
			t.Run(fmt.Sprintf("%s:%d", s.file, s.line), func(t *testing.T) {
				t.Parallel()
				reason, known := m.Unnoticed[s.name]
				if slices.Contains(m.Tested, s.name) {
					by[i], found[i] = "the tests of the package", -1
					if m.fails(t, own, s) {
						rows[i].tested = 1
					} else {
						rows[i].missed = 1
						t.Errorf("no test of %s notices that line %d is left out:\n%s", m.Of, s.line, s.name)
					}
					return
				}
				try := func(from, seeds int) finding {
					limit := m.Unfinished * time.Duration(1+seeds/1000)
					return run(t, bin, m.Package, from, seeds, limit, variable+"="+strconv.Itoa(s.number), "GOMAXPROCS=1")
				}
				f := try(0, m.Seeds)
				if f.by == "" && !known && m.Rare > m.Seeds {
					f = try(m.Seeds, m.Rare-m.Seeds)
				}
				by[i], found[i] = f.by, f.seed
				switch {
				case f.by != "":
					rows[i].noticed = 1
					if known && *mutations == "all" {
						t.Logf("%s: noticed by %s in seed %d, though it need not be", s.name, f.by, f.seed)
					}
				case known:
					rows[i].excused = 1
					t.Logf("%s: %s", s.name, reason)
				default:
					rows[i].missed = 1
					t.Errorf("nothing notices within %d seeds that line %d is left out:\n%s", max(m.Seeds, m.Rare), s.line, s.name)
				}
			})
		}
	})
	var total result
	how := make(map[string]int)
	files := make(map[string]*result)
	for i, s := range some {
		f := files[s.file]
		if f == nil {
			f = &result{}
			files[s.file] = f
		}
		for _, r := range []*result{f, &total} {
			r.noticed, r.excused, r.tested, r.missed = r.noticed+rows[i].noticed, r.excused+rows[i].excused, r.tested+rows[i].tested, r.missed+rows[i].missed
		}
		how[by[i]]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| file | statements | noticed | need not be noticed | noticed by tests | missed |\n|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		r := files[name]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d |\n", name, r.noticed+r.excused+r.tested+r.missed, r.noticed, r.excused, r.tested, r.missed)
	}
	fmt.Fprintf(&b, "| all | %d | %d | %d | %d | %d |\n\n", len(some), total.noticed, total.excused, total.tested, total.missed)
	for _, name := range slices.SortedFunc(maps.Keys(how), func(a, b string) int { return cmp.Compare(how[b], how[a]) }) {
		fmt.Fprintf(&b, "%4d by %s\n", how[name], cmp.Or(name, "nothing"))
	}
	t.Logf("%d statements, of which %d cannot be left out:\n\n%s", len(all), len(all)-len(compiles), b.String())
}

// some returns the statements that the flag asks for.
func (m *Mutations) some(all []*statement, which string) ([]*statement, error) {
	if which == "all" {
		return all, nil
	}
	if n, err := strconv.Atoi(which); err == nil && n >= 0 {
		return spread(slices.DeleteFunc(slices.Clone(all), func(s *statement) bool { return m.Unnoticed[s.name] != "" }), n), nil
	}
	places := strings.Split(which, ",")
	these := slices.DeleteFunc(slices.Clone(all), func(s *statement) bool {
		return !slices.Contains(places, fmt.Sprintf("%s:%d", s.file, s.line)) && !slices.Contains(places, s.file)
	})
	if len(these) == 0 {
		return nil, fmt.Errorf("-mutations %s: want a number, all, or files or file.go:line of statements", which)
	}
	return these, nil
}

// fails reports whether the tests of the package fail without a statement, or do not end.
func (m *Mutations) fails(t *testing.T, bin string, s *statement) bool {
	cmd := exec.CommandContext(t.Context(), bin, "-test.failfast", "-test.timeout=2m")
	cmd.Dir, cmd.Env = filepath.Join(root(t), m.Of), append(os.Environ(), variable+"="+strconv.Itoa(s.number))
	_, err := cmd.CombinedOutput()
	if t.Context().Err() != nil {
		t.Fatal(err)
	}
	return err != nil
}

// checkNames fails if Unnoticed or Tested has a statement that is not there any more.
func (m *Mutations) checkNames(t *testing.T, all []*statement) {
	for _, name := range slices.AppendSeq(slices.Clone(m.Tested), maps.Keys(m.Unnoticed)) {
		if !slices.ContainsFunc(all, func(s *statement) bool { return s.name == name }) {
			t.Errorf("there is no statement %q", name)
		}
	}
}

// checkTable fails if the table of how many statements must be noticed is out of date.
func (m *Mutations) checkTable(t *testing.T, all []*statement) {
	type row struct{ statements, unnoticed, tested int }
	files, total := make(map[string]*row), new(row)
	for _, s := range all {
		if files[s.file] == nil {
			files[s.file] = new(row)
		}
		for _, r := range []*row{files[s.file], total} {
			r.statements++
			if m.Unnoticed[s.name] != "" {
				r.unnoticed++
			} else if slices.Contains(m.Tested, s.name) {
				r.tested++
			}
		}
	}
	var b strings.Builder
	line := func(name string, r *row) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, r.statements, r.statements-r.unnoticed-r.tested, r.tested, r.unnoticed)
	}
	b.WriteString("| file | statements | noticed by schedules | by tests | need not be noticed |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		line(name, files[name])
	}
	line("all", total)
	text, err := os.ReadFile(filepath.Join(root(t), m.Table))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), b.String()) {
		t.Errorf("%s does not have this table:\n%s", m.Table, b.String())
	}
}

// statements returns all statements of the package except definitions, which the rest needs.
func (m *Mutations) statements(t *testing.T) (all []*statement) {
	names, err := filepath.Glob(filepath.Join(root(t), m.Of, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[string]int)
	for _, path := range names {
		if strings.HasSuffix(path, "_test.go") || filepath.Base(path) == m.Except {
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
			if !ok {
				continue
			}
			for _, s := range lists(f) {
				from, to := set.Position(s.Pos()), set.Position(s.End())
				first, _, more := strings.Cut(string(text[from.Offset:to.Offset]), "\n")
				if more {
					first += " ..."
				}
				st := &statement{number: len(all) + 1, file: filepath.Base(path), line: from.Line, start: from.Offset, end: to.Offset}
				st.name = fmt.Sprintf("%s: %s: %s", st.file, f.Name.Name, first)
				if count[st.name]++; count[st.name] > 1 {
					st.name += fmt.Sprintf(" (%d)", count[st.name])
				}
				all = append(all, st)
			}
		}
	}
	return all
}

// lists returns the statements of a function that are in the list of a block or a case, nested ones included.
func lists(f *ast.FuncDecl) (all []ast.Stmt) {
	ast.Inspect(f, func(n ast.Node) bool {
		var list []ast.Stmt
		switch n := n.(type) {
		case *ast.BlockStmt:
			list = n.List
		case *ast.CaseClause:
			list = n.Body
		}
		for _, s := range list {
			switch s := s.(type) {
			case *ast.DeclStmt, *ast.EmptyStmt:
				continue
			case *ast.BlockStmt:
				continue
			case *ast.CaseClause:
				continue
			case *ast.AssignStmt:
				if s.Tok == token.DEFINE {
					continue
				}
			}
			all = append(all, s)
		}
		return true
	})
	slices.SortFunc(all, func(a, b ast.Stmt) int { return cmp.Compare(a.Pos(), b.Pos()) })
	return all
}

// variable is the environment variable that has the number of the statement to leave out.
const variable = "QUORUMLOCK_MUTATION"

var missing = regexp.MustCompile(`(?m)([\w-]+\.go):(\d+):\d+: missing return`)

// build builds the simulation. It marks as skipped the statements without which the package does not compile.
func (m *Mutations) build(t *testing.T, all []*statement) (bin string) {
	for range 20 {
		bin, err := build(t, m.Package, m.sources(t, all))
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
		if s.file == file && s.line < end+1 && !s.skipped {
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

// sources returns the files of the package, changed so that each statement runs unless it is the one to leave out. Lines
// keep their numbers.
func (m *Mutations) sources(t *testing.T, all []*statement) map[string]string {
	files := make(map[string]string)
	byFile := make(map[string][]*statement)
	for _, s := range all {
		if !s.skipped {
			byFile[s.file] = append(byFile[s.file], s)
		}
	}
	pkg := filepath.Base(m.Of)
	for name, list := range byFile {
		text, err := os.ReadFile(filepath.Join(root(t), m.Of, name))
		if err != nil {
			t.Fatal(err)
		}
		type insertion struct {
			at    int
			ends  bool
			depth int // of two at one place: ends before starts, inner ends first, outer starts first
			text  string
		}
		var ins []insertion
		for _, s := range list {
			ins = append(ins, insertion{s.start, false, -s.end, fmt.Sprintf("if mutation != %d { ", s.number)}, insertion{s.end, true, -s.start, " }"})
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
	files[m.Of+"/mutation.go"] = fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\n// mutation is the number of the statement that is left out.\nvar mutation, _ = strconv.Atoi(os.Getenv(%q))\n", pkg, variable)
	return files
}
