package dialect_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/dialect"
)

// A call that is owed may run at any later time. While its waiter waits, the call must not take it out of the queue.
func TestAnOwedCallDoesNotTakeAWaiterThatGoesOnOutOfItsQueue(t *testing.T) {
	for _, tt := range []struct {
		do    core.Do
		phase core.Phase
		want  core.Do
	}{
		{core.Yield, core.Waiting, core.Release},
		{core.ReleaseAndLeave, core.Agreeing, core.Release}, // as a successor, which may find no quorum for its token
		{core.ReleaseAndLeave, core.Asking, core.Release},   // and asks again then
		{core.Yield, core.Over, core.ReleaseAndLeave},
		{core.ReleaseAndLeave, core.Holding, core.ReleaseAndLeave},
		{core.ReleaseAndLeave, core.Over, core.ReleaseAndLeave},
		{core.Leave, core.Holding, core.Leave},
		{core.Release, core.Waiting, core.Release},
	} {
		if got := dialect.Owed(core.Call{Do: tt.do, Cell: 3, Attempt: 2}, tt.phase); got != (core.Call{Do: tt.want, Cell: 3, Attempt: 2}) {
			t.Errorf("for call %d in phase %d it owes %+v, want %d", tt.do, tt.phase, got, tt.want)
		}
	}
}
