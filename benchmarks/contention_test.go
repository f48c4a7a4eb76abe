package main

import (
	"testing"
	"time"
)

func at(s int) time.Time { return time.Unix(int64(s), 0) }

// A starved contender must show: its wait does not end within the measured time.
func TestMeasureCountsTheWaitsThatDoNotEnd(t *testing.T) {
	contenders := []contender{
		// Before, within, within.
		{grants: []grant{{at(0), at(5), at(6)}, {at(9), at(11), at(12)}, {at(12), at(13), at(13)}}},
		// The second contender is granted the lock after the end.
		{grants: []grant{{at(13), at(25), at(26)}}},
		{grants: []grant{{at(1), at(21), at(21)}}},
		{waiting: at(2)}, // never
		{grants: []grant{{at(21), at(22), at(22)}}, waiting: at(23)}, // all of it after
	}
	f := measure(contenders, at(10), at(20), 30)
	if f[grants] != 0.2 || f[handoffs] != 0 {
		t.Errorf("%v grants/s, %v handoffs/s, want 0.2 and none", f[grants], f[handoffs])
	}
	if f[p50] != 7000 || f[p99] != 19000 { // of 1, 2, 7, 18 and 19 s
		t.Errorf("p50 %v ms, p99 %v ms, want 7000, 19000", f[p50], f[p99])
	}
	if f[fairness] != 0.2 {
		t.Errorf("Jain index %v, want 0.2", f[fairness])
	}
}

func TestWhoTakesItAgainHandsNothingOver(t *testing.T) {
	contenders := []contender{
		{grants: []grant{{at(10), at(11), at(11)}, {at(11), at(12), at(12)}, {at(13), at(14), at(14)}, {at(15), at(21), at(22)}}},
		{grants: []grant{{at(0), at(9), at(10)}, {at(10), at(13), at(13)}, {at(14), at(16), at(16)}, {at(16), at(17), at(17)}}},
	}
	// To the first at 11 and 14, to the second at 13 and 16.
	f := measure(contenders, at(10), at(20), 48)
	if f[grants] != 0.6 || f[handoffs] != 0.4 || f[scriptsAHandoff] != 12 {
		t.Errorf("%v grants/s, %v handoffs/s, %v scripts each, want 0.6, 0.4, 12", f[grants], f[handoffs], f[scriptsAHandoff])
	}
}

// A hold counts for its part within the measured time.
func TestMeasureCountsTheTimeHeldWithin(t *testing.T) {
	contenders := []contender{
		{grants: []grant{{at(7), at(8), at(12)}, {at(12), at(19), at(25)}}}, // 2 s and 1 s of 10
		{grants: []grant{{at(1), at(2), at(3)}, {at(12), at(13), at(15)}}},  // 0 s and 2 s
	}
	if f := measure(contenders, at(10), at(20), 0); f[held] != 50 {
		t.Errorf("held %v %% of the time, want 50", f[held])
	}
}
