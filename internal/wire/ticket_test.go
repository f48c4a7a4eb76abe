package wire

import (
	"testing"
	"time"
)

// A client with a wrong clock follows the median of its nodes. A minority of nodes with wrong
// clocks changes nothing.
func TestTheCorrectionIsTheMedianOfTheNodes(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		was   time.Duration
		ahead []time.Duration
		want  time.Duration
	}{
		"the client is right":                 {0, []time.Duration{s / 10, -s / 10, 0}, 0},
		"the client is behind":                {0, []time.Duration{600 * s, 601 * s, 599 * s}, 600 * s},
		"the client is ahead":                 {0, []time.Duration{-600 * s, -601 * s, -599 * s}, -600 * s},
		"one node is wrong":                   {0, []time.Duration{s / 10, -600 * s, 0}, 0},
		"one of two nodes is wrong":           {0, []time.Duration{-600 * s, 0}, 0},
		"a first node is wrong":               {0, []time.Duration{-600 * s}, -600 * s},
		"a correction stays":                  {-600 * s, []time.Duration{-600*s - s/2, -600*s + s/2, -600 * s}, -600 * s},
		"a correction stays within a second":  {-600 * s, []time.Duration{-600*s - s/2, -600*s - s/2, -600*s - s/2}, -600 * s},
		"a little is not corrected":           {0, []time.Duration{-s, -s, -s}, 0},
		"of little more a correction is made": {0, []time.Duration{-s - 1000, -s - 1000, -s - 1000}, -s - 1000},
	} {
		if got := Correction(tt.was, tt.ahead); got != tt.want {
			t.Errorf("%s: the correction is %v, want %v", name, got, tt.want)
		}
	}
}

// A node reads its clock between the request and the answer. A slow answer changes the correction
// no further than it proves it wrong.
func TestASlowAnswerTellsLess(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct{ correction, late, ago, want time.Duration }{
		"at once":                   {0, 600 * s, 0, 600 * s},
		"right, after a pause":      {0, -3600 * s, 3600 * s, 0},
		"corrected, after a pause":  {600 * s, -3000 * s, 3600 * s, 600 * s},
		"behind, and slow":          {0, 598 * s, s, 598 * s},
		"ahead, and slow":           {0, -600 * s, s, -599 * s},
		"corrected too far by much": {700 * s, 598 * s, s, 599 * s},
	} {
		if got := Ahead(tt.correction, tt.late, tt.ago); got != tt.want {
			t.Errorf("%s: the node is %v ahead, want %v", name, got, tt.want)
		}
	}
}
