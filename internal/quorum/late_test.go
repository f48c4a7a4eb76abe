package quorum

import (
	"errors"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
)

type namedNode struct{ Node }

func (namedNode) String() string { return "far" }

// Too late is neither held nor an outage, and names the nodes that failed.
func TestALateGrantHasAnErrorOfItsOwn(t *testing.T) {
	far := namedNode{}
	l := &Lock{name: "x", cells: []Cell{{Node: far}}, nodes: []Node{far}}
	for name, tt := range map[string]struct {
		why    core.Reason
		parked *Parked
		text   string
	}{
		"no token in time":         {core.NoToken, nil, "node far: refused"},
		"the end of the TTL":       {core.TooLate, nil, "nothing is left of the TTL"},
		"the end of a parked hold": {core.TooLate, &Parked{}, "too little time is left for the detached hold"},
	} {
		c := &call{lock: l, parked: tt.parked, machine: core.New(&core.Config{Tree: core.Majority(1, 1)}, nil, 1)}
		c.machine.Cells[0].Err = errors.New("refused")
		err := c.failure(tt.why)
		if !errors.Is(err, quorumlock.ErrTooLate) || errors.Is(err, quorumlock.ErrNoQuorum) || errors.Is(err, quorumlock.ErrHeld) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
