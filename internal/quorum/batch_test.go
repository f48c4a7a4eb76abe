package quorum

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/core"
)

// A batch may be dropped together with an attempt only if the batch releases each cell of the
// attempt.
func TestABatchThatGivesBackAllOfAnAttempt(t *testing.T) {
	batchOf := func(calls ...core.Call) *batch { return &batch{calls: calls} }
	attempt := batchOf(core.Call{Do: core.Acquire, Cell: 1}, core.Call{Do: core.Acquire, Cell: 4})
	for name, tt := range map[string]struct {
		b    *batch
		want bool
	}{
		"two releases":           {batchOf(core.Call{Do: core.Release, Cell: 1}, core.Call{Do: core.Release, Cell: 4}), true},
		"of those who leave":     {batchOf(core.Call{Do: core.Leave, Cell: 1}, core.Call{Do: core.ReleaseAndLeave, Cell: 4}), true},
		"of one cell":            {batchOf(core.Call{Do: core.Release, Cell: 4}), false},
		"twice of one cell":      {batchOf(core.Call{Do: core.Leave, Cell: 4}, core.Call{Do: core.Release, Cell: 4}), false},
		"a yield, which queues":  {batchOf(core.Call{Do: core.Release, Cell: 1}, core.Call{Do: core.Yield, Cell: 4}), false},
		"a key that stays":       {batchOf(core.Call{Do: core.Keep, Cell: 1}, core.Call{Do: core.Release, Cell: 4}), false},
		"the next attempt":       {batchOf(core.Call{Do: core.Acquire, Cell: 1}, core.Call{Do: core.Acquire, Cell: 4}), false},
		"and asks for one again": {batchOf(core.Call{Do: core.Release, Cell: 1}, core.Call{Do: core.Release, Cell: 4}, core.Call{Do: core.Acquire, Cell: 4}), false},
	} {
		if got := tt.b.endsAll(attempt); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
