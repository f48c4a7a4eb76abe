package main

import (
	"fmt"
	"io"
	"slices"
)

// report prints the results.
type report struct {
	out    io.Writer
	judged bool // the promises are judged; false if the run is too short
	counts map[verdict]int
}

// part prints the contests of a part: figures, promises and notes. Successive contests with the
// same columns share a table.
func (r *report) part(p part, contests []*contest) {
	if len(contests) == 0 {
		return
	}
	promises := table{title: p.title + ": what is promised",
		head: []string{"nodes", "", "what", "measured", "middle half", "bound", ""}}
	var t table
	for i, c := range contests {
		if i == 0 || !slices.Equal(c.columns, contests[i-1].columns) {
			if i > 0 {
				t.print(r.out)
			}
			t = table{title: p.title, head: []string{"nodes", "", ""}}
			for i, m := range c.columns {
				t.head = append(t.head, string(m))
				if i == 0 {
					t.head = append(t.head, "lowest to highest")
				}
			}
		}
		for _, e := range c.entries {
			if row := c.row(e, c.columns); row != nil {
				t.add(row...)
			}
		}
		for _, p := range c.promises {
			promises.add(r.promise(c, p)...)
		}
	}
	t.print(r.out)
	if len(promises.rows) > 0 {
		promises.print(r.out)
	}
	ratios := table{title: p.title + ": this checkout / the other", head: []string{"nodes", "", "what", "ratio", "middle half"}}
	for _, c := range contests {
		c.ratios(&ratios)
	}
	if len(ratios.rows) > 0 {
		ratios.print(r.out)
	}
	seen := make(map[string]bool)
	for _, c := range contests {
		for _, n := range c.notes {
			if !seen[n] {
				fmt.Fprintf(r.out, "\nNOTE: %s\n", n)
			}
			seen[n] = true
		}
	}
}

// row has the medians of an entry, and the spread of the first column; nil without measurements.
func (c *contest) row(e entry, columns []metric) []string {
	if len(c.rounds.of(e.name, columns[0])) == 0 {
		return nil
	}
	row := []string{string(c.store), c.scene, e.name}
	for i, m := range columns {
		xs := c.rounds.of(e.name, m)
		if len(xs) == 0 {
			row = append(row, "–")
			continue
		}
		row = append(row, number(m, median(xs)))
		if i == 0 {
			low, high := extremes(xs)
			row = append(row, number(m, low)+" to "+number(m, high))
		}
	}
	return row
}

// promise judges one of a contest's promises.
func (r *report) promise(c *contest, p promise) []string {
	what := fmt.Sprintf("%s: %s", p.entry, p.metric)
	if p.over != "" {
		what += " / " + p.over
	}
	bound := fmt.Sprintf("at most %.4g", p.bound)
	if p.atLeast {
		bound = fmt.Sprintf("at least %.4g", p.bound)
	}
	j := p.judge(c.rounds)
	row := []string{string(c.store), c.scene, what, "–", "–", bound, string(j.verdict)}
	if j.verdict != notMeasured {
		row[3], row[4] = fmt.Sprintf("%.3g", j.middle), fmt.Sprintf("%.3g to %.3g", j.low, j.high)
		if !r.judged {
			row[6] = "not judged"
			return row
		}
		if j.close {
			row[6] += ", close"
		}
	}
	r.counts[j.verdict]++
	return row
}

// sum prints how many promises were kept, and returns an error if not all were.
func (r *report) sum() error {
	fmt.Fprintf(r.out, "\n%d promises ok, %d MISSED, %d NOT MEASURED\n", r.counts[kept], r.counts[missed], r.counts[notMeasured])
	if n := r.counts[missed] + r.counts[notMeasured]; n > 0 {
		return fmt.Errorf("%d promises were missed or not measured: see above", n)
	}
	return nil
}
