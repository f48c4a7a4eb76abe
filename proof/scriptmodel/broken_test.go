package scriptmodel_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/mutation"
)

var (
	breaks = flag.String("broken", "", "break the scripts, a line at a time, in every way: all, or a `regular expression` for file.lua: line => other line")
	budget = flag.Int("budget", 330_000, "how many commands may pass until a broken line is noticed")
)

// The share of broken lines that the comparison notices may not fall. So the commands reach every
// line, and both sides of every comparison. Most unnoticed changes have no visible effect.
func TestBrokenScriptsAreNoticed(t *testing.T) {
	if *breaks == "" {
		t.Skip("-broken all breaks each line of the scripts")
	}
	real, m := newLua(t), &model{eager: true}
	only := regexp.MustCompile(strings.TrimPrefix(*breaks, "all"))
	scores := make(mutation.Scores)
	for _, b := range broken(t) {
		if !only.MatchString(b.String()) {
			continue
		}
		real.instead = b.instead
		after := notice(real, m, *budget)
		scores.Add("scripts/"+b.file, after >= 0)
		if after < 0 {
			t.Logf("survives: %v", b)
		}
	}
	scores.Check(t, *breaks)
}

// notice returns after how many commands the sides differ, -1 if they do not.
func notice(real *lua, m *model, budget int) int {
	played := 0
	for s := uint64(1); played < budget; s++ {
		// A broken loop may not end.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		real.in.SetContext(ctx)
		sequence, differs := play(real, m, s)
		cancel()
		played += len(sequence)
		if differs != "" {
			return played
		}
	}
	return -1
}

// breakage is one way to break one line.
type breakage struct {
	file    string
	was     string // the line
	now     string // the line afterwards, empty if it is deleted
	nth     int    // of the lines of the file that are alike
	instead map[*wire.Script]string
}

func (b breakage) String() string {
	s := b.file + ": " + strings.TrimRight(b.was, " ") + " => " + strings.TrimSpace(b.now)
	if b.nth > 1 {
		s += fmt.Sprintf(" (%d)", b.nth)
	}
	return s
}

// broken breaks all lines of all scripts, in all ways.
func broken(t *testing.T) (all []breakage) {
	for _, file := range modelled(t) {
		source := read(t, file)
		whole := expand(t, source)
		lines := strings.Split(source, "\n")
		alike := make(map[string]int)
		for i, line := range lines {
			alike[line]++
			for _, now := range breakLine(line) {
				changed := slices.Clone(lines)
				changed[i] = now
				instead := make(map[*wire.Script]string)
				for s := range named {
					if strings.Contains(s.Source, whole) {
						instead[s] = strings.ReplaceAll(s.Source, whole, expand(t, strings.Join(changed, "\n")))
					}
				}
				all = append(all, breakage{file + ".lua", line, now, alike[line], instead})
			}
		}
	}
	return all
}

// unmodelled are the scripts without a model: see doc.go.
var unmodelled = []string{"bundle", "leader", "proclaim", "ready", "withdraw"}

// modelled returns the names of the scripts and of the files that they include.
func modelled(t *testing.T) (files []string) {
	all, err := filepath.Glob("../../scripts/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if name := strings.TrimSuffix(filepath.Base(path), ".lua"); !slices.Contains(unmodelled, name) {
			files = append(files, name)
		}
	}
	if len(all) == 0 || len(files)+len(unmodelled) != len(all) {
		t.Fatalf("%d of %d scripts have a model, and %d have none", len(files), len(all), len(unmodelled))
	}
	return files
}

func TestEachScriptIsModelledUnlessTheListSaysOtherwise(t *testing.T) {
	for _, file := range modelled(t) {
		whole, found := expand(t, read(t, file)), false
		for s := range named {
			found = found || strings.Contains(s.Source, whole)
		}
		if !found {
			t.Errorf("%s.lua is in no script with a model", file)
		}
	}
}

// expand replaces each include line of a source by the file that it names.
func expand(t *testing.T, source string) string {
	return include.ReplaceAllStringFunc(source, func(line string) string {
		return expand(t, read(t, include.FindStringSubmatch(line)[1]))
	})
}

var include = regexp.MustCompile(`-- include (\w+)\.lua\n`)

func read(t *testing.T, file string) string {
	b, err := os.ReadFile("../../scripts/" + file + ".lua")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// part is a token of a line: a string, a number, a word or a sign.
var part = regexp.MustCompile(`'[^']*'|[A-Za-z_][A-Za-z_0-9.]*|\d+|==|~=|<=|>=|\.\.|\S`)

var (
	blocks   = regexp.MustCompile(`^(if|elseif|else|end|for|while|local function|return \{$|return redis\.|\})`)
	guards   = regexp.MustCompile(`^(\s*(?:else)?if )(.*)( then.*)$`)
	opposite = map[string][]string{
		"==": {"~="}, "~=": {"=="}, "<": {"<=", ">"}, ">": {">=", "<"}, "<=": {"<"}, ">=": {">"}, "and": {"or"}, "or": {"and"},
		"+": {"-"}, "-": {"+"}, "*": {"/"}, "/": {"*"}, "not": {""}, "true": {"false"}, "false": {"true"}, "math.max": {"math.min"}, "math.min": {"math.max"},
		"math.floor": {""}, "math.abs": {""}, "redis.pcall": {"redis.call"},
	}
)

func breakLine(line string) (broken []string) {
	code, _, _ := strings.Cut(line, " -- ")
	trimmed := strings.TrimSpace(code)
	if trimmed == "" || strings.HasPrefix(trimmed, "--") {
		return nil
	}
	if !blocks.MatchString(trimmed) {
		broken = append(broken, "")
	}
	if m := guards.FindStringSubmatch(code); m != nil {
		for _, condition := range []string{"not (" + m[2] + ")", "true", "false"} {
			broken = append(broken, m[1]+condition+m[3])
		}
	}
	for _, at := range part.FindAllStringIndex(code, -1) {
		for _, now := range breakPart(code[at[0]:at[1]]) {
			broken = append(broken, code[:at[0]]+now+code[at[1]:])
		}
	}
	return broken
}

// breakPart returns the possible replacements of a token.
func breakPart(p string) []string {
	if n, err := strconv.Atoi(p); err == nil {
		return []string{strconv.Itoa(n + 1), strconv.Itoa(n - 1)}
	}
	if p[0] != '\'' {
		return opposite[p]
	}
	s := p[1 : len(p)-1]
	var others []string
	if strings.HasPrefix(s, "^") {
		others = append(others, s[1:])
	}
	if strings.HasSuffix(s, "$") {
		others = append(others, s[:len(s)-1])
	}
	for i := range s {
		if s[i] == '+' && i > 0 && strings.Contains(s, "(") {
			others = append(others, s[:i]+"*"+s[i+1:])
		}
	}
	if !strings.ContainsAny(s, "%(") && s != "" {
		others = append(others, s+"z")
	}
	for i := range others {
		others[i] = "'" + others[i] + "'"
	}
	return others
}
