package simulation

import (
	"slices"
	"testing"
)

// shrink takes away from a plan what it does not need to fail, one thing after another, and returns what is left.
func shrink(t *testing.T, p *Plan, invariant string) (*Plan, Outcome) {
	last := play(t, p)
	for again := true; again; {
		again = false
		for _, smaller := range smaller(p) {
			out := play(t, smaller)
			if slices.ContainsFunc(out.Violations, func(v Violation) bool { return v.Invariant == invariant }) {
				p, last, again = smaller, out, true
				break
			}
		}
	}
	return p, last
}

// smaller are plans with one thing less.
func smaller(p *Plan) []*Plan {
	var plans []*Plan
	less := func(change func(*Plan)) {
		q := *p
		change(&q)
		plans = append(plans, &q)
	}
	for i := range p.Faults {
		less(func(q *Plan) { q.Faults = without(p.Faults, i) })
	}
	for i := range p.Workers {
		less(func(q *Plan) { q.Workers = without(p.Workers, i) })
	}
	for i, w := range p.Workers {
		for j, s := range w.Steps {
			step := func(change func(*Step)) {
				less(func(q *Plan) {
					q.Workers = slices.Clone(p.Workers)
					q.Workers[i].Steps = slices.Clone(w.Steps)
					change(&q.Workers[i].Steps[j])
				})
			}
			if len(w.Steps) > 1 {
				less(func(q *Plan) {
					q.Workers = slices.Clone(p.Workers)
					q.Workers[i].Steps = without(w.Steps, j)
				})
			}
			for k := range s.Hold {
				step(func(s *Step) { s.Hold = without(s.Hold, k) })
			}
			if s.Cancel > 0 {
				step(func(s *Step) { s.Cancel = 0 })
			}
		}
	}
	for _, odds := range []func(*Plan) *float64{
		func(q *Plan) *float64 { return &q.Slow },
		func(q *Plan) *float64 { return &q.Drop },
		func(q *Plan) *float64 { return &q.LoseReply },
	} {
		if *odds(p) > 0 {
			less(func(q *Plan) { *odds(q) = 0 })
		}
	}
	for i, c := range p.Clocks {
		if c.Rate != 1 {
			less(func(q *Plan) { q.Clocks = slices.Clone(p.Clocks); q.Clocks[i].Rate = 1 })
		}
	}
	for i, pp := range p.Processes {
		if pp.Wall != 0 {
			less(func(q *Plan) { q.Processes = slices.Clone(p.Processes); q.Processes[i].Wall = 0 })
		}
	}
	return plans
}

func without[T any](all []T, i int) []T { return slices.Concat(all[:i], all[i+1:]) }
