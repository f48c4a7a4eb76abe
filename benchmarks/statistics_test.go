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

func TestQuartilesEncloseHalf(t *testing.T) {
	for _, c := range []struct {
		xs        []float64
		low, high float64
	}{{[]float64{7}, 7, 7}, {[]float64{1, 2}, 1, 2}, {[]float64{1, 2, 3, 4, 5}, 2, 4}, {[]float64{1, 2, 3, 4, 5, 6}, 2, 5}} {
		if low, high := quartile(c.xs, 1), quartile(c.xs, 3); low != c.low || high != c.high {
			t.Errorf("%v: %v to %v, want %v to %v", c.xs, low, high, c.low, c.high)
		}
	}
}
