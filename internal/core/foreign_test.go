package core

import (
	"slices"
	"testing"
	"time"
)

// had is the answer of a cell where a copy already has the lock, under the owner of the attempt.
var had = Reply{OK: true, Again: true, Token: 7}

// An owner appears twice if a process is restored twice from its image, or a proxy repeats calls.
func TestNothingIsGivenBackWhereTheOwnerHadTheLockBefore(t *testing.T) {
	last := func(r Reply) Event { return answer(Acquire, 2, r) }
	for name, tt := range map[string]struct {
		tries bool
		had   []int32      // the cells where the owner had the lock before
		play  []Event      // after the answers of the cells 0 and 1
		want  map[int32]Do // the last calls to other cells after that
	}{
		"a TryLock": {true, []int32{0, 1, 2}, []Event{last(had)}, nil},
		"a TryLock, and the last cell has granted":   {true, []int32{0, 1}, []Event{last(grant)}, map[int32]Do{2: ReleaseAndLeave}},
		"a TryLock, and the last cell has refused":   {true, []int32{0, 1}, []Event{last(heldByOther)}, map[int32]Do{2: Leave}},
		"a TryLock, and the last cell has failed":    {true, []int32{0, 1}, []Event{last(lost)}, map[int32]Do{2: ReleaseAndLeave}},
		"a TryLock, and the last cell was not asked": {true, []int32{0, 1}, []Event{last(unsent)}, nil},
		"a Lock that is cancelled":                   {false, []int32{0, 1, 2}, []Event{last(had), cancel}, nil},
		"a hold of the other cells":                  {false, []int32{1}, []Event{last(grant), extend, unlock}, map[int32]Do{0: Release, 2: Release}},
		"a hold that is kept for a while":            {false, []int32{1}, []Event{last(grant), keep(time.Minute)}, map[int32]Do{0: Keep, 2: Keep}},
	} {
		t.Run(name, func(t *testing.T) {
			m := start(2, 3)
			m.cfg.Tries = tt.tries
			events := []Event{answer(Acquire, 0, grant), answer(Acquire, 1, grant)}
			for i := range events {
				events[i].Reply.Again = slices.Contains(tt.had, int32(i))
			}
			last := make(map[int32]Do)
			for _, c := range sends(m, at(0), append(events, tt.play...)...) {
				if slices.Contains(tt.had, c.Cell) && c.Do != Acquire {
					t.Errorf("cell %d is asked for %v", c.Cell, c.Do)
				}
				last[c.Cell] = c.Do
			}
			for cell, do := range tt.want {
				if last[cell] != do {
					t.Errorf("cell %d is asked for %v at last, want %v", cell, last[cell], do)
				}
			}
		})
	}
}

// A Restore of the hold has overtaken the attempt.
func TestWhatARestoreHasGotIsReleased(t *testing.T) {
	m := holding(0, 1)
	want(t, plays(m, extend, renewal(0, grant), renewal(1, grant), renewal(2, Reply{})), 2, Restore)
	want(t, plays(m, answer(Acquire, 2, had), unlock), 2, ReleaseAndLeave)
}
