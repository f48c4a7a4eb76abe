package main

import (
	"testing"
	"time"
)

func TestQuantileIsAMemberOfTheSample(t *testing.T) {
	s := sample{5, 1, 4, 2, 3}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0, 1}, {0.2, 1}, {0.21, 2}, {0.5, 3}, {0.99, 5}, {1, 5}} {
		if got := s.quantile(c.q); got != c.want {
			t.Errorf("quantile(%v) = %d, want %d", c.q, got, c.want)
		}
	}
	if got := (sample{}).quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing: %d", got)
	}
}

func TestJainIsOneForEqualsAndOneNthForASingleWinner(t *testing.T) {
	for _, c := range []struct {
		served []int
		want   float64
	}{{[]int{7, 7, 7}, 1}, {[]int{9, 0, 0, 0}, 0.25}, {[]int{1, 3}, 0.8}, {[]int{0, 0}, 0}, {nil, 0}} {
		if got := jain(c.served); got != c.want {
			t.Errorf("jain(%v) = %v, want %v", c.served, got, c.want)
		}
	}
}

func TestMedianOfAnEvenNumberIsBetweenTheTwo(t *testing.T) {
	if got := median([]float64{9, 1, 3, 2}); got != 2.5 {
		t.Errorf("median %v, want 2.5", got)
	}
	if got := median([]float64{9, 1, 3}); got != 3 {
		t.Errorf("median %v, want 3", got)
	}
}

// Who is starved must show: its wait has no end within the time that is measured.
func TestMeasureCountsTheWaitsThatDoNotEnd(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	contenders := []contender{
		{grants: []grant{{at(0), at(5)}, {at(9), at(11)}, {at(12), at(13)}}}, // before, within, within
		{grants: []grant{{at(13), at(25)}}},                                  // granted when all was over
		{grants: []grant{{at(1), at(21)}}},
		{waiting: at(2)},                                     // never
		{grants: []grant{{at(21), at(22)}}, waiting: at(23)}, // all of it after
	}
	out := measure(contenders, at(10), at(20), 30)
	if out.grants != 0.2 || out.handoffs != 0 {
		t.Errorf("%v grants/s, %v handoffs/s, want 0.2 and none", out.grants, out.handoffs)
	}
	if out.p50 != 7*time.Second || out.most != 19*time.Second { // of 1, 2, 7, 18 and 19 s
		t.Errorf("p50 %v, max %v, want 7s, 19s", out.p50, out.most)
	}
	if out.jain != 0.2 {
		t.Errorf("Jain index %v, want 0.2", out.jain)
	}
}

func TestWhoTakesItAgainHandsNothingOver(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	contenders := []contender{
		{grants: []grant{{at(10), at(11)}, {at(11), at(12)}, {at(13), at(14)}, {at(15), at(21)}}},
		{grants: []grant{{at(0), at(9)}, {at(10), at(13)}, {at(14), at(16)}, {at(16), at(17)}}},
	}
	out := measure(contenders, at(10), at(20), 48) // to the first at 11 and 14, to the second at 13 and 16
	if out.grants != 0.6 || out.handoffs != 0.4 || out.perGrant != 8 || out.perHandoff != 12 {
		t.Errorf("%v grants/s, %v handoffs/s, %v and %v scripts each, want 0.6, 0.4, 8, 12", out.grants, out.handoffs, out.perGrant, out.perHandoff)
	}
}
