package main

import (
	"strings"
	"testing"
)

func TestReportHasMediansSpreadAndVerdicts(t *testing.T) {
	c := twoEntries(atLeast(2, "a", pairs).times("b"), atMost(1, "a", allocs))
	c.columns = []metric{pairs, allocs}
	c.rounds = rounds{
		"a": {{pairs: 3000, allocs: 40}, {pairs: 1000, allocs: 40}, {pairs: 2000, allocs: 40}},
		"b": {{pairs: 1000}, {pairs: 500}, {pairs: 1000}},
	}
	var out strings.Builder
	r := report{out: &out, judged: true, counts: make(map[verdict]int)}
	r.part(part{title: "x"}, []*contest{c})
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"a | 2000 | 1000 to 3000 | 40.0 |", "a: pairs/s / b | 2 | 2 to 3 | at least 2 | ok |", "a: allocs | 40 | 40 to 40 | at most 1 | MISSED |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, &out)
		}
	}
	if err := r.sum(); err == nil || r.counts[kept] != 1 || r.counts[missed] != 1 {
		t.Errorf("error %v, counts %v, want one kept, one missed and an error", err, r.counts)
	}
}

func TestQuickRunJudgesNothing(t *testing.T) {
	c := twoEntries(atMost(1, "a", allocs))
	c.columns = []metric{allocs}
	c.rounds = rounds{"a": {{allocs: 40}}}
	var out strings.Builder
	r := report{out: &out, counts: make(map[verdict]int)}
	r.part(part{title: "x"}, []*contest{c})
	if strings.Contains(out.String(), "MISSED") || r.sum() != nil {
		t.Errorf("one short round was judged:\n%s", &out)
	}
}
