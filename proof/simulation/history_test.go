package simulation

import (
	"errors"
	"testing"
)

// A checker that cannot fail proves nothing.
func TestTheCheckerRefusesBrokenHistories(t *testing.T) {
	op := func(what ask, id, n int, called, returned int64, err error) *latchCall {
		return &latchCall{what: what, id: id, count: n, called: called, returned: returned, err: err}
	}
	unknown := errors.New("no quorum")
	for what, tt := range map[string]struct {
		ops  []*latchCall
		good bool
	}{
		"one after the other":             {[]*latchCall{op(counts, 0, 0, 1, 2, nil), op(adds, 0, 0, 3, 4, nil), op(counts, 0, 1, 5, 6, nil), op(adds, 1, 0, 7, 8, nil), op(waits, 0, 0, 9, 10, nil)}, true},
		"an id twice counts once":         {[]*latchCall{op(adds, 0, 0, 1, 2, nil), op(adds, 0, 0, 3, 4, nil), op(counts, 0, 1, 5, 6, nil)}, true},
		"a failed Done counts later":      {[]*latchCall{op(adds, 0, 0, 1, 2, unknown), op(counts, 0, 0, 3, 4, nil), op(counts, 0, 1, 5, 6, nil)}, true},
		"an open latch counts no more":    {[]*latchCall{op(adds, 0, 0, 1, 2, nil), op(adds, 1, 0, 3, 4, nil), op(adds, 2, 0, 5, 6, nil), op(counts, 0, 2, 7, 8, nil)}, true},
		"an id counts twice":              {[]*latchCall{op(adds, 0, 0, 1, 2, nil), op(adds, 0, 0, 3, 4, nil), op(counts, 0, 2, 5, 6, nil)}, false},
		"an id is lost":                   {[]*latchCall{op(adds, 0, 0, 1, 2, nil), op(counts, 0, 0, 3, 4, nil)}, false},
		"a failed Done counts, and stops": {[]*latchCall{op(adds, 0, 0, 1, 2, unknown), op(counts, 0, 1, 3, 4, nil), op(counts, 0, 0, 5, 6, nil)}, false},
		"opened by nobody":                {[]*latchCall{op(adds, 0, 0, 1, 2, nil), op(waits, 0, 0, 3, 4, nil)}, false},
		"open, and closed again":          {[]*latchCall{op(adds, 0, 0, 1, 2, nil), op(adds, 1, 0, 3, 10, nil), op(waits, 0, 0, 4, 5, nil), op(counts, 0, 1, 6, 7, nil)}, false},
	} {
		if got := isLinearizable(2, tt.ops); got != tt.good {
			t.Errorf("%s: %v, want %v", what, got, tt.good)
		}
	}
}
