//go:build !race

package election_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var planted = flag.String("planted", "1", "`how many` of the planted bugs to try, or all")

// bug is a known-bad variant of the library: one text of one of its files, replaced by another. The tests of this package
// must fail with it.
type bug struct {
	name, file, old, bad string
	tests                string // that are run
}

var bugs = []bug{
	{"a leader is told late", "election/term.go", "context.WithCancelCause(context.WithValue(lease.Context(), termKey{}, t))", "context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), termKey{}, t))",
		"TestLeadershipEnds|TestHostile"},
	{"a pause is not looked at", "election/term.go", "if t.ctx.Err() == nil && !time.Now().Before(t.lease.ValidUntil()) {", "if false {", "TestAPaused"},
	{"released before the work has ended", "election/term.go", "limit = time.After(t.election.set.TTL)", "limit = time.After(0)", "TestTheLockIsReleased|TestHostile"},
	{"the work is waited for without end", "election/term.go", "limit = time.After(t.election.set.TTL)", "", "TestALeadThat"},
	{"Resign does not wait for the work", "election/term.go", "if !t.serves {\n\t\tt.finished()", "{\n\t\tt.finished()", "TestTheLockIsReleased|TestHostile"},
	{"a former leader's value overwrites", "scripts/proclaim.lua", "elseif holds == 0 then\n  return 0\nend\nlocal was = redis.pcall('hmget', KEYS[2], 'owner', 'token', 'version')\n",
		"end\nlocal was = {}\n", "TestLeadershipEnds"},
	{"the value outlives the hold", "scripts/leader.lua", "if owner == held[1] then", "if owner then", "TestAHolder|TestHostile|TestAValueOfAFormer"},
	{"an earlier value overwrites a later one", "scripts/proclaim.lua", "or version < tonumber(ARGV[4]) then", "or version ~= tonumber(ARGV[4]) then", "TestALateProclaim"},
	{"sure from one node less", "election/leader.go", "l.Nodes, l.Sure = len(ttls), lasting >= need", "l.Nodes, l.Sure = len(ttls), lasting >= need-1", "TestAMinority|TestHostile"},
	{"sure of a dead leader", "election/leader.go", "return ttl > e.set.TTL-e.set.Drift.Validity(e.set.TTL, 0)", "return true", "TestADeadLeader"},
	{"a twin counts twice", "election/leader.go", "|| scripts.OfCell(owner, a.cell) != a.standing.Holder {", "{", "TestTwoAddresses"},
	{"Observe misses a change that comes while it looks", "election/observe.go", "\t\tasked := time.Now()\n\t\tv, err := o.election.look(ctx)", "\t\tasked := time.Now()\n\t\tv, err := o.election.look(ctx)\n\t\tselect {\n\t\tcase <-o.changed:\n\t\tdefault:\n\t\t}", "TestObserve"},
	{"Observe hears nothing", "election/observe.go", "case o.changed <- struct{}{}:", "case (chan struct{})(nil) <- struct{}{}:", "TestObserve"},
	{"Observe ends with an outage", "election/observe.go", "if errors.Is(err, quorumlock.ErrClosed) {", "if err != nil && !errors.Is(err, ErrNoLeader) {", "TestObserve"},
	{"a value that nodes have lost stays lost", "election/proclaim.go", "if p == scripts.NotThere && !whole && err == nil {", "if false {", "TestAMinority"},
	{"Campaign returns before the value is known", "election/proclaim.go", "\t\tif err == nil {\n\t\t\treturn nil\n\t\t}\n\t\tif over", "\t\tif err == nil || t.Err() == nil {\n\t\t\treturn nil\n\t\t}\n\t\tif over", "TestCampaignRidesOut"},
	{"the value is left behind", "election/term.go", "\tt.withdraw()\n", "", "TestALeaderIsKnown"},
}

// Every one of the planted bugs is caught. Each takes a build, so that a plain run has a sample of them.
func TestPlantedBugsAreCaught(t *testing.T) {
	n := len(bugs)
	if *planted != "all" {
		var err error
		if n, err = strconv.Atoi(*planted); err != nil || n < 0 {
			t.Fatalf("-planted %s: want a number, or all", *planted)
		}
	}
	n = min(n, len(bugs))
	for i := range n {
		b := bugs[i*len(bugs)/n]
		t.Run(b.name, b.caught)
	}
}

func (b bug) caught(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	path, dir := filepath.Join(root, b.file), t.TempDir()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), b.old); n != 1 {
		t.Fatalf("%d times %q in %s, want once: has the code changed?", n, b.old, b.file)
	}
	bad, file := filepath.Join(dir, filepath.Base(b.file)), filepath.Join(dir, "overlay.json")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: bad}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{bad: []byte(strings.Replace(string(source), b.old, b.bad, 1)), file: overlay} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "election.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", file, "-o", bin, "./election")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), bin, "-test.run=^("+b.tests+")", "-test.timeout=2m", "-test.failfast", "-seeds=12")
	run.Dir = filepath.Join(root, "election")
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatal("no test has failed")
	}
	t.Logf("%s: %s", b.file, caughtBy.FindAllString(string(out), 3))
	if !caughtBy.Match(out) {
		t.Errorf("no test has failed, but the run has: %.2000s", out)
	}
}

var caughtBy = regexp.MustCompile(`--- FAIL: \w+|panic: test timed out`)
