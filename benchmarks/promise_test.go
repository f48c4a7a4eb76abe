package main

import "testing"

func roundsOf(m metric, all map[string][]float64) rounds {
	r := make(rounds)
	for name, xs := range all {
		for _, x := range xs {
			r[name] = append(r[name], figures{m: x})
		}
	}
	return r
}

func TestPromiseIsJudgedByTheMedian(t *testing.T) {
	for _, c := range []struct {
		name    string
		promise promise
		xs      []float64
		want    verdict
		close   bool
	}{
		{"at the bound", atMost(2, ours, p99), []float64{2, 2, 2, 2, 2}, kept, false},
		{"above the bound", atMost(2, ours, p99), []float64{2.1, 2.1, 2.1, 2.1, 2.1}, missed, false},
		{"one awful round", atMost(2, ours, p99), []float64{1, 1, 335, 1, 1}, kept, false},
		{"one lucky round", atMost(2, ours, p99), []float64{3, 3, 0.1, 3, 3}, missed, false},
		{"more bad than good", atMost(2, ours, p99), []float64{1, 3, 3, 1, 3}, missed, true},
		{"more good than bad", atMost(2, ours, p99), []float64{1, 3, 1, 1, 3}, kept, true},
		{"at the least", atLeast(75, ours, p99), []float64{75, 76, 75}, kept, false},
		{"below the least", atLeast(75, ours, p99), []float64{74, 74, 90}, missed, true},
		{"nothing measured", atMost(2, ours, p99), nil, notMeasured, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := c.promise.judge(roundsOf(p99, map[string][]float64{ours: c.xs}))
			if j.verdict != c.want || j.close != c.close {
				t.Errorf("%+v, want %s, close: %v", j, c.want, c.close)
			}
		})
	}
}

// A minute in which everything is slow must not decide: the ratio of the two in each round stays.
func TestRatioIsTakenWithinEachRound(t *testing.T) {
	r := roundsOf(pairs, map[string][]float64{
		ours:        {400, 800, 100, 1200, 404},
		redsyncName: {100, 200, 25, 300, 101},
	})
	j := atLeast(4, ours, pairs).times(redsyncName).judge(r)
	if j.verdict != kept || j.low != 4 || j.middle != 4 || j.high != 4 {
		t.Errorf("%+v, want 4 in each round", j)
	}
	if j := atLeast(4.1, ours, pairs).times(redsyncName).judge(r); j.verdict != missed {
		t.Errorf("%+v, want it missed", j)
	}
}

func TestRatioSkipsRoundsInWhichTheOtherFailed(t *testing.T) {
	r := rounds{
		ours:        {{pairs: 100}, {pairs: 300}, {pairs: 100}, nil},
		redsyncName: {{pairs: 100}, nil, {pairs: 100}, {pairs: 1}},
	}
	j := atMost(1, ours, pairs).times(redsyncName).judge(r)
	if j.verdict != kept || j.middle != 1 {
		t.Errorf("%+v, want the ratio 1 of the two rounds that both have", j)
	}
}

func TestNothingIsOKThatWasNotMeasured(t *testing.T) {
	r := rounds{ours: {{pairs: 100}, {pairs: 100}, {pairs: 100}}, redsyncName: {nil, nil, {pairs: 1}}}
	for _, other := range []string{redsyncName, etcdName} { // most rounds failed; not there at all
		if j := atLeast(1, ours, pairs).times(other).judge(r); j.verdict != notMeasured {
			t.Errorf("over %s: %+v, want not measured", other, j)
		}
	}
}
