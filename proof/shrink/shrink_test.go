package shrink

import (
	"reflect"
	"testing"
	"time"
)

type plan struct {
	Seed  int
	Rate  float64 `shrink:"1"`
	Calls []call  `shrink:"drop"`
	Nodes []node
}

type call struct {
	Limit time.Duration `shrink:"0"`
	Try   bool          `shrink:"0"`
	After int
}

type node struct {
	Rate float64 `shrink:"1"`
}

// The parts that the failure needs stay, and so do those without a tag.
func TestPlanDropsWhatTheFailureDoesNotNeed(t *testing.T) {
	p := plan{Seed: 7, Rate: 2, Calls: []call{{1, true, 1}, {2, true, 2}, {3, true, 3}}, Nodes: []node{{0.5}, {2}}}
	old := plan{Seed: 7, Rate: 2, Calls: []call{{1, true, 1}, {2, true, 2}, {3, true, 3}}, Nodes: []node{{0.5}, {2}}}
	got := Plan(&p, func(p *plan) bool {
		for _, c := range p.Calls {
			if c.Limit == 2 && p.Nodes[1].Rate == 2 {
				return true
			}
		}
		return false
	})
	want := plan{Seed: 7, Rate: 1, Calls: []call{{2, false, 2}}, Nodes: []node{{1}, {2}}}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, want %+v", *got, want)
	}
	if !reflect.DeepEqual(p, old) {
		t.Errorf("the plan has become %+v", p)
	}
}
