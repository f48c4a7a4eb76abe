package promlock_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

func TestRulesPassPromtool(t *testing.T) {
	need(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

// Each alert has a test in rules_test.yaml in which it fires, and a runbook with its name.
func TestEveryAlertHasATestAndARunbook(t *testing.T) {
	rules, tests, runbooks := read(t, "rules.yaml"), read(t, "rules_test.yaml"), read(t, "../../docs/alerts.md")
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	links := regexp.MustCompile(`runbook_url: \S+/docs/alerts\.md#(\S+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 9 || len(links) != len(alerts) {
		t.Fatalf("%d alerts and %d links to runbooks", len(alerts), len(links))
	}
	for i, a := range alerts {
		if !strings.Contains(tests, `alertname="`+a[1]+`"`) {
			t.Errorf("no test in which %s fires", a[1])
		}
		heading := strings.ReplaceAll(links[i][1], "-", " ")
		if !regexp.MustCompile(`(?mi)^### ` + heading + `$`).MatchString(runbooks) {
			t.Errorf("docs/alerts.md has no runbook %q for %s", heading, a[1])
		}
		if words := strings.ToLower(strings.ReplaceAll(heading, " ", "")); "quorumlock"+words != strings.ToLower(a[1]) {
			t.Errorf("the runbook of %s is %q", a[1], heading)
		}
	}
}

// need skips a test where a program is not installed.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			require.Skip(t, "QUORUMLOCK_REQUIRE_PROMETHEUS", program+" is not installed")
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	testkit.Must(t, err, "ReadFile")
	return string(b)
}

// queries are the expressions of the dashboard, with its variables filled in.
func queries(t *testing.T, job string) []string {
	t.Helper()
	var d struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	testkit.Must(t, json.Unmarshal([]byte(read(t, "dashboard.json")), &d), "Unmarshal")
	var all []string
	var ids []int
	for _, p := range d.Panels {
		if p.Title == "" || slices.Contains(ids, p.ID) || p.GridPos.X+p.GridPos.W > 24 || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %+v", p)
		}
		ids = append(ids, p.ID)
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$__rate_interval", "1m", "$job", job).Replace(target.Expr))
		}
	}
	if len(all) < 20 {
		t.Fatalf("the dashboard has %d queries", len(all))
	}
	return all
}
