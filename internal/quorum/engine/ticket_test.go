package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A cell that granted queues the waiter at the Yield. The waiter may be first there alone, like at
// a cell that replaced its ticket, and would keep out the first of the other cells.
func TestAYieldedCellCountsForAnUnsureTicket(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	entry := wire.Entry{Ticket: at.UnixMicro(), Unsure: true}
	refused := func(ahead time.Duration) wire.Reply {
		return wire.Reply{Value: []any{int64(0), int64(1), int64(0), "o", at.Add(ahead).UnixMilli()}}
	}
	type step struct {
		do      core.Do
		attempt int32
		reply   wire.Reply
	}
	near, far := step{core.Acquire, 1, refused(0)}, step{core.Acquire, 1, refused(time.Hour)}
	yield, lost := step{core.Yield, 1, wire.Reply{}}, step{core.Yield, 1, wire.Reply{Err: errors.New("lost")}}
	later := step{core.Acquire, 2, refused(0)}
	for name, tt := range map[string]struct {
		steps []step
		last  Verdict
	}{
		"a yield after replacements": {[]step{near, far, far, yield}, Verdict{Called: true, CalledAtAll: true}},
		"a yield before the others":  {[]step{yield, near, far, near}, Verdict{CalledAtAll: true}},
		"a yield alone":              {[]step{near, near, near, yield}, Verdict{Called: true, CalledAtAll: true}},
		"all yields":                 {[]step{yield, yield, yield, yield}, Verdict{Called: true}},
		"too few answers":            {[]step{near, far, yield}, Verdict{Called: true}},
		"a lost yield":               {[]step{near, far, far, lost}, Verdict{}},
		"a yield of an old attempt":  {[]step{far, far, later, yield}, Verdict{Called: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var a Acceptance
			var v Verdict
			for _, s := range tt.steps {
				v = a.Judge(&core.Call{Do: s.do, Attempt: s.attempt}, &entry, &s.reply, 4)
			}
			if v != tt.last {
				t.Errorf("%+v, want %+v", v, tt.last)
			}
		})
	}
}
