package main

import (
	"strings"
	"testing"
)

func TestTwoCheckoutsAreComparedWithinTheRounds(t *testing.T) {
	c := &contest{scene: "1 caller", columns: []metric{pairs}, entries: []entry{{name: ours, job: job{Design: ours}}, {name: readersName, job: job{Design: readersName}}, {name: redsyncName, job: job{Design: redsyncName}}}}
	c.addAgainst("other")
	if len(c.entries) != 5 {
		t.Fatalf("%d entries, want the two of this library twice", len(c.entries))
	}
	c.rounds = rounds{ours: {{pairs: 2}, {pairs: 20}}, ours + against: {{pairs: 1}, {pairs: 10}}}
	var out strings.Builder
	(&report{out: &out, counts: make(map[verdict]int)}).part(part{title: "x"}, []*contest{c})
	if !strings.Contains(out.String(), "| quorumlock: pairs/s | 2     | 2 to 2") {
		t.Errorf("no ratio in\n%s", &out)
	}
}
