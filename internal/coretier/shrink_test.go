package coretier

import "slices"

// shrink takes away from a plan what it does not need to fail, one thing after another, and returns what is left.
func shrink(p *Plan, invariant string) *Plan {
	for again := true; again; {
		again = false
		for _, smaller := range smaller(p) {
			q := *smaller
			out := run(&q, false)
			if slices.ContainsFunc(out.Violations, func(v Violation) bool { return v.Invariant == invariant }) {
				p, again = smaller, true
				break
			}
		}
	}
	return p
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
			for _, f := range []func(*Step){
				func(s *Step) { s.Cancel = 0 }, func(s *Step) { s.Told = 0 }, func(s *Step) { s.Limit = 0 },
				func(s *Step) { s.Keep = 0 }, func(s *Step) { s.NoRenew = false },
			} {
				changed := s
				if f(&changed); changed.Cancel != s.Cancel || changed.Told != s.Told || changed.Limit != s.Limit || changed.Keep != s.Keep || changed.NoRenew != s.NoRenew {
					step(f)
				}
			}
		}
	}
	for _, odds := range []func(*Plan) *float64{
		func(q *Plan) *float64 { return &q.Network.Slow },
		func(q *Plan) *float64 { return &q.Network.Lose },
		func(q *Plan) *float64 { return &q.Network.LoseReply },
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
	for i, c := range p.Processes {
		if c.Wall != epoch || c.Rate != 1 {
			less(func(q *Plan) {
				q.Processes = slices.Clone(p.Processes)
				q.Processes[i].Wall, q.Processes[i].Rate = epoch, 1
			})
		}
	}
	return plans
}

func without[T any](all []T, i int) []T { return slices.Concat(all[:i], all[i+1:]) }
