package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
)

// contest is a set of entries measured in turns, so that a slow machine slows all of them.
type contest struct {
	part     string
	store    store
	scene    string // such as "16 callers"
	columns  []metric
	entries  []entry
	promises []promise
	// The maximum number of rounds, also below the least of the referee; 0: none.
	turns int

	rounds rounds
	notes  []string // what was not measured or failed, and why
}

// entry is a participant of a contest.
type entry struct {
	name    string
	job     job
	program string // the program of its worker; "": this program
	missing error  // why it cannot be measured
}

// rounds has, by the entry's name, its figures of each round; nil in a round in which it failed.
type rounds map[string][]figures

// of returns a metric of all rounds in which an entry has it.
func (r rounds) of(name string, m metric) []float64 {
	var xs []float64
	for _, f := range r[name] {
		if x, ok := f[m]; ok {
			xs = append(xs, x)
		}
	}
	return xs
}

// in is an entry's figure of a round; 0 if it has none.
func (r rounds) in(round int, name string, m metric) float64 {
	if round >= len(r[name]) {
		return 0
	}
	return r[name][round][m]
}

// referee runs contests.
type referee struct {
	least, most int // rounds
	clear       func(context.Context, *contest) error
	work        func(ctx context.Context, program string, j job) (answer, error)
	progress    func(format string, args ...any)
}

// run lets all entries of a contest take turns, in another order in each round. It runs more than
// the least rounds if a bound lies within the spread of the figures: one noisy minute could decide.
func (r referee) run(ctx context.Context, c *contest) error {
	c.rounds = make(rounds)
	for _, e := range c.entries {
		if e.missing != nil {
			c.note("%s was not measured: %v", e.name, e.missing)
		}
	}
	if c.turns > 0 {
		r.least, r.most = min(r.least, c.turns), min(r.most, c.turns)
	}
	for n := 0; n < r.least || n < r.most && c.isClose(); n++ {
		r.progress("%s, %s, %s: round %d", c.part, c.store, c.scene, n+1)
		for _, i := range rand.Perm(len(c.entries)) {
			if e := c.entries[i]; e.missing == nil {
				if err := r.turn(ctx, c, e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r referee) turn(ctx context.Context, c *contest, e entry) error {
	if err := r.clear(ctx, c); err != nil {
		return err
	}
	a, err := r.work(ctx, e.program, e.job)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case err != nil:
		c.note("%s failed in a round: %v", e.name, err)
		a.Figures = nil
	case a.Failure != "":
		c.note("%s failed %.0f pairs, the first with: %s", e.name, a.Figures[failed], a.Failure)
	}
	c.rounds[e.name] = append(c.rounds[e.name], a.Figures)
	return nil
}

func (c *contest) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf("%s, %s, %s: "+format, append([]any{c.part, c.store, c.scene}, args...)...))
}

// isClose reports whether a promise could go either way.
func (c *contest) isClose() bool {
	for _, p := range c.promises {
		if p.judge(c.rounds).close {
			return true
		}
	}
	return false
}

func byName(a, b entry) int { return strings.Compare(a.name, b.name) }
