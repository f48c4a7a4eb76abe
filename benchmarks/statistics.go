package main

import (
	"math"
	"slices"
	"time"
)

// sample is a set of measured times, in any order.
type sample []time.Duration

// quantile returns the smallest time that at least the share q of the sample does not exceed: the
// median for 0.5, the maximum for 1. It is 0 for an empty sample.
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// jain is the fairness index (Σx)² / (n·Σx²): 1 for equal shares, 1/n if one contender has all. (R.
// Jain, "A Quantitative Measure of Fairness", 1984.) It is 0 without grants.
func jain(served []int) float64 {
	var sum, squares float64
	for _, n := range served {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(served)) * squares)
}

// median of numbers; it is 0 for none.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(xs))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// quartile returns the n-th quartile of sorted numbers: one of the numbers, the lower of two for
// the first and the higher for the third, so that the two enclose at least half of them.
func quartile(sorted []float64, n int) float64 {
	at := float64(n) * float64(len(sorted)-1) / 4
	if n < 2 {
		return sorted[int(math.Floor(at))]
	}
	return sorted[int(math.Ceil(at))]
}

// extremes are the least and the greatest of some numbers.
func extremes(xs []float64) (low, high float64) { return slices.Min(xs), slices.Max(xs) }
