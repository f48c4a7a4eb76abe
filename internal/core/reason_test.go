package core

import (
	"testing"
	"time"
)

// The reason of a failed attempt follows from the answers of all cells. "h": refused for another
// owner; "g": granted; "x": failed; "k": the key is no lock; "-": no answer.
func TestTheReasonIsWhatAllCellsAllow(t *testing.T) {
	three, five, four := Majority(2, 3), Majority(3, 5), Majority(3, 4)
	both := Every([]Tree{three, three})
	answers := map[rune]Reply{'h': heldByOther, 'g': grant, 'x': unsent, 'k': {Err: errNoAnswer, WrongUse: true}}
	for _, tt := range []struct {
		tree  Tree
		cells string
		want  Reason
	}{
		{three, "hh-", Held},
		{three, "xhh", Held},
		{three, "xgh", Held},
		{three, "xh-", HeldOrNone},
		{three, "gh-", Held},
		{three, "--h", HeldOrNone},
		{three, "xxh", NoQuorum},
		{three, "xx-", NoQuorum},
		{three, "xxg", NoQuorum},
		{three, "kkh", WrongUse},
		{three, "kxh", NoQuorum},
		{three, "khh", Held},
		{five, "xxhgg", Held},
		{five, "xxh--", HeldOrNone},
		{five, "hhh--", Held},
		{five, "xxxh-", NoQuorum},
		{five, "hh---", HeldOrNone},
		{four, "hhxx", NoQuorum},
		{four, "hhx-", HeldOrNone},
		{four, "hhhx", Held},
		{both, "---hh-", Held},
		{both, "xx-hh-", HeldAndNoQuorum},
		{both, "hhhx-x", HeldAndNoQuorum},
		{both, "x--hh-", Held},
		{both, "xgghhx", Held},
		{both, "xx-h--", NoQuorum},
		{both, "h--xh-", HeldOrNone},
		{both, "ggghxg", Held},
	} {
		t.Run(tt.cells, func(t *testing.T) {
			m := begin(config(tt.tree))
			for i, said := range tt.cells {
				if r, ok := answers[said]; ok {
					r.Unsent = r.Unsent && i%2 == 0
					m.note(at(time.Millisecond), &m.Cells[i], r)
				}
			}
			if got := m.refusal(); got != tt.want {
				t.Errorf("reason %d, want %d", got, tt.want)
			}
		})
	}
}
