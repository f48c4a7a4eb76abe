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
	for name, tt := range map[string]struct {
		tries bool
		had   []int32                 // the cells where the owner had the lock before
		play  func(m *Machine) []Call // after the answers of the cells 0 and 1
		want  map[int32]Do            // the calls to other cells after the answer of cell 2
	}{
		"a TryLock": {true, []int32{0, 1, 2}, func(m *Machine) []Call {
			return answersAcquire(m, 2, had)
		}, nil},
		"a TryLock, and the last cell has granted": {true, []int32{0, 1}, func(m *Machine) []Call {
			return answersAcquire(m, 2, Reply{OK: true, Token: 7})
		}, map[int32]Do{2: ReleaseAndLeave}},
		"a TryLock, and the last cell has refused": {true, []int32{0, 1}, func(m *Machine) []Call {
			return answersAcquire(m, 2, heldByOther)
		}, map[int32]Do{2: Leave}},
		"a TryLock, and the last cell has failed": {true, []int32{0, 1}, func(m *Machine) []Call {
			return answersAcquire(m, 2, Reply{Err: errNoAnswer})
		}, map[int32]Do{2: ReleaseAndLeave}},
		"a TryLock, and the last cell was not asked": {true, []int32{0, 1}, func(m *Machine) []Call {
			return answersAcquire(m, 2, Reply{Err: errNoAnswer, Unsent: true})
		}, nil},
		"a Lock that is cancelled": {false, []int32{0, 1, 2}, func(m *Machine) []Call {
			all := answersAcquire(m, 2, had)
			return append(all, m.Step(at(0), Event{Kind: Cancel}).Calls...)
		}, nil},
		"a hold of the other cells": {false, []int32{1}, func(m *Machine) []Call {
			answersAcquire(m, 2, Reply{OK: true, Token: 7})
			all := callsOf(m.Step(at(0), Event{Kind: Extend}))
			return append(all, m.Step(at(0), Event{Kind: Unlock}).Calls...)
		}, map[int32]Do{0: Release, 2: Release}},
		"a hold that is kept for a while": {false, []int32{1}, func(m *Machine) []Call {
			answersAcquire(m, 2, Reply{OK: true, Token: 7})
			return callsOf(m.Step(at(0), Event{Kind: Unlock, Keep: time.Minute}))
		}, map[int32]Do{0: Keep, 2: Keep}},
	} {
		t.Run(name, func(t *testing.T) {
			m := start(2, 3)
			m.cfg.Tries = tt.tries
			var all []Call
			for cell := range int32(2) {
				r := Reply{OK: true, Token: 7}
				if slices.Contains(tt.had, cell) {
					r = had
				}
				all = append(all, answersAcquire(m, cell, r)...)
			}
			all = append(all, tt.play(m)...)
			last := make(map[int32]Do)
			for _, c := range all {
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

func answersAcquire(m *Machine, cell int32, r Reply) []Call {
	return callsOf(m.Step(at(0), answer(Acquire, cell, r)))
}

// A Restore of the hold has overtaken the attempt.
func TestWhatARestoreHasGotIsReleased(t *testing.T) {
	m := start(2, 3)
	granted(m, 0, 1)
	m.Step(at(time.Second), Event{Kind: Extend})
	for cell := range int32(3) {
		e := answer(Renew, cell, Reply{OK: cell < 2})
		e.Call.Round = m.LastRound()
		if fx := m.Step(at(time.Second), e); cell == 2 {
			want(t, fx, 2, Restore)
		}
	}
	m.Step(at(time.Second), answer(Acquire, 2, had))
	want(t, m.Step(at(time.Second), Event{Kind: Unlock}), 2, ReleaseAndLeave)
}
