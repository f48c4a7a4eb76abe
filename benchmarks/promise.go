package main

import (
	"cmp"
	"slices"
	"strings"
)

// promise is a bound for a figure, or for its ratio to another entry's figure.
type promise struct {
	entry  string
	metric metric
	over   string // the other entry; "": none
	// If the other entry lacks the figure in a round: so many times the figure of a third.
	instead string
	factor  float64
	atLeast bool // the bound is the least; else it is the most
	bound   float64
}

// The ways to write a promise down.

func atLeast(bound float64, e string, m metric) promise {
	return promise{entry: e, metric: m, atLeast: true, bound: bound}
}

func atMost(bound float64, e string, m metric) promise {
	return promise{entry: e, metric: m, bound: bound}
}

// times makes it a promise on the ratio to another entry's figure.
func (p promise) times(other string) promise {
	p.over = other
	return p
}

// orTimes makes it a promise on a third entry's figure where the other entry has none.
func (p promise) orTimes(factor float64, third string) promise {
	p.factor, p.instead = factor, third
	return p
}

// verdict is the result of a promise.
type verdict string

const (
	kept        verdict = "ok"
	missed      verdict = "MISSED"
	notMeasured verdict = "NOT MEASURED"
)

// judgement is the verdict on a promise, with the median of all rounds and its quartiles.
type judgement struct {
	verdict     verdict
	low, middle float64
	high        float64
	close       bool // the bound lies between the quartiles
}

// judge compares the median of all rounds with the bound. A ratio is taken within each round: its
// two figures were measured within seconds of each other. A single disturbed round moves the median
// by one place at most.
func (p promise) judge(r rounds) judgement {
	xs := p.values(r)
	if len(xs) == 0 || 2*len(xs) < len(r[p.entry]) { // most rounds failed
		return judgement{verdict: notMeasured}
	}
	slices.Sort(xs)
	j := judgement{verdict: missed, low: quartile(xs, 1), middle: median(xs), high: quartile(xs, 3)}
	if p.holds(j.middle) {
		j.verdict = kept
	}
	j.close = p.holds(j.low) != p.holds(j.high)
	return j
}

func (p promise) holds(x float64) bool {
	if p.atLeast {
		return x >= p.bound
	}
	return x <= p.bound
}

// values are the figure, or the ratio, of each round in which it was measured.
func (p promise) values(r rounds) []float64 {
	var xs []float64
	for i, f := range r[p.entry] {
		x, ok := f[p.metric]
		if !ok {
			continue
		}
		if p.over != "" {
			y := r.in(i, p.over, p.metric)
			if y == 0 && p.instead != "" {
				y = p.factor * r.in(i, p.instead, p.metric)
			}
			if y == 0 {
				continue
			}
			x /= y
		}
		xs = append(xs, x)
	}
	return xs
}

func byEntry(a, b promise) int {
	return cmp.Or(strings.Compare(a.entry, b.entry), strings.Compare(string(a.metric), string(b.metric)))
}
