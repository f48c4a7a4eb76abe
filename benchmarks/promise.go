package main

import (
	"cmp"
	"slices"
	"strings"
)

// promise is a bound for a figure, or for its ratio to another entry's figure.
type promise struct {
	entry   string
	metric  metric
	over    string // the other entry; "": none
	atLeast bool   // the bound is the least; else it is the most
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
			if i >= len(r[p.over]) {
				continue
			}
			y, ok := r[p.over][i][p.metric]
			if !ok || y == 0 {
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
