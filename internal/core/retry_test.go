package core

import "testing"

// A failed release is repeated, unless no attempt has reached the cell. It is repeated once more if
// a lost call may still run.
func TestHowOftenAReleaseIsConfirmed(t *testing.T) {
	for name, tt := range map[string]struct {
		answers          []Event // of the cell
		failed, answered int
	}{
		"not answered":               {nil, 2, 0},
		"granted":                    {[]Event{answer(Acquire, 2, grant)}, 1, 0},
		"refused":                    {[]Event{answer(Acquire, 2, heldByOther)}, 1, 0},
		"never sent":                 {[]Event{answer(Acquire, 2, unsent)}, 0, 0},
		"refused by the guard":       {[]Event{answer(Acquire, 2, Reply{Err: errNoAnswer, Quarantined: true})}, 0, 0},
		"lost":                       {[]Event{answer(Acquire, 2, lost)}, 2, 1},
		"granted, a restore is lost": {[]Event{answer(Acquire, 2, grant), answer(Restore, 2, lost)}, 2, 1},
		"granted, a renewal is lost": {[]Event{answer(Acquire, 2, grant), answer(Renew, 2, lost)}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := holding(0, 1)
			plays(m, append(tt.answers, unlock)...)
			for failed, want := range map[bool]int{true: tt.failed, false: tt.answered} {
				if _, times := m.Retry(Call{Do: Release, Cell: 2, Attempt: 1}, failed); times != want {
					t.Errorf("if the release has failed (%v), it is confirmed %d times more, want %d", failed, times, want)
				}
			}
			if _, times := m.Retry(Call{Do: Renew, Cell: 2, Attempt: 1}, true); times != 0 {
				t.Errorf("a renewal is confirmed %d times", times)
			}
		})
	}
}
