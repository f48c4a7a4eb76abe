package coresim

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// A caller of the MultiLock x+y waits for x, and gives up. This is progress for a patient caller of
// y with a higher ticket, and for no other.
func TestGivingUpIsProgressOnlyForCallersBehind(t *testing.T) {
	for name, tt := range map[string]struct {
		held    bool // x has a holder
		tickets []int64
		unsure  bool
		moves   bool
	}{
		"before the patient caller":        {true, []int64{5}, false, true},
		"after the patient caller":         {true, []int64{15, 16, 17}, false, false},
		"with an unsure ticket":            {true, []int64{5}, true, false},
		"while nobody holds their members": {false, []int64{5}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := contest{near: 50 * us, far: 350 * us, hold: ms}
			all := c.begin(1, crowd{callers: 1, names: 0})
			all.plan.Class = calm
			all.world.Run(ms)
			w := &all.watch
			caller := func(names int, ticket int64) *worker {
				s := &Step{Names: names}
				k := &worker{process: all.procs[0], step: s, lock: all.lockOf(s), call: &call{}}
				k.call.entry = wire.Entry{Ticket: ticket, Unsure: tt.unsure && names == 2}
				return k
			}
			w.holds, w.calls = nil, []*worker{caller(1, 10)}
			if tt.held {
				w.holds = []*hold{{call: &call{lock: all.lockOf(&Step{Names: 0})}}}
			}
			const y = 1
			for _, ticket := range tt.tickets {
				k := caller(2, ticket)
				w.calls = append(w.calls, k)
				w.returned(k)
			}
			if moves := w.lastMoves[y] > 0; moves != tt.moves {
				t.Errorf("progress with y: %v, want %v", moves, tt.moves)
			}
		})
	}
}

// Attempts beyond 50 need a change, or a millisecond each.
func TestAttemptsWithoutAChangeAreLimited(t *testing.T) {
	for name, tt := range map[string]struct {
		attempts, changeAfter int
		pause                 time.Duration
		storms                bool
	}{
		"a few at once":                    {attempts: 50},
		"many at once":                     {attempts: 51, storms: true},
		"many at once, and a change":       {attempts: 100, changeAfter: 50},
		"many at the speed of the network": {attempts: 200, pause: ms / 2, storms: true},
		"many looks":                       {attempts: 2000, pause: ms},
	} {
		t.Run(name, func(t *testing.T) {
			c := contest{near: 50 * us, far: 350 * us, hold: time.Hour}
			all := c.begin(1, crowd{callers: 1, names: 0})
			all.world.Run(ms)
			k, now := all.procs[0].workers[0], all.world.Now()
			for i := range tt.attempts {
				if i > 0 && i == tt.changeAfter {
					all.watch.changes++
				}
				now += tt.pause
				all.world.Run(now)
				all.paced(k)
			}
			if storms := len(all.violations) > 0; storms != tt.storms {
				t.Errorf("violations %v, want some: %v", all.violations, tt.storms)
			}
		})
	}
}
